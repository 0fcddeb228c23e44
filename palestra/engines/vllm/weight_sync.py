"""Weight sync to vLLM servers: all ranks take part, one rank leads for each server, and all ranks
learn the outcome.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec
import torch
from torch import Tensor
from transformers import PreTrainedModel

from palestra.core.process_group import ProcessGroup
from palestra.engines.base import EngineFailed
from palestra.engines.fingerprint import fingerprint
from palestra.engines.vllm.client import Server, ServerTrouble
from palestra.engines.vllm.common import LOGPROBS_MODE, check_fingerprints
from palestra.engines.vllm.transfer import FolderTransfer, NCCLTransfer, Transfer, Weights
from palestra.models.lora import plain_weights

if TYPE_CHECKING:
    import aiohttp

    from palestra.engines.vllm.settings import VLLMServerSettings


@dataclass(frozen=True, slots=True)
class Share:
    """The servers that a rank uses: some of its own, or one shared with other ranks if there are
    more ranks than servers.
    """

    urls: Sequence[str]
    ranks: Sequence[int]
    """The ranks that use them. The first one leads: it sends the weights."""

    @classmethod
    def of(cls, urls: Sequence[str], world: ProcessGroup) -> Share:
        starts = [len(urls) * rank // world.size for rank in range(world.size)]
        own = starts[world.rank]
        ranks = [rank for rank, start in enumerate(starts) if start == own]
        if len(ranks) > 1:
            return cls(urls[own : own + 1], ranks)
        return cls(world.share(urls), ranks)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The report of a rank after a weight sync; empty if the rank leads no server."""

    mark: str = ""
    troubles: list[str] = field(default_factory=list)
    """For each server that the rank leads, why it could not be reached; empty if it could."""
    error: str = ""
    """The error that ends the run."""


