"""What a pool and its worker processes say to each other: messages in msgpack, each behind its
length.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

LARGEST = 64 * 1024 * 1024
"""Bytes of one message."""
CHUNK = 256 * 1024
"""Bytes per read."""
_PREFIX = 4

_encoder = msgspec.msgpack.Encoder()


class Call(msgspec.Struct, array_like=True, gc=False):
    id: int
    instance: int
    """Which of the worker's environments is meant."""
    method: str
    argument: Any


class Answer(msgspec.Struct, array_like=True, gc=False):
    id: int
    seconds: float
    """The time spent in the environment."""
    error: str | None
    result: msgspec.Raw
    """Decoded by the caller, who knows its type."""


def framed(message: Any) -> bytes:
    body = _encoder.encode(message)
    if len(body) > LARGEST:
        raise ValueError(f"a message of {len(body)} bytes; at most {LARGEST} can be sent")
    return len(body).to_bytes(_PREFIX, "big") + body


class Frames:
    """Reassembles messages from arbitrary chunks."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        held = self._held
        held += data
        start = 0
        while len(held) - start >= _PREFIX:
            size = int.from_bytes(held[start : start + _PREFIX], "big")
            if size > LARGEST:
                raise ValueError(f"a message of {size} bytes")
            end = start + _PREFIX + size
            if len(held) < end:
                break
            yield bytes(held[start + _PREFIX : end])
            start = end
        del held[:start]
