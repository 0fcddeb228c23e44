"""The in-process engine: torch inference on the learner's own weights or on a copy, with continuous
batching over cache slots.
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
    """A reply in the making."""

    ids: list[int]
    sampling: Sampling
    session: Session
    future: asyncio.Future[Generation]
    uniforms: list[float]
    reply: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


SHARED_AT_LEAST = 64
"""Tokens of a beginning that are worth being copied from another slot."""


@dataclass(slots=True)
class Slot:
    index: int
    cached: list[int] = field(default_factory=list)
    """The tokens whose keys and values it holds."""
    opening: tuple[int, ...] = ()
    """The tokens that it began with."""
    asked: int = 0
    """The number of the admission in which a reply was last asked for."""


class TorchEngine:
    """Serves any number of episodes; each keeps a slot from its first turn until it is released."""

    def __init__(
        self,
        model: PreTrainedModel,
        settings: TorchEngineSettings,
        context_tokens: int,
        *,
        beside_learner: bool = False,
        barriers: Sequence[Barrier] = (),
    ) -> None:
        self.model = copy.deepcopy(model).requires_grad_(False) if beside_learner else model
        self._learners = model
        """The weights that `sync_weights` takes over."""
        self.settings = settings
        self.context_tokens = context_tokens
        self.version = 0
        self.computed_tokens = 0
        """Tokens that went through the model, for throughput."""
        self._cache = SlotCache(model, settings.slots, context_tokens)
        self._free = list(range(settings.slots))
        """A heap: the lowest free slot is taken, so that where an episode lies depends on nothing
        that is past.
        """
        self._slots: dict[Session, Slot] = {}
        self._waiting: list[Request] = []
        self._running: list[Request] = []
        self._admissions = 0
        self._is_wave_on = False
        """Whether some of the requests that are being let in had to wait for the next round."""
        self._beginning: set[tuple[int, ...]] = set()
        """What the requests that were just let in begin with."""
        self._shared: list[tuple[int, int, int]] = []
        """From which slot to which slot, and how many tokens, is to be copied before the next
        prefill.
        """
        self._released: list[Session] = []
        self._pump: asyncio.Task[None] | None = None
        self._is_serving = False
        self._is_loading = False
        self.barriers = barriers
        """Environments whose answers are waited for between two rounds."""

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
        """Take the learner's weights over once all replies in the making are complete, so that each
        is of one version.

        What the old weights computed is forgotten, so episodes that are not over give their slots
        back until they ask again.
        """
        self._is_loading = True
        try:
            if self._pump is not None and self._is_serving:
                # it ends when nothing runs: nobody is let in while weights wait to be handed over
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
        if isinstance(pairs[0][1], DTensor):  # one at a time: together they may not fit
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
        """Prefill what waits, then decode one token for all; between two rounds the episodes act.

        The model may run in a thread; everything else happens here, on the loop. It ends when
        nothing can go on.
        """
        admitted: list[Request] = []
        try:
            await self._others()
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
                await self._others()
        except Exception as error:  # noqa: BLE001  whatever it is, nobody may be left waiting
            for request in (*self._waiting, *self._running, *admitted):
                if not request.future.done():
                    request.future.set_exception(EngineFailed(f"{type(error).__name__}: {error}"))
            self._waiting, self._running = [], []
        finally:
            self._is_serving = False

    async def _others(self) -> None:
        """Let the episodes act."""
        while True:
            for _ in range(
                3
            ):  # an episode that ends hands over to the next one in three turns of the loop
                await asyncio.sleep(0)
            waited_for = [barrier for barrier in self.barriers if barrier.is_busy]
            if not waited_for:
                return
            for barrier in waited_for:
                await barrier.quiesce()

    def _let_go(self) -> None:
        """Free the slots of episodes that are over; never while the model runs."""
        gone = {id(session) for session in self._released}
        self._waiting = [request for request in self._waiting if id(request.session) not in gone]
        self._running = [request for request in self._running if id(request.session) not in gone]
        for session in self._released:
            slot = self._slots.pop(session, None)
            if slot is not None:
                heapq.heappush(self._free, slot.index)
        self._released = []

    def _admit(self) -> list[Request]:
        """The waiting requests that have or get a slot; in order of arrival or by rule, up to the
        budget of new tokens.
        """
        admitted: list[Request] = []
        is_wave = self._is_wave_on or len(self._waiting) >= self.settings.admit_fraction * (
            len(self._waiting) + len(self._running)
        )
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
            slot.cached = slot.cached[
                : len(request.ids) - 1
            ]  # at least one token must be new, to have logits
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
        """Where nobody could be let in, episodes that ask for nothing give up their slots, those
        that asked longest ago first.

        They may be held up until others have had their turn (`rollout.partial`), or wait for a part
        of themselves.
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
        """Take over what another slot has computed of the same beginning; wait where somebody is
        just about to compute it.

        The episodes of a group begin alike, and those of an environment have their instructions in
        common.
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
        donor = next(
            (other for other in donors if other.opening == opening), donors[0] if donors else None
        )
        length = (
            0 if donor is None else min(_in_common(request.ids, donor.cached), len(opening) - 1)
        )
        if donor is not None and length >= SHARED_AT_LEAST:
            slot.cached = request.ids[:length]
            self._shared.append((donor.index, slot.index, length))
        if length < len(opening) - 1:
            self._beginning |= {opening, common}
        return True

    def _share(self) -> None:
        """Copy what slots take over from others."""
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
        slots = [self._slots[request.session] for request in requests]
        new = [
            request.ids[len(slot.cached) :] for request, slot in zip(requests, slots, strict=True)
        ]
        pieces = [
            Piece(slot.index, len(ids), len(slot.cached) + len(ids))
            for slot, ids in zip(slots, new, strict=True)
        ]
        device = self.model.device
        positions = torch.cat([torch.arange(p.total - p.new, p.total) for p in pieces]).to(device)
        rows = (
            torch.tensor([p.slot for p in pieces])
            .repeat_interleave(torch.tensor([p.new for p in pieces]))
            .to(device)
        )
        flat = torch.tensor([token for ids in new for token in ids], device=device)
        self._cache.append(rows, positions)
        layout = RaggedLayout(self._cache, pieces)
        hidden = hidden_states(
            self.model, flat[None], positions[None], past_key_values=self._cache, layout=layout
        )
        last = torch.tensor([p.new for p in pieces]).cumsum(0).to(device) - 1
        for slot, ids in zip(slots, new, strict=True):
            slot.cached.extend(ids)
        self.computed_tokens += len(flat)
        self._sample(requests, hidden[0, last])

    def _decode(self) -> None:
        """One more token for every running request."""
        slots = [self._slots[request.session] for request in self._running]
        device = self.model.device
        last = [request.reply[-1] for request in self._running]
        length = max(len(slot.cached) for slot in slots) + 1
        high = max(slot.index for slot in slots) + 1
        read_rows: Tensor | slice
        if high <= 2 * len(
            slots
        ):  # most rows work: read the cache in place and let the others rest on the scratch column
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
        for slot, token in zip(slots, last, strict=True):
            slot.cached.append(token)
        self.computed_tokens += len(last)
        self._sample(self._running, hidden[picked, 0])

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


def _in_common(one: list[int], other: list[int]) -> int:
    """How many tokens two lists begin with alike."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