class HandOver:
    """Sends the learner's weights to this rank's servers."""

    def __init__(
        self,
        model: PreTrainedModel,
        settings: VLLMServerSettings,
        context_tokens: int,
        share: Share,
        world: ProcessGroup,
    ) -> None:
        self.servers = [Server(url) for url in share.urls]
        self.settings = settings
        self.context_tokens = context_tokens
        self._model = model
        self._world = world
        self._leader = share.ranks[0]
        self._leads = self._leader == world.rank
        self._run = secrets.token_hex(8)
        self._transfer: Transfer = (
            NCCLTransfer(settings.address, model.device, settings.load_timeout_s)
            if settings.weights == "nccl"
            else FolderTransfer(settings.folder, settings.load_timeout_s)
        )

    async def to_all(self, http: aiohttp.ClientSession, version: int, *, is_first: bool) -> None:
        """Send the current weights to the servers of all ranks. All ranks must call this, each once
        it has no reply in flight.

        The first time, all servers must be reachable; later, servers that are not are left out as
        long as every rank has one. An error is raised on all ranks.
        """
        # All ranks meet before a server is paused, because pausing aborts replies in flight.
        await self._tell(Outcome())
        try:
            own = await self._send(http, version)
        except EngineFailed as error:
            own = Outcome(error=str(error))
        outcomes = await self._tell(own)
        errors = [outcome.error for outcome in outcomes if outcome.error]
        if errors:
            raise EngineFailed(errors[0])
        led = [outcome.troubles for outcome in outcomes if outcome.troubles]
        lost = [trouble for trouble in chain.from_iterable(led) if trouble]
        if any(map(all, led)) or (is_first and lost):
            raise EngineFailed(f"the weights could not be handed over: {'; '.join(lost)}")
        self._note(outcomes[self._leader])

    async def to_own(self, http: aiohttp.ClientSession, version: int) -> None:
        """Send the current weights, unsharded on this rank, to servers that no other rank uses.

        Servers that cannot be reached are left out.
        """
        self._note(await self._send(http, version))

    def check_mark(self, server: Server, facts: dict[str, Any]) -> None:
        """Raise if a server has other weights: one that restarted unnoticed answers as before."""
        if server.mark and facts["mark"] != server.mark:
            raise EngineFailed(
                f"{server.url}: no longer has version {server.mark.rpartition('/')[2]} of "
                "the weights; was it started again, or does "
                "another run use it? Replies since the last hand-over are not to be trusted"
            )

    async def _tell(self, own: Outcome) -> list[Outcome]:
        """The outcomes of all ranks. In a thread, so that this rank's event loop keeps running."""
        messages = await asyncio.to_thread(self._world.all_gather_bytes, msgspec.json.encode(own))
        return [msgspec.json.decode(message, type=Outcome) for message in messages]

    def _note(self, outcome: Outcome) -> None:
        for server, trouble in zip(self.servers, outcome.troubles, strict=True):
            if trouble:
                server.lose(trouble)
            else:
                server.mark, server.trouble, server.is_suspect = outcome.mark, "", False

    async def _send(self, http: aiohttp.ClientSession, version: int) -> Outcome:
        """The part of this rank: a leader sends the weights to all of its servers."""
        weights, expected = self._gather()
        if not self._leads:
            return Outcome()
        shapes = json.dumps({name: list(weight.shape) for name, weight in weights.items()})
        mark = f"{self._run}/{version}"
        with self._transfer.ready(weights):
            renewals = (
                self._renew(server, http, shapes, expected, mark) for server in self.servers
            )
            return Outcome(mark, await _all_done(renewals))

    def _gather(self) -> tuple[Weights, dict[str, int]]:
        """The weights in the servers' type and their fingerprints, on leaders.

        With sharded weights, all ranks must call this: weights are gathered one at a time, and only
        leaders keep them.
        """
        dtype, kept = getattr(torch, self.settings.dtype), Weights()

        def rounded() -> Iterator[tuple[str, Tensor]]:
            for name, weight in plain_weights(self._model):
                if self._leads:
                    own = weight.to(dtype)
                    kept[name] = own.to(self._transfer.device).contiguous()
                    yield name, own

        return kept, fingerprint(rounded())

    async def _renew(
        self,
        server: Server,
        http: aiohttp.ClientSession,
        shapes: str,
        expected: dict[str, int],
        mark: str,
    ) -> str:
        """Overwrite a server's weights, verify them, and only then let it sample again.

        Returns why it could not be reached, or an empty string.
        """
        limit = self.settings.load_timeout_s
        try:
            self._check_server(server, await server.describe(http, timeout_s=limit))
            server.mark = ""
            # Only cancelled requests of this run can be left on the server.
            await server.post(http, "/pause?mode=abort", timeout_s=limit)
            await self._transfer.send(server, http)
            for found in await server.call(http, "palestra_fingerprint", shapes, timeout_s=limit):
                check_fingerprints(f"{server.url}: vLLM's", expected, found)
            answer = await server.post(http, "/reset_prefix_cache", timeout_s=limit)
            if answer and not answer["success"]:
                raise EngineFailed(
                    f"{server.url}: vLLM could not forget what the old weights computed: "
                    "its cache is in use"
                )
            await server.call(http, "palestra_set_mark", mark, timeout_s=limit)
            await server.post(http, "/resume", timeout_s=limit)
        except ServerTrouble as trouble:
            return str(trouble)
        return ""

    def _check_server(self, server: Server, facts: dict[str, Any]) -> None:
        """Raise if a server has wrong options, or other weights than it was sent."""
        if facts["logprobs_mode"] != LOGPROBS_MODE:
            raise EngineFailed(
                f"{server.url}: its log-probs are {facts['logprobs_mode']}; start it with "
                f"--logprobs-mode {LOGPROBS_MODE}"
            )
        if facts["dtypes"] != [self.settings.dtype]:
            held = " and ".join(facts["dtypes"])
            raise EngineFailed(
                f"{server.url}: engine.dtype = {self.settings.dtype!r}, and its weights "
                f"are {held}; see its --dtype"
            )
        if facts["context_tokens"] < self.context_tokens:
            limit = facts["context_tokens"]
            raise EngineFailed(
                f"{server.url}: a context of {self.context_tokens} tokens is needed and "
                f"its --max-model-len is {limit}"
            )
        self.check_mark(server, facts)


class Gate:
    """A readers-writer lock: any number of replies, or one weight sync.

    A waiting weight sync goes before replies that come later.
    """

    def __init__(self) -> None:
        self.replies = 0
        self._hand_overs = 0
        """Waiting or in progress."""
        self._is_under_way = False
        self._waiting: list[asyncio.Future[None]] = []

    @asynccontextmanager
    async def reply(self) -> AsyncIterator[None]:
        await self._until(lambda: not self._hand_overs)
        self.replies += 1
        try:
            yield
        finally:
            self.replies -= 1
            self._changed()

    @asynccontextmanager
    async def hand_over(self) -> AsyncIterator[None]:
        self._hand_overs += 1
        try:
            await self._until(lambda: not self.replies and not self._is_under_way)
            self._is_under_way = True
            try:
                yield
            finally:
                self._is_under_way = False
        finally:
            self._hand_overs -= 1
            self._changed()

    async def _until(self, ready: Callable[[], bool]) -> None:
        """Wait for a condition. asyncio.Condition belongs to one event loop, and an engine may be
        used in several, one after another.
        """
        while not ready():
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            await future

    def _changed(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)


async def _all_done(calls: Iterable[Awaitable[str]]) -> list[str]:
    """The results of all calls; the first error is raised once all of them have ended."""
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return [str(outcome) for outcome in outcomes]
