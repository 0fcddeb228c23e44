"""The server's end of a stream: frames of calls in, frames of answers out, each as soon as there
are any.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from aiohttp import WSMessage, WSMsgType, web

from palestra.envs.serving.wire import BATCH_CALLS, UNREADABLE, Answer, AnyCall, Error, frames

CALLS_IN_FLIGHT = 8 * BATCH_CALLS
UNSENT_BYTES = 64 * 1024 * 1024
"""The limit of unsent answers per connection. Beyond it, further frames wait in the socket until
the client reads.
"""

ENDS = (WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED, WSMsgType.ERROR)

_decoder = msgspec.msgpack.Decoder(list[AnyCall])
_encoder = msgspec.msgpack.Encoder()


class Stream:
    """One WebSocket connection.

    A pending call continues if the connection breaks: its answer is stored in the session.
    """

    def __init__(
        self,
        socket: web.WebSocketResponse,
        answer: Callable[[AnyCall], Awaitable[Answer]],
        connection: Any = None,
    ) -> None:
        """`connection`: is notified when a frame is complete, so that no timeout runs until the
        next one begins.
        """
        self._socket, self._answer, self._connection = socket, answer, connection
        self._used = time.monotonic()
        """When the last frame of calls came."""
        self._running: set[asyncio.Task[None]] = set()
        self._answers: list[msgspec.Raw] = []
        self._unsent_bytes = 0
        self._something = asyncio.Event()

    async def run(self) -> None:
        self._writer = writer = asyncio.create_task(self._write())
        try:
            while (message := await self._received()).type not in ENDS:
                if message.type is WSMsgType.BINARY:
                    await self._take(message.data)
                elif message.type is WSMsgType.PING:
                    await self._socket.pong(message.data)
                elif message.type is not WSMsgType.PONG:
                    self._refuse(
                        "bad_request", "frames are binary: an array of calls in MessagePack"
                    )
        except ConnectionError:
            return  # the client is gone
        finally:
            writer.cancel()

    async def _received(self) -> WSMessage:
        """The next frame.

        No timeout applies while the server itself does not read because too many calls are pending.
        """
        if self._connection is not None:
            self._connection.is_stream, self._connection.frame_since = True, 0.0
        message = await self._socket.receive()
        if self._connection is not None:
            self._connection.is_stream = False
        return message

    def is_idle(self, limit_s: float) -> bool:
        """Whether the client has neither sent a call for so long nor waits for an answer."""
        return (
            not self._running and not self._unsent_bytes and time.monotonic() - self._used > limit_s
        )

    async def _take(self, frame: bytes) -> None:
        self._used = time.monotonic()
        try:
            calls = _decoder.decode(frame)
        except UNREADABLE as error:
            return self._refuse("bad_request", str(error))
        if len(calls) > BATCH_CALLS:
            return self._refuse(
                "too_large", f"at most {BATCH_CALLS} calls in a frame, not {len(calls)}"
            )
        for call in calls:
            task = asyncio.create_task(self._one(call))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        # Let the calls start: otherwise all frames that have arrived are read first.
        await asyncio.sleep(0)
        while (
            len(self._running) > CALLS_IN_FLIGHT or self._unsent_bytes > UNSENT_BYTES
        ) and not self._writer.done():
            await asyncio.sleep(0.01)
        return None

    def _refuse(self, code: str, message: str) -> None:
        """Answer a whole frame, whose calls have no ids, with an error."""
        self._put(Answer(0, error=Error(code, message)))

    async def _one(self, call: AnyCall) -> None:
        self._put(await self._answer(call))

    def _put(self, answer: Answer) -> None:
        encoded = _encoder.encode(answer)
        self._unsent_bytes += len(encoded)
        self._answers.append(msgspec.Raw(encoded))
        self._something.set()

    async def _write(self) -> None:
        """All answers that are ready go out together."""
        while True:
            await self._something.wait()
            self._something.clear()
            answers, self._answers = self._answers, []
            for frame in frames(answers):
                try:
                    await self._socket.send_bytes(frame)
                except ConnectionError:
                    return
                self._unsent_bytes = max(0, self._unsent_bytes - len(frame))

    async def close(self, code: int = 1001, message: str = "the server is being stopped") -> None:
        await self._socket.close(code=code, message=message.encode())
