"""One WebSocket to a server, shared by all its sessions: calls are batched, and repeated after the
connection broke.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import aiohttp
import msgspec

from palestra.core.credentials import how_to_give_token
from palestra.envs.serving.handles import EnvFault, EnvTimeout
from palestra.envs.serving.wire import (
    ANSWER_BYTES,
    BODY_BYTES,
    UNREADABLE,
    AnyCall,
    Error,
    RawAnswer,
    frames,
)

log = logging.getLogger(__name__)

RECONNECT_S = 30.0
"""How long a server may be unreachable before calls to it fail."""
HEARTBEAT_S = 20.0
HANDSHAKE_S = 10.0
FINAL = {400: "bad_request", 401: "unauthorized", 403: "forbidden", 404: "not_found"}
"""Permanent refusals of the connection."""

_answers = msgspec.msgpack.Decoder(list[RawAnswer])


class _Redirected(Exception):
    """The server redirected us. The token must not be sent to another server."""


async def _refuse_redirect(
    session: aiohttp.ClientSession, context: Any, told: aiohttp.TraceRequestRedirectParams
) -> None:
    raise _Redirected(
        f"redirects (HTTP {told.response.status}), which is not followed; give the URL of "
        "the server itself"
    )


class Connection:
    """Opened by the first call, and opened again by any call that finds it broken.

    An unanswered call is sent again over the next connection. Its key prevents the server from
    executing it twice.
    """

    def __init__(
        self,
        address: str,
        *,
        headers: dict[str, str] | None = None,
        unix_path: str | None = None,
        reconnect_s: float = RECONNECT_S,
    ) -> None:
        self.address, self.reconnect_s = address, reconnect_s
        self._headers, self._unix_path = headers or {}, unix_path
        self._loop: asyncio.AbstractEventLoop | None = None
        self._runner: asyncio.Task[None] | None = None
        self._waiting: dict[int, tuple[msgspec.Raw, asyncio.Future[RawAnswer]]] = {}
        """Calls without an answer, by id and in order."""
        self._unsent: list[msgspec.Raw] = []
        self._something = asyncio.Event()
        self._last_id = 0
        self._is_up = self._heard = False

    async def call(
        self, call: AnyCall, kind: Any, *, timeout_s: float, away_s: float | None = None
    ) -> Any:
        """The result. Raises WireError for a refusal, EnvTimeout without an answer, and EnvFault if
        the server stays unreachable.

        `away_s`: how long it may be unreachable, if less than `reconnect_s`.
        """
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # a run may go through several event loops, one after the other
            self._loop, self._runner = loop, None
            self._waiting, self._unsent = {}, []
            self._something = asyncio.Event()
        self._last_id += 1
        call.id = self._last_id
        encoded = msgspec.Raw(self._encode(call))
        future: asyncio.Future[RawAnswer] = loop.create_future()
        self._waiting[call.id] = (encoded, future)
        self._unsent.append(encoded)
        self._something.set()
        if away_s is not None:
            loop.call_later(away_s, self._give_up_unless_up, future)
        if self._runner is None or self._runner.done():
            self._runner = loop.create_task(self._run())
        try:
            async with asyncio.timeout(timeout_s):
                answer = await future
        except TimeoutError:
            raise EnvTimeout(f"{self.address} gave no answer within {timeout_s:g} s") from None
        finally:
            self._waiting.pop(call.id, None)
        if answer.error is not None:
            raise answer.error.exception
        try:
            return msgspec.msgpack.decode(answer.result, type=kind)
        except UNREADABLE as error:
            raise EnvFault(f"{self.address} gave a wrong answer: {error}") from error

    def _encode(self, call: AnyCall) -> bytes:
        try:
            encoded = msgspec.msgpack.encode(call)
        except UnicodeEncodeError as error:
            raise EnvFault(f"the call cannot be written: {error}") from error
        if len(encoded) > BODY_BYTES - 16:
            raise EnvFault(
                f"the call has {len(encoded)} bytes; a server takes at most {BODY_BYTES}"
            )
        return encoded

    async def close(self) -> None:
        # Cleared before the first await: a call made while this one is closing starts a new runner.
        runner, self._runner = self._runner, None
        if runner is not None and self._loop is asyncio.get_running_loop():
            self._give_up(f"the connection to {self.address} was closed")
            runner.cancel()
            await asyncio.wait([runner])

    async def _run(self) -> None:
        """Connect, and again while anybody waits for an answer."""
        loop = asyncio.get_running_loop()
        connector = aiohttp.UnixConnector(self._unix_path) if self._unix_path else None
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5.0, sock_read=HANDSHAKE_S)
        tracing = aiohttp.TraceConfig()
        tracing.on_request_redirect.append(_refuse_redirect)
        async with aiohttp.ClientSession(
            headers=self._headers, connector=connector, timeout=timeout, trace_configs=[tracing]
        ) as http:
            gone_since, delay = loop.time(), 0.02
            while True:
                self._heard, began = False, loop.time()
                trouble = await self._connect(http)
                if isinstance(trouble, Error):
                    break
                # The server was up: it sent something, or it answered heartbeats for this long.
                if self._heard or loop.time() - began > HEARTBEAT_S:
                    gone_since, delay = loop.time(), 0.02
                if not self._waiting:
                    break
                if loop.time() - gone_since > self.reconnect_s:
                    trouble = f"{self.address} has been gone for {self.reconnect_s:g} s: {trouble}"
                    break
                await asyncio.sleep(delay)
                delay = min(2 * delay, 1.0)
            # Cleared before the HTTP session closes: a call made meanwhile starts a new runner.
            self._runner = None
            self._give_up(trouble)

    def _give_up_unless_up(self, future: asyncio.Future[RawAnswer]) -> None:
        if not self._is_up and not future.done():
            future.set_exception(EnvFault(f"{self.address} cannot be reached"))

    def _give_up(self, trouble: Error | str) -> None:
        """Fail every waiting call with an exception of its own: a refusal, or a fault."""
        for _, future in self._waiting.values():
            if future.done():
                continue
            if isinstance(trouble, str):
                future.set_exception(EnvFault(trouble))
            else:
                future.set_exception(trouble.exception)

    async def _connect(self, http: aiohttp.ClientSession) -> Error | str:
        """Run one connection until it breaks. Returns why: an Error for a permanent refusal."""
        try:
            async with http.ws_connect(
                self.address + "/v1/stream",
                heartbeat=HEARTBEAT_S,
                max_msg_size=2 * ANSWER_BYTES,
                compress=0,
            ) as socket:
                await self._talk(socket)
                return "the connection was closed"
        except _Redirected as error:
            return Error("not_found", f"{self.address} {error}")
        except aiohttp.WSServerHandshakeError as error:
            if error.status == 401:
                return Error(
                    FINAL[401], f"{self.address} needs a token; {how_to_give_token(self.address)}"
                )
            if error.status in FINAL:
                return Error(
                    FINAL[error.status], f"{self.address} refuses the connection: {error.message}"
                )
            return f"HTTP {error.status}"
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            return str(error) or type(error).__name__

    async def _talk(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._is_up, self._unsent = True, [encoded for encoded, _ in self._waiting.values()]
        self._something.set()
        writer = asyncio.create_task(self._write(socket))
        try:
            async for message in socket:
                if message.type is aiohttp.WSMsgType.BINARY:
                    self._take(message.data)
        finally:
            self._is_up = False
            writer.cancel()

    def _take(self, frame: bytes) -> None:
        self._heard = True
        try:
            answers = _answers.decode(frame)
        except UNREADABLE as error:
            return self._give_up(f"{self.address} does not speak wire v1: {error}")
        for answer in answers:
            if answer.id == 0 and answer.error is not None:  # it is about a whole frame
                self._give_up(answer.error)
            _, future = self._waiting.get(answer.id, (None, None))
            if future is not None and not future.done():
                future.set_result(answer)
        return None

    async def _write(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        while True:
            await self._something.wait()
            self._something.clear()
            unsent, self._unsent = self._unsent, []
            for frame in frames(unsent):
                try:
                    await socket.send_bytes(frame)
                except ConnectionError:
                    return  # what was lost is sent again over the next connection
