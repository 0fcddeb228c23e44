"""The in-process engine: PyTorch inference on the learner's own weights or on a copy, with
continuous batching over KV cache slots.
"""

from __future__ import annotations

import asyncio
import copy
import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from palestra.core.types import Generation, Sampling
from palestra.engines.base import Barrier, EngineFailed, Session
from palestra.engines.torch.sampling import draw, noise
from palestra.engines.torch.settings import TorchEngineSettings
from palestra.engines.torch.slots import Piece, RaggedLayout, SlotCache
from palestra.models.attention import hidden_states
from palestra.models.weights import full_tensor


@dataclass(slots=True)
class Request:
    """A reply to be sampled, with its tokens so far."""

    ids: list[int]
    sampling: Sampling
    session: Session
    future: asyncio.Future[Generation]
    uniforms: list[float]
    reply: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


SHARED_AT_LEAST = 64
"""Minimum length of a shared prefix that is copied from another slot instead of computed."""


@dataclass(slots=True)
class Slot:
    index: int
    cached: list[int] = field(default_factory=list)
    """The tokens whose keys and values are in the slot."""
    opening: tuple[int, ...] = ()
    """The prompt of its first request."""
    asked: int = 0
    """The number of the admission that last had a request for this slot."""


class TorchEngine:
    """Samples in this process with the learner's own weights. It serves any number of episodes;
    each keeps a slot from its first turn until it is released.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        settings: TorchEngineSettings,
        context_tokens: int,
        *,
        overlaps_updates: bool = False,
        barriers: Sequence[Barrier] = (),
    ) -> None:
        self.model = copy.deepcopy(model).requires_grad_(False) if overlaps_updates else model
        self._learners = model
        """The model whose weights `sync_weights` copies."""
        self.settings = settings
        self.context_tokens = context_tokens
        self.version = 0
        self.computed_tokens = 0
        """Tokens that went through the model, for throughput."""
        self._cache = SlotCache(model, settings.slots, context_tokens)
        self._free = list(range(settings.slots))
        """A heap: the lowest free slot is taken, so that an episode's slot depends only on the
        present, and a resumed run assigns the same ones.
        """
        self._slots: dict[Session, Slot] = {}
        self._waiting: list[Request] = []
        self._running: list[Request] = []
        self._admissions = 0
        self._is_wave_on = False
        """Whether an admission exceeded the token budget, so that the next round continues it."""
        self._beginning: set[tuple[int, ...]] = set()
        """The prompts and shared prefixes that the current admission computes."""
        self._shared: list[tuple[int, int, int]] = []
        """(source slot, target slot, tokens) to copy before the next prefill."""
        self._released: list[Session] = []
        self._pump: asyncio.Task[None] | None = None
        self._is_serving = False
        self._is_loading = False
        self.barriers = barriers
        """Pools of environments to wait for between two rounds."""

    async def generate(
        self, ids: Sequence[int], sampling: Sampling, session: Session
    ) -> Generation:
        if len(ids) + sampling.max_tokens > self.context_tokens:
            raise ValueError(
                f"{len(ids)} tokens and a reply of {sampling.max_tokens} exceed the "
                f"context of {self.context_tokens}"
            )
        future: asyncio.Future[Generation] = asyncio.get_running_loop().create_future()
        self._waiting.append(Request(list(ids), sampling, session, future, noise(sampling)))
        self._wake()
        return await future

    def release(self, session: Session) -> None:
        self._released.append(session)
        if not self._is_serving:
            self._let_go()
        self._wake()

    async def sync_weights(self, version: int) -> None:
        """Copy the learner's weights once all replies in flight are complete, so that one version
        samples a whole reply.

        The cache of the old weights is dropped: unfinished episodes give up their slots until their
        next request.
        """
        self._is_loading = True
        try:
            if self._pump is not None and self._is_serving:
                # It ends when nothing runs, as no request is admitted while `_is_loading`.
                await self._pump
            if self.model is not self._learners:
                self._copy_weights()
            self.version = version
            for slot in self._slots.values():
                heapq.heappush(self._free, slot.index)
            self._slots = {}
        finally:
            self._is_loading = False
        self._wake()

    @torch.no_grad()
    def _copy_weights(self) -> None:
        pairs = list(zip(self.model.parameters(), self._learners.parameters(), strict=True))
        if isinstance(pairs[0][1], DTensor):
            # Gathered one at a time: together they may not fit into memory.
            for own, theirs in pairs:
                own.copy_(full_tensor(theirs))
        else:
            torch._foreach_copy_([own for own, _ in pairs], [theirs for _, theirs in pairs])

    def sleep(self) -> None:
        """The cache stays."""

    def _wake(self) -> None:
        if self._waiting and not self._is_serving and not self._is_loading:
            self._is_serving = True
            self._pump = asyncio.create_task(self._serve())

    async def _serve(self) -> None:
        """Each round prefills admitted requests and decodes one token for the others; between two
        rounds the episodes act.

        The model may run in a thread; everything else happens on the event loop. Returns when there
        is no request left that can proceed.
        """
        admitted: list[Request] = []
        try:
            await self._let_episodes_act()
            while True:
                self._let_go()
                admitted = self._admit()
                if not admitted and not self._running:
                    break
                if self.settings.deterministic:
                    self._round(admitted)
                else:
                    await asyncio.to_thread(self._round, admitted)
                self._running = [*self._running, *admitted]
                self._finish()
                await self._let_episodes_act()
        except Exception as error:  # noqa: BLE001
            # Whatever it is, no request may be left waiting.
            for request in (*self._waiting, *self._running, *admitted):
                if not request.future.done():
                    request.future.set_exception(EngineFailed(f"{type(error).__name__}: {error}"))
            self._waiting, self._running = [], []
        finally:
            self._is_serving = False

    async def _let_episodes_act(self) -> None:
        """Yield to the event loop until the episodes have made their next requests."""
        while True:
            # When an episode ends, the next one starts after three iterations of the event loop.
            for _ in range(3):
                await asyncio.sleep(0)
            waited_for = [barrier for barrier in self.barriers if barrier.is_busy]
            if not waited_for:
                return
            for barrier in waited_for:
                await barrier.quiesce()

    def _let_go(self) -> None:
        """Free the slots of finished episodes; never called while the model runs."""
        gone = {id(session) for session in self._released}
        self._waiting = [request for request in self._waiting if id(request.session) not in gone]
        self._running = [request for request in self._running if id(request.session) not in gone]
        for session in self._released:
            slot = self._slots.pop(session, None)
            if slot is not None:
                heapq.heappush(self._free, slot.index)
        self._released = []

    def _admit(self) -> list[Request]:
        """The waiting requests that have or get a slot, up to the budget of new tokens; in order of
        slots if deterministic, else in order of arrival.
        """
        admitted: list[Request] = []
        active = len(self._waiting) + len(self._running)
        is_wave = self._is_wave_on or len(self._waiting) >= self.settings.admit_fraction * active
        if self._is_loading or (self._running and not is_wave):
            return admitted
        if not self._running:
            self._make_room()
        self._admissions += 1
        tokens, self._is_wave_on, self._beginning = 0, False, set()
        if self.settings.deterministic:
            self._waiting.sort(key=self._rank)
        for request in self._waiting:
            slot = self._slots.get(request.session)
            if slot is None:
                if not self._free:
                    continue
                slot = self._slots[request.session] = Slot(heapq.heappop(self._free))
            if not slot.cached and not self._may_begin(request, slot):
                continue
            if request.ids[: len(slot.cached)] != slot.cached:
                slot.cached = []
            # At least one token must be new, to have logits.
            slot.cached = slot.cached[: len(request.ids) - 1]
            tokens += len(request.ids) - len(slot.cached)
            if admitted and tokens > self.settings.prefill_tokens:
                self._is_wave_on = True
                break
            slot.asked = self._admissions
            admitted.append(request)
        taken = set(map(id, admitted))
        self._waiting = [request for request in self._waiting if id(request) not in taken]
        return admitted

    def _make_room(self) -> None:
        """If no request could be admitted, take slots from episodes without a request, the least
        recently used first.

        Without this, paused episodes (`rollout.partial`) could hold all slots forever.
        """
        asking = {request.session for request in self._waiting}
        if self._free or not asking or asking & self._slots.keys():
            return
        idle = sorted(self._slots.items(), key=lambda item: (item[1].asked, item[1].index))
        for session, slot in idle[: len(asking)]:
            del self._slots[session]
            heapq.heappush(self._free, slot.index)

    def _rank(self, request: Request) -> tuple[int, str]:
        slot = self._slots.get(request.session)
        return (self.settings.slots if slot is None else slot.index, request.session.id)

    def _may_begin(self, request: Request, slot: Slot) -> bool:
        """Prefix caching: reuse the prefix that another slot has computed. False if the request
        should wait, because the current admission computes the same prefix.

        The episodes of a group share their prompt, and those of an environment its instructions.
        """
        opening = tuple(request.ids)
        common = opening[:SHARED_AT_LEAST]
        if len(common) < SHARED_AT_LEAST:
            return True
        donors = [
            other
            for other in self._slots.values()
            if other.cached and other.opening[:SHARED_AT_LEAST] == common
        ]
        if opening in self._beginning or (not donors and common in self._beginning):
            return False
        slot.opening = opening
        length = 0
        if donors:
            same_prompt = [other for other in donors if other.opening == opening]
            donor = (same_prompt or donors)[0]
            length = min(_shared_prefix(request.ids, donor.cached), len(opening) - 1)
            if length >= SHARED_AT_LEAST:
                slot.cached = request.ids[:length]
                self._shared.append((donor.index, slot.index, length))
        if length < len(opening) - 1:
            self._beginning |= {opening, common}
        return True

    def _share(self) -> None:
        """Copy shared prefixes between slots."""
        self._cache.share(self._shared)
        self._shared = []

    @torch.inference_mode()
    def _round(self, admitted: list[Request]) -> None:
        if self._running:
            self._decode()
        if admitted:
            self._share()
            self._prefill(admitted)

    def _prefill(self, requests: list[Request]) -> None:
        """Compute the packed new tokens of all requests, and sample one token for each request."""
        pieces: list[Piece] = []
        ids: list[int] = []
        positions: list[int] = []
        rows: list[int] = []
        last: list[int] = []
        for request in requests:
            slot = self._slots[request.session]
            new = request.ids[len(slot.cached) :]
            total = len(request.ids)
            pieces.append(Piece(slot.index, len(new), total))
            ids += new
            positions += range(total - len(new), total)
            rows += [slot.index] * len(new)
            last.append(len(ids) - 1)
        device = self.model.device
        ids_T = torch.tensor(ids, device=device)
        positions_T = torch.tensor(positions, device=device)
        self._cache.append(torch.tensor(rows, device=device), positions_T)
        hidden_1TD = hidden_states(
            self.model,
            ids_T[None],
            positions_T[None],
            past_key_values=self._cache,
            layout=RaggedLayout(self._cache, pieces),
        )
        for request in requests:
            self._slots[request.session].cached = list(request.ids)
        self.computed_tokens += len(ids)
        self._sample(requests, hidden_1TD[0, torch.tensor(last, device=device)])

    def _decode(self) -> None:
        """One more token for every running request."""
        slots = [self._slots[request.session] for request in self._running]
        last = [request.reply[-1] for request in self._running]
        compute = self._decode_padded if self._cache.attend_ragged is None else self._decode_ragged
        hidden_BD = compute(slots, last)
        for slot, token in zip(slots, last, strict=True):
            slot.cached.append(token)
        self.computed_tokens += len(last)
        self._sample(self._running, hidden_BD)

    def _decode_ragged(self, slots: list[Slot], last: list[int]) -> Tensor:
        """Each token reads its own episode only."""
        pieces = [Piece(slot.index, 1, len(slot.cached) + 1) for slot in slots]
        positions_B = torch.tensor([len(slot.cached) for slot in slots])
        self._cache.append(torch.tensor([slot.index for slot in slots]), positions_B)
        hidden_1BD = hidden_states(
            self.model,
            torch.tensor(last)[None],
            positions_B[None],
            past_key_values=self._cache,
            layout=RaggedLayout(self._cache, pieces),
        )
        return hidden_1BD[0]

    def _decode_padded(self, slots: list[Slot], last: list[int]) -> Tensor:
        """Without a kernel: as many tokens of every slot as the longest episode has."""
        device = self.model.device
        length = max(len(slot.cached) for slot in slots) + 1
        high = max(slot.index for slot in slots) + 1
        read_rows: Tensor | slice
        if high <= 2 * len(slots):
            # Most slots decode: read the cache in place, which needs no copy, and let the others
            # write to the scratch column.
            ids, positions = [0] * high, [self._cache.scratch] * high
            for slot, token in zip(slots, last, strict=True):
                ids[slot.index], positions[slot.index] = token, len(slot.cached)
            rows, read_rows = torch.arange(high, device=device), slice(0, high)
            picked = torch.tensor([slot.index for slot in slots], device=device)
        else:
            ids, positions = last, [len(slot.cached) for slot in slots]
            rows = read_rows = torch.tensor([slot.index for slot in slots], device=device)
            picked = torch.arange(len(slots), device=device)
        position = torch.tensor(positions, device=device)
        self._cache.decode(rows, position, read_rows, length)
        mask = torch.arange(length, device=device)[None, :] <= position[:, None]
        hidden = hidden_states(
            self.model,
            torch.tensor(ids, device=device)[:, None],
            position.clamp(max=self.context_tokens - 1)[:, None],
            past_key_values=self._cache,
            attention_mask=mask[:, None, None, :],
        )
        return hidden[picked, 0]

    def _sample(self, requests: list[Request], hidden_BD: Tensor) -> None:
        logits_BV = self.model.get_output_embeddings()(hidden_BD)
        uniform_B = torch.tensor(
            [request.uniforms[len(request.reply)] for request in requests], device=logits_BV.device
        )
        tokens, logprobs = draw(logits_BV, uniform_B, [request.sampling for request in requests])
        for request, token, logprob in zip(
            requests, tokens.tolist(), logprobs.tolist(), strict=True
        ):
            request.reply.append(token)
            request.logprobs.append(logprob)

    def _finish(self) -> None:
        """Answer the requests whose reply is complete."""
        still_running: list[Request] = []
        for request in self._running:
            stopped = request.reply[-1] in request.sampling.stop_ids
            if not stopped and len(request.reply) < request.sampling.max_tokens:
                still_running.append(request)
            elif not request.future.done():
                finish: Literal["stop", "length"] = "stop" if stopped else "length"
                request.future.set_result(
                    Generation(request.reply, request.logprobs, finish, self.version)
                )
        self._running = still_running


def _shared_prefix(one: list[int], other: list[int]) -> int:
    """The length of the common prefix, by bisection: comparing slices is fast."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
