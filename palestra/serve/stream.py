"""The server's end of a stream: frames of calls in, frames of answers out, each as soon as there are any."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import WSMsgType, web

from palestra.serve.wire import BATCH_CALLS, Answer, AnyCall, Error, frames

CALLS_IN_FLIGHT = 8 * BATCH_CALLS
UNSENT_BYTES = 64 * 1024 * 1024
"""Of one connection: beyond these, further frames wait in the socket until the client reads its answers."""

_decoder = msgspec.msgpack.Decoder(list[AnyCall])
_encoder = msgspec.msgpack.Encoder()


class Stream:
    """One WebSocket connection. A call that is under way goes on when the connection breaks: its answer is stored in the session."""

    def __init__(self, socket: web.WebSocketResponse, answer: Callable[[AnyCall], Awaitable[Answer]]) -> None:
        self._socket, self._answer = socket, answer
        self._running: set[asyncio.Task[None]] = set()
        self._answers: list[msgspec.Raw] = []
        self._unsent_bytes = 0
        self._something = asyncio.Event()

    async def run(self) -> None:
        self._writer = writer = asyncio.create_task(self._write())
        try:
            async for message in self._socket:
                if message.type is not WSMsgType.BINARY:
                    self._put(Answer(0, error=Error("bad_request", "frames are binary: an array of calls in MessagePack")))
                    continue
                await self._take(message.data)
        finally:
            writer.cancel()

    async def _take(self, frame: bytes) -> None:
        try:
            calls = _decoder.decode(frame)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return self._put(Answer(0, error=Error("bad_request", str(error))))
        if len(calls) > BATCH_CALLS:
            return self._put(Answer(0, error=Error("too_large", f"at most {BATCH_CALLS} calls in a frame, not {len(calls)}")))
        for call in calls:
            task = asyncio.create_task(self._one(call))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        await asyncio.sleep(0)  # frames that have arrived already would all be taken before the first call begins
        while (len(self._running) > CALLS_IN_FLIGHT or self._unsent_bytes > UNSENT_BYTES) and not self._writer.done():
            await asyncio.sleep(0.01)
        return None

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

    async def close(self) -> None:
        await self._socket.close(code=1001, message=b"the server is being stopped")
