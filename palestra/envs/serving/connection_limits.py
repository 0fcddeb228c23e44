"""Connections that come in: how many there may be, how long each may take, and bodies that are read
within bounds.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import IPv6Address
from typing import Any

import msgspec
import psutil
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestPayloadError
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from palestra.envs.serving.wire import BODY_BYTES, LONGEST_LEASE_S, WireError

log = logging.getLogger(__name__)

LANE = 16
"""Connections beyond the limit that are kept open for a moment: they are answered at /health, and
refused elsewhere.
"""
LANE_S = 2.0
"""For their headers."""
STUCK_S = 120.0
"""A client that reads nothing of its answers for so long is cut off."""
OWN_DESCRIPTORS = 64
"""Kept for /health, workers, logs and files, beside a quarter of all descriptors."""


class Limits(msgspec.Struct, frozen=True):
    """What one process of the server puts up with."""

    connections: int = 4096
    """At most so many at a time, or as many as the limit on open files allows."""
    per_client: int = 0
    """Of one address; 0 is half of all."""
    headers_s: float = 10.0
    """For the headers of a request, from its first byte or from the beginning of the connection."""
    body_s: float = 30.0
    """For the body of a request, or a frame of a stream, from its first byte."""
    idle_s: float = 75.0
    """Between two requests of a connection."""
    stream_idle_s: float = 600.0
    """Of a stream without a call."""
    seats_per_token: int = 0
    """Sessions of one token in all processes; 0 is all seats where there is one token, and half of
    them where there are several.
    """
    longest_lease_s: float = LONGEST_LEASE_S
    """A client that asks for a longer lease gets this one."""


class BoundedConnection(web.RequestHandler):
    """One connection, watched: it says since when it owes the rest of a header or of a frame."""

    __slots__ = (
        "address",
        "frame_since",
        "gate",
        "header_since",
        "is_crowded",
        "is_stream",
        "stuck_bytes",
        "stuck_since",
    )

    def __init__(self, manager: web.Server, gate: ConnectionLimiter, **settings: Any) -> None:
        super().__init__(manager, **settings)
        self.gate = gate
        self.address = ""
        self.is_crowded = self.is_stream = False
        self.header_since = self.frame_since = self.stuck_since = 0.0
        self.stuck_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.address = _address(transport.get_extra_info("peername"))
        self.header_since = self._loop.time()
        self.gate.arrive(self)

    def connection_lost(self, error: BaseException | None) -> None:
        self.gate.leave(self)
        super().connection_lost(error)

    def data_received(self, data: bytes) -> None:
        if self.is_stream:
            if not self.frame_since:
                self.frame_since = self._loop.time()
            super().data_received(data)
            return
        requests, is_waiting = (
            self._request_count,
            self._waiter is not None and not self._waiter.done(),
        )
        super().data_received(data)
        if self._request_count != requests:
            self.header_since = 0.0
        elif is_waiting and not self.header_since:
            self.header_since = self._loop.time()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """What is no HTTP may have a token in it: neither the log nor the answer shows it."""
        if status < 500:
            log.info(
                "bad request",
                extra={"fields": {"client": self.address, "problem": type(exc).__name__}},
            )
        else:
            log.error("failed", exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("an answer has begun already")
        code, said = (
            ("bad_request", "the request is not HTTP")
            if status < 500
            else ("internal", "the server failed; its log says how")
        )
        body = msgspec.json.encode({"error": {"code": code, "message": said}})
        response = web.Response(body=body, status=status, content_type="application/json")
        response.force_close()
        return response

    def cut_off(self) -> None:
        """Now, whatever is under way."""
        transport = self.transport
        self.force_close()
        if transport is not None:
            transport.abort()

    def is_late(self, now: float, limits: Limits) -> bool:
        if self.is_stream:
            return bool(self.frame_since) and now - self.frame_since > limits.body_s
        headers_s = min(LANE_S, limits.headers_s) if self.is_crowded else limits.headers_s
        return bool(self.header_since) and now - self.header_since > headers_s

    def is_stuck(self, now: float) -> bool:
        """Whether the client has stopped reading."""
        unsent = self.transport.get_write_buffer_size() if self.transport is not None else 0
        if not unsent or unsent != self.stuck_bytes:
            self.stuck_bytes, self.stuck_since = unsent, now
        return now - self.stuck_since > STUCK_S


class ConnectionLimiter:
    """All connections of a process, by the address that they come from.

    Those of other processes of this server are not counted.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.most = limits.connections
        self.refused_total = self.late_total = 0
        self._held: set[BoundedConnection] = set()
        self._of_address: Counter[str] = Counter()
        self._lane: dict[BoundedConnection, None] = {}
        """In the order in which they came."""

    def __len__(self) -> int:
        return len(self._held)

    @property
    def most_per_client(self) -> int:
        return self.limits.per_client or max(1, self.most // 2)

    def fit_to_descriptors(self) -> None:
        """Ask for as many descriptors as are needed, and take no more connections than there are
        descriptors for.
        """
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = self.limits.connections * 4 // 3 + 2 * OWN_DESCRIPTORS
        if soft != resource.RLIM_INFINITY and soft < wanted:
            soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            with suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY:
            self.most = min(
                self.limits.connections,
                max(1, soft - psutil.Process().num_fds() - max(OWN_DESCRIPTORS, soft // 4)),
            )

    def arrive(self, one: BoundedConnection) -> None:
        if not one.address:  # another process of this server, over a socket in its own folder
            return
        if len(self._held) < self.most and self._of_address[one.address] < self.most_per_client:
            self._held.add(one)
            self._of_address[one.address] += 1
            return
        one.is_crowded = True
        self.refused_total += 1
        self._lane[one] = None
        if len(self._lane) > LANE:  # the newest may ask /health; the oldest has had its moment
            oldest = next(iter(self._lane))
            del self._lane[oldest]
            oldest.cut_off()

    def leave(self, one: BoundedConnection) -> None:
        self._lane.pop(one, None)
        if one in self._held:
            self._held.discard(one)
            self._of_address[one.address] -= 1
            if not self._of_address[one.address]:
                del self._of_address[one.address]

    @property
    def refusal(self) -> str:
        return (
            f"at most {self.most} connections, and {self.most_per_client} of one address; "
            "come back later"
        )

    def sweep(self, now: float) -> None:
        """Cut off those that take too long."""
        for one in [
            one
            for one in (*self._held, *self._lane)
            if one.is_late(now, self.limits) or one.is_stuck(now)
        ]:
            self.late_total += 1
            one.cut_off()

    def metrics(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "palestra_connections", "Open connections, within the limit.", len(self)
        )
        yield CounterMetricFamily(
            "palestra_connections_refused",
            "Connections beyond the limit, answered at /health alone.",
            self.refused_total,
        )
        yield CounterMetricFamily(
            "palestra_connections_late",
            "Connections that were cut off because they took too long.",
            self.late_total,
        )


class Runner(web.AppRunner):
    """Runs an application whose connections go through a gate."""

    __slots__ = ("_gate",)

    def __init__(
        self, app: web.Application, gate: ConnectionLimiter, *, shutdown_timeout: float
    ) -> None:
        super().__init__(app, access_log=None, shutdown_timeout=shutdown_timeout)
        self._gate = gate

    async def _make_server(self) -> web.Server:
        made = await super()._make_server()
        return _GatedServer(made, self._gate)


class _GatedServer(web.Server):
    def __init__(self, made: web.Server, gate: ConnectionLimiter) -> None:
        super().__init__(made.request_handler, request_factory=made.request_factory)
        self._gate = gate

    def __call__(self) -> BoundedConnection:
        idle_s = self._gate.limits.idle_s
        loop = asyncio.get_running_loop()
        return BoundedConnection(
            self,
            self._gate,
            loop=loop,
            access_log=None,
            keepalive_timeout=idle_s,
            auto_decompress=False,
        )


# bodies


async def body_of(request: web.BaseRequest, limit_s: float) -> bytes:
    """The whole body, decompressed, within bounds on time and size.

    Raises WireError, or what aiohttp raises for one that is too large.
    """
    try:
        if request.content.is_eof():
            body = await request.read()
        else:
            async with asyncio.timeout(limit_s):
                body = await request.read()
    except TimeoutError:
        raise WireError("too_slow", f"the body did not arrive within {limit_s:g} s") from None
    except (RequestPayloadError, HttpProcessingError):
        raise WireError("bad_request", "the body is not what its headers say") from None
    encoding = request.headers.get("Content-Encoding", "").strip().lower()
    return body if encoding in ("", "identity") else _decompressed(body, encoding)


def _decompressed(body: bytes, encoding: str) -> bytes:
    if encoding not in ("gzip", "deflate"):
        raise WireError(
            "bad_request", f"Content-Encoding: expected gzip or deflate, came {encoding[:20]!r}"
        )
    # 32: the wrapping of zlib or gzip, whichever it is; some clients send deflate without any
    is_raw = encoding == "deflate" and (not body or body[0] & 0x0F != 8)
    stream = zlib.decompressobj(-zlib.MAX_WBITS if is_raw else 32 + zlib.MAX_WBITS)
    try:
        whole = stream.decompress(body, BODY_BYTES + 1)
    except zlib.error:
        raise WireError("bad_request", f"the body is not {encoding}") from None
    if len(whole) > BODY_BYTES:
        raise WireError(
            "too_large", f"the body has more than {BODY_BYTES} bytes when it is decompressed"
        )
    if not stream.eof or stream.unused_data:
        raise WireError(
            "bad_request",
            f"the body is not {encoding}: it ends too early, or goes on behind its end",
        )
    return whole


def _address(peer: Any) -> str:
    """Of the client; nothing where it has none.

    All addresses of one IPv6 network are one client.
    """
    if not isinstance(peer, tuple) or not peer:
        return ""
    host = str(peer[0]).partition("%")[0]
    if ":" not in host:
        return host
    try:
        address = IPv6Address(host)
    except ValueError:
        return host
    return str(address.ipv4_mapped or IPv6Address(int(address) >> 64 << 64))
