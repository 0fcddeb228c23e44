"""The native engine on CUDA: prefill, decoding and sampling are captured graphs, and Python is
touched once per finished turn.
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
"""New tokens for which graphs are captured; above these it is powers of two."""
DECODE_SIZES = (4, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
"""Replies that are continued at once for which graphs are captured; above these it is all slots."""


def prefill_size(tokens: int, requests: int, slots: int) -> tuple[int, int]:
    """The smallest graph that takes so many new tokens of so many requests: how many of each it has
    room for.
    """
    powers = (1 << n for n in count(14))
    for size in chain(PREFILL_SIZES, powers):
        room = min(slots, max(16, size // 8))
        if tokens <= size and requests <= room:
            return size, room
    raise AssertionError


@dataclass(frozen=True, slots=True)
class Flags:
    """Which replies went on after some decoding, on its way to the host."""

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
    """The model over cache slots: what it computes is captured once for each size and then
    replayed.
    """

    def __init__(
        self, model: PreTrainedModel, cache: SlotCache, slots: int, context_tokens: int
    ) -> None:
        self.model, self.cache, self.slots, self.context_tokens = (
            model,
            cache,
            slots,
            context_tokens,
        )
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
        """Append new tokens to their slots and draw the first token of each reply."""
        size = prefill_size(sum(len(piece.ids) for piece in pieces), len(pieces), self.slots)
        if size not in self._prefills:
            inputs = PrefillInputs(*size, self.slots, self.cache.scratch, self.model.device)
            self._prefills[size] = (inputs, self._captured(lambda: self._prefill(inputs)))
        inputs, replay = self._prefills[size]
        inputs.fill(pieces)
        replay()

    @torch.no_grad()
    def decode(self, slots: list[int], steps: int) -> Flags:
        """Draw `steps` more tokens for those of the given slots whose replies go on."""
        size = next((size for size in DECODE_SIZES if size >= len(slots)), self.slots)
        size = min(size, self.slots)
        if size not in self._decoders:
            rows = torch.full((size,), self.slots, device=self.model.device)
            self._decoders[size] = (rows, self._captured(lambda: self._decode(rows)))
        rows, replay = self._decoders[size]
        rows.copy_(
            pinned(torch.tensor([*slots, *[self.slots] * (size - len(slots))]), rows.device),
            non_blocking=True,
        )
        for _ in range(steps):
            replay()
        self._chunks += 1
        if not self._on_gpu:
            return Flags(self._chunks, self.state.active.clone(), self.state.produced.clone(), None)
        active, produced = (
            torch.empty_like(x, device="cpu", pin_memory=True)
            for x in (self.state.active, self.state.produced)
        )
        active.copy_(self.state.active, non_blocking=True)
        produced.copy_(self.state.produced, non_blocking=True)
        arrived = torch.cuda.Event()
        arrived.record()
        return Flags(self._chunks, active, produced, arrived)

    @property
    def next_chunk(self) -> int:
        """The number of the next decoding."""
        return self._chunks + 1

    def stop(self, slot: int) -> None:
        """A reply that nobody waits for any more."""
        self.state.active[
            slot
        ].zero_()  # and not "= 0", which would wait for all that was asked of the GPU before

    def replies(self, slots: list[int], flags: Flags) -> list[tuple[list[int], list[float]]]:
        """The replies of slots that have stopped.

        Read beside the decoding that goes on: nobody writes to them any more.
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
        return [
            (own_ids[:length], own[:length])
            for own_ids, own, length in zip(ids.tolist(), logprobs.tolist(), lengths, strict=True)
        ]

    def _captured(self, run: Callable[[], None]) -> Callable[[], None]:
        if not self._on_gpu:
            return run
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            # compiles kernels and sets up libraries, which a capture must not do; nothing is
            # active, so nothing changes
            run()
            run()
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(
            graph, pool=self._pool, capture_error_mode="thread_local"
        ):  # the learner may be at work beside it
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
        state.limit[rows], state.seeds[rows], state.stops[rows] = (
            inputs["limit"],
            inputs["seed"],
            inputs.stops,
        )
        state.sharpness[rows], state.noise[rows] = inputs.sharpness, inputs.noise
        state.positions[rows], state.produced[rows] = inputs["total"] - 1, torch.zeros_like(rows)
        state.active[rows] = (rows < self.slots).long()
        kernels.draw(logits_of(self.model, hidden_TD[inputs["last"]]), rows, state)

    def _decode(self, rows_B: Tensor) -> None:
        state = self.state
        is_active, position_B = state.active[rows_B] > 0, state.positions[rows_B]
        lengths_B = torch.where(is_active, position_B + 1, 1)
        cache_rows_B = rows_B.clamp(
            max=self.slots - 1
        )  # padding has an entry in the state and none in the cache, and rests anyway

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
        kernels.draw(
            logits_of(self.model, self.decoder(state.ids[rows_B], at, attend)), rows_B, state
        )


class CudaGraphEngine(TorchEngine):
    """The native engine with its model in graphs: decoding runs ahead of Python by a chunk of
    tokens.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        settings: TorchEngineSettings,
        context_tokens: int,
        *,
        beside_learner: bool = False,
        barriers: Sequence[Barrier] = (),
    ) -> None:
        super().__init__(
            model, settings, context_tokens, beside_learner=beside_learner, barriers=barriers
        )
        self.runner = Runner(self.model, self._cache, settings.slots, context_tokens)
        self._began: dict[int, int] = {}
        """The first decoding of each running request, by its identity."""

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
        """Let new turns in, decode a chunk ahead, and answer those whose replies have ended;
        meanwhile the episodes act.
        """
        ahead: deque[Flags] = deque()
        try:
            await self._others()
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
                await self._others()
        except Exception as error:  # noqa: BLE001  whatever it is, nobody may be left waiting
            self._fail(error)
        finally:
            self._is_serving = False

    def _fail(self, error: Exception) -> None:
        for request in (*self._waiting, *self._running):
            if not request.future.done():
                request.future.set_exception(EngineFailed(f"{type(error).__name__}: {error}"))
        self._waiting, self._running = [], []

    def _begin(self, admitted: list[Request]) -> None:
        self._running = [
            *self._running,
            *admitted,
        ]  # first of all: whatever fails below, somebody has to tell them
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
        """Answer the requests that had stopped by the end of this decoding; those that began after
        it are not meant.
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
        for request, slot, (ids, logprobs) in zip(
            ended, slots, self.runner.replies([s.index for s in slots], flags), strict=True
        ):
            del self._began[id(request)]
            slot.cached += ids[:-1]  # the last token was drawn, and never seen by the model
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
