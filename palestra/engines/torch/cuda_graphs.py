"""The torch engine on CUDA: prefill, decoding and sampling are captured CUDA graphs, and Python
runs once per completed reply.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from transformers import PreTrainedModel

from palestra.core.types import Generation, Sampling
from palestra.engines.base import Barrier, Session
from palestra.engines.torch import kernels
from palestra.engines.torch.decoder import NewPlaces, decoder_of
from palestra.engines.torch.device_state import (
    MOST_STOPS,
    NewTokens,
    PrefillInputs,
    SlotState,
    pinned,
)
from palestra.engines.torch.engine import EngineFailed, Request, TorchEngine
from palestra.engines.torch.slots import SlotCache
from palestra.models.attention import logits_of

if TYPE_CHECKING:
    from palestra.engines.torch.settings import TorchEngineSettings

log = logging.getLogger(__name__)


PREFILL_SIZES = (64, 128, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192)
"""Numbers of new tokens with a graph of their own; above these, powers of two."""
DECODE_SIZES = (4, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
"""Numbers of replies decoded together with a graph of their own; above these, all slots."""


def prefill_size(tokens: int, requests: int, slots: int) -> tuple[int, int]:
    """The (tokens, requests) of the smallest graph with room for these."""
    powers = (1 << n for n in count(14))
    for size in chain(PREFILL_SIZES, powers):
        room = min(slots, max(16, size // 8))
        if tokens <= size and requests <= room:
            return size, room
    raise AssertionError


@dataclass(frozen=True, slots=True)
class Flags:
    """Which replies are unfinished after a chunk of decoding, copied asynchronously to the host."""

    number: int
    active: Tensor
    produced: Tensor
    arrived: torch.cuda.Event | None

    @property
    def is_here(self) -> bool:
        return self.arrived is None or self.arrived.query()

    def wait(self) -> None:
        if self.arrived is not None:
            self.arrived.synchronize()


class Runner:
    """Runs the model over cache slots: one CUDA graph per size, captured at its first use."""

    def __init__(
        self, model: PreTrainedModel, cache: SlotCache, slots: int, context_tokens: int
    ) -> None:
        self.model = model
        self.cache = cache
        self.slots = slots
        self.context_tokens = context_tokens
        self.state = SlotState(slots, context_tokens, model.device)
        self.decoder = decoder_of(model, cache, context_tokens)
        self._on_gpu = model.device.type == "cuda"
        self._decoders: dict[int, tuple[Tensor, Callable[[], None]]] = {}
        self._prefills: dict[tuple[int, int], tuple[PrefillInputs, Callable[[], None]]] = {}
        self._pool = torch.cuda.graph_pool_handle() if self._on_gpu else None
        self._beside = torch.cuda.Stream() if self._on_gpu else None
        self._chunks = 0

    @torch.no_grad()
    def prefill(self, pieces: list[NewTokens]) -> None:
        """Append new tokens to their slots and sample the first token of each reply."""
        size = prefill_size(sum(len(piece.ids) for piece in pieces), len(pieces), self.slots)
        if size not in self._prefills:
            inputs = PrefillInputs(*size, self.slots, self.cache.scratch, self.model.device)
            self._prefills[size] = (inputs, self._captured(lambda: self._prefill(inputs)))
        inputs, replay = self._prefills[size]
        inputs.fill(pieces)
        replay()

    @torch.no_grad()
    def decode(self, slots: list[int], steps: int) -> Flags:
        """Decode `steps` more tokens for those of the given slots whose replies are unfinished."""
        size = next((size for size in DECODE_SIZES if size >= len(slots)), self.slots)
        size = min(size, self.slots)
        if size not in self._decoders:
            rows = torch.full((size,), self.slots, device=self.model.device)
            self._decoders[size] = (rows, self._captured(lambda: self._decode(rows)))
        rows, replay = self._decoders[size]
        # Padding is the entry behind the last slot.
        padded = torch.tensor(slots + [self.slots] * (size - len(slots)))
        rows.copy_(pinned(padded, rows.device), non_blocking=True)
        for _ in range(steps):
            replay()
        self._chunks += 1
        if not self._on_gpu:
            return Flags(self._chunks, self.state.active.clone(), self.state.produced.clone(), None)
        active = torch.empty_like(self.state.active, device="cpu", pin_memory=True)
        produced = torch.empty_like(self.state.produced, device="cpu", pin_memory=True)
        active.copy_(self.state.active, non_blocking=True)
        produced.copy_(self.state.produced, non_blocking=True)
        arrived = torch.cuda.Event()
        arrived.record()
        return Flags(self._chunks, active, produced, arrived)

    @property
    def next_chunk(self) -> int:
        """The number of the next chunk of decoding."""
        return self._chunks + 1

    def stop(self, slot: int) -> None:
        """Stop a reply that is no longer needed."""
        # Not "= 0", which would synchronize with the GPU.
        self.state.active[slot].zero_()

    def replies(self, slots: list[int], flags: Flags) -> list[tuple[list[int], list[float]]]:
        """The replies of slots that have stopped.

        They are read on another stream, in parallel with decoding, which no longer writes to them.
        """
        lengths = flags.produced[slots].tolist()
        if self._beside is None:
            ids, logprobs = self.state.reply_ids[slots], self.state.reply_logprobs[slots]
        else:
            with torch.cuda.stream(self._beside):
                rows = pinned(torch.tensor(slots), self.model.device).to(
                    self.model.device, non_blocking=True
                )
                longest = max(lengths)
                ids = self.state.reply_ids[rows, :longest].cpu()
                logprobs = self.state.reply_logprobs[rows, :longest].cpu()
        replies = zip(ids.tolist(), logprobs.tolist(), lengths, strict=True)
        return [(own_ids[:length], own[:length]) for own_ids, own, length in replies]

    def _captured(self, run: Callable[[], None]) -> Callable[[], None]:
        if not self._on_gpu:
            return run
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            # Warm-up: compiles kernels and initializes libraries, which is not allowed during
            # capture. No reply is active, so no state changes.
            run()
            run()
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        # "thread_local": the learner may use the GPU from another thread during the capture.
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            run()
        return graph.replay

    def _prefill(self, inputs: PrefillInputs) -> None:
        state, rows = self.state, inputs["rows"]

        def attend(query: Tensor, layer: int, scale: float) -> Tensor:
            return kernels.attend_new(
                query,
                self.cache.keys[layer],
                self.cache.values[layer],
                inputs.block_table,
                scale=scale,
            )

        hidden_TD = self.decoder(
            inputs["ids"],
            NewPlaces(inputs["positions"], inputs["slots"], inputs["write_at"]),
            attend,
        )
        state.limit[rows] = inputs["limit"]
        state.seeds[rows] = inputs["seed"]
        state.stops[rows] = inputs.stops
        state.sharpness[rows] = inputs.sharpness
        state.noise[rows] = inputs.noise
        state.positions[rows] = inputs["total"] - 1
        state.produced[rows] = torch.zeros_like(rows)
        state.active[rows] = (rows < self.slots).long()
        kernels.draw(logits_of(self.model, hidden_TD[inputs["last"]]), rows, state)

    def _decode(self, rows_B: Tensor) -> None:
        state = self.state
        is_active, position_B = state.active[rows_B] > 0, state.positions[rows_B]
        lengths_B = torch.where(is_active, position_B + 1, 1)
        # Padding has an entry in the state and none in the cache; it is never active.
        cache_rows_B = rows_B.clamp(max=self.slots - 1)

        def attend(query: Tensor, layer: int, scale: float) -> Tensor:
            return kernels.attend_one(
                query,
                self.cache.keys[layer],
                self.cache.values[layer],
                cache_rows_B,
                lengths_B,
                scale=scale,
            )

        write_at_B = torch.where(is_active, position_B, self.cache.scratch)
        at = NewPlaces(position_B.clamp(max=self.context_tokens - 1), cache_rows_B, write_at_B)
        hidden_BD = self.decoder(state.ids[rows_B], at, attend)
        kernels.draw(logits_of(self.model, hidden_BD), rows_B, state)


class CudaGraphEngine(TorchEngine):
    """The torch engine with CUDA graphs: decoding runs ahead of Python by a chunk of tokens."""

    def __init__(
        self,
        model: PreTrainedModel,
        settings: TorchEngineSettings,
        context_tokens: int,
        *,
        overlaps_updates: bool = False,
        barriers: Sequence[Barrier] = (),
    ) -> None:
        super().__init__(
            model, settings, context_tokens, overlaps_updates=overlaps_updates, barriers=barriers
        )
        self.runner = Runner(self.model, self._cache, settings.slots, context_tokens)
        self._began: dict[int, int] = {}
        """The first chunk of each running request, by the request's `id()`."""

    async def generate(
        self, ids: Sequence[int], sampling: Sampling, session: Session
    ) -> Generation:
        if sampling.top_k or sampling.top_p < 1:
            raise ValueError("top_k and top_p need engine.graphs = false")
        if len(sampling.stop_ids) > MOST_STOPS:
            raise ValueError(
                f"engine.graphs takes at most {MOST_STOPS} stop tokens, not "
                f"{len(sampling.stop_ids)}"
            )
        return await super().generate(ids, sampling, session)

    async def _serve(self) -> None:
        """Admit requests, decode a chunk ahead, and answer requests whose replies are complete; the
        episodes act while the GPU decodes.
        """
        ahead: deque[Flags] = deque()
        try:
            await self._let_episodes_act()
            while True:
                self._let_go()
                if admitted := self._admit():
                    self._begin(admitted)
                if not self._running and not ahead:
                    break
                if self._running:
                    slots = [self._slots[request.session].index for request in self._running]
                    ahead.append(self.runner.decode(slots, self.settings.decode_chunk))
                if len(ahead) > 1 or not self._running:
                    await self._answer(ahead.popleft())
                await self._let_episodes_act()
        except Exception as error:  # noqa: BLE001
            # Whatever it is, no request may be left waiting.
            self._fail(error)
        finally:
            self._is_serving = False

    def _fail(self, error: Exception) -> None:
        for request in (*self._waiting, *self._running):
            if not request.future.done():
                request.future.set_exception(EngineFailed(f"{type(error).__name__}: {error}"))
        self._waiting, self._running = [], []

    def _begin(self, admitted: list[Request]) -> None:
        # First of all, so that `_fail` reaches these requests if anything below raises.
        self._running = [*self._running, *admitted]
        pieces = []
        for request in admitted:
            slot = self._slots[request.session]
            new = request.ids[len(slot.cached) :]
            pieces.append(NewTokens(slot.index, new, len(request.ids), request.sampling))
            slot.cached = list(request.ids)
            self._began[id(request)] = self.runner.next_chunk
            self.computed_tokens += len(new)
        self._share()
        self.runner.prefill(pieces)

    async def _answer(self, flags: Flags) -> None:
        """Answer the requests that were complete at the end of this chunk.

        Requests that started after it are skipped: its flags are of their slots' earlier replies.
        """
        if self.settings.deterministic:
            flags.wait()
        while not flags.is_here:
            await asyncio.sleep(0)
        active = flags.active.tolist()
        ended = [
            request
            for request in self._running
            if request.session in self._slots
            and self._began[id(request)] <= flags.number
            and not active[self._slots[request.session].index]
        ]
        if not ended:
            return
        gone = set(map(id, ended))
        self._running = [request for request in self._running if id(request) not in gone]
        slots = [self._slots[request.session] for request in ended]
        replies = self.runner.replies([slot.index for slot in slots], flags)
        for request, slot, (ids, logprobs) in zip(ended, slots, replies, strict=True):
            del self._began[id(request)]
            slot.cached += ids[:-1]  # the last token was sampled, but not yet an input
            self.computed_tokens += len(ids) - 1
            if not request.future.done():
                stopped = ids[-1] in request.sampling.stop_ids
                request.future.set_result(
                    Generation(ids, logprobs, "stop" if stopped else "length", self.version)
                )

    def _let_go(self) -> None:
        released = {id(session) for session in self._released}
        for request in self._running:
            if id(request.session) in released:
                self._began.pop(id(request), None)
                self.runner.stop(self._slots[request.session].index)
        super()._let_go()
