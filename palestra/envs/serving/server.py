"""The environment server: wire v1 over HTTP and a stream of frames, with one way to answer a call
behind both.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Protocol

import msgspec
from aiohttp import WSCloseCode, web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from palestra.envs.serving.agentgym_routes import add_agentgym_routes
from palestra.envs.serving.catalogue import PAGE_TASKS, Catalogue
from palestra.envs.serving.connection_limits import (
    BoundedConnection,
    ConnectionLimiter,
    Limits,
    Runner,
    body_of,
)
from palestra.envs.serving.metrics import CallMetrics, Total
from palestra.envs.serving.openapi import ROUTES, Route, openapi
from palestra.envs.serving.request_auth import OPEN_PATHS, RequestAuth
from palestra.envs.serving.sessions import Sessions
from palestra.envs.serving.stream import Stream
from palestra.envs.serving.wire import (
    BATCH_CALLS,
    BODY_BYTES,
    STATUS,
    UNREADABLE,
    Answer,
    AnyCall,
    EnvList,
    Health,
    Open,
    WireError,
)

log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

RETRY_AFTER_S = 1
CLOSE_S = 2.0
"""The time limit for the client to confirm that a stream is closed."""
_calls = msgspec.json.Decoder(list[AnyCall])


class Peers(Protocol):
    """The other processes behind the same address."""

    async def answer(self, process: int, call: AnyCall, caller: str) -> Any: ...
    async def open_elsewhere(self, call: Open, caller: str) -> Any: ...
    async def metrics(self) -> list[list[Metric]]: ...


class Server(Collector):
    """One process of the server."""

    def __init__(
        self,
        catalogue: Catalogue,
        sessions: Sessions,
        guard: RequestAuth,
        *,
        peers: Peers | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.catalogue, self.sessions, self.guard, self.peers = catalogue, sessions, guard, peers
        self.limits = limits or Limits()
        self.gate = ConnectionLimiter(self.limits)
        self.call_metrics = CallMetrics()
        self.registry = CollectorRegistry()
        self.registry.register(self.call_metrics)
        self.registry.register(self)
        self.streams: set[Stream] = set()
        self._closing: set[asyncio.Task[None]] = set()

    def app(self) -> web.Application:
        app = web.Application(client_max_size=BODY_BYTES, middlewares=[self._outermost])
        for route in ROUTES:
            app.router.add_route(route.method, route.path, self._handler(route))
        add_agentgym_routes(app, self)
        app.on_startup.append(self._start)
        app.on_shutdown.append(self._stop)
        return app

    def runner(self, *, shutdown_timeout: float = 2.0) -> Runner:
        """The application behind the limits on connections."""
        return Runner(self.app(), self.gate, shutdown_timeout=shutdown_timeout)

    async def answer(self, call: AnyCall, caller: str, *, forward: bool = True) -> Any:
        """The result of any call from anywhere, or a `WireError`."""
        began, code = time.perf_counter(), "ok"
        try:
            if self.peers is None or not forward:
                return await self.sessions.answer(call, caller)
            return await self._answer_or_forward(call, caller, self.peers)
        except WireError as error:
            code = error.code
            raise
        except Exception as error:
            code = "internal"
            log.exception("failed", extra={"fields": {"call": type(call).__name__}})
            raise WireError("internal", "the server failed; its log says how") from error
        finally:
            seconds = time.perf_counter() - began
            self.call_metrics.add(str(type(call).__struct_config__.tag), code, seconds)

    async def _answer_or_forward(self, call: AnyCall, caller: str, peers: Peers) -> Any:
        if isinstance(call, Open):
            try:
                return await self.sessions.answer(call, caller)
            except WireError as error:
                if error.code != "busy":
                    raise
            return await peers.open_elsewhere(call, caller)
        process = call.session.partition(".")[0]
        if process == str(self.sessions.process):
            return await self.sessions.answer(call, caller)
        if not (process.isascii() and process.isdecimal() and len(process) < 5):
            raise WireError("not_found", "there is no such session")
        return await peers.answer(int(process), call, caller)

    async def answered(self, call: AnyCall, caller: str, *, forward: bool = True) -> Answer:
        """As `answer`, but returns an error as part of the answer."""
        try:
            return Answer(call.id, result=await self.answer(call, caller, forward=forward))
        except WireError as error:
            return Answer(call.id, error=error.error)

    # HTTP

    def _handler(self, route: Route) -> Handler:
        """The handler of a route, behind authentication."""
        special = {
            "batch": self._batch, "stream": self._stream, "envs": self._envs, "env": self._env,
            "tasks": self._tasks,
            "task": self._task, "health": self._health, "metrics": self._metrics,
            "openapi": self._openapi,
        }  # fmt: skip

        async def handle(request: web.Request) -> web.StreamResponse:
            caller = self.guard.admit(request)
            if route.call is not None:
                return await self._call(request, caller, route.call)
            return await special[route.name](request, caller)

        return handle

    @web.middleware
    async def _outermost(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Convert every exception to an error response."""
        try:
            if getattr(request.protocol, "is_crowded", False):
                return await self._crowded(request, handler)
            return await handler(request)
        except WireError as error:
            return error_response(error)
        except web.HTTPException as error:
            codes = {status: code for code, status in STATUS.items()}
            return error_response(WireError(codes.get(error.status, "bad_request"), error.reason))
        except Exception:
            # The route's pattern is logged, because the path contains the session's secret.
            resource = request.match_info.route.resource
            log.exception(
                "failed", extra={"fields": {"path": resource.canonical if resource else ""}}
            )
            return error_response(WireError("internal", "the server failed; its log says how"))

    async def _crowded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Over a connection beyond the limit, whose place the next one needs."""
        try:
            if request.path not in OPEN_PATHS:
                raise WireError("busy", self.gate.refusal)
            response = await handler(request)
        except WireError as error:
            response = error_response(error)
        response.force_close()
        return response

    async def _call(self, request: web.Request, caller: str, kind: Any) -> web.Response:
        body = await body_of(request, self.limits.body_s)
        try:
            fields = msgspec.json.decode(body, type=dict[str, Any]) if body else {}
            if not fields.keys().isdisjoint(("call", "session", "id")):
                raise WireError("bad_request", "call, session and id do not belong into the body")
            call = msgspec.convert({**fields, **request.match_info}, kind)
        except UNREADABLE as error:
            raise WireError("bad_request", str(error)) from None
        return json_response(await self.answer(call, caller))

    async def _batch(self, request: web.Request, caller: str) -> web.Response:
        try:
            calls = _calls.decode(await body_of(request, self.limits.body_s))
        except UNREADABLE as error:
            raise WireError("bad_request", str(error)) from None
        if len(calls) > BATCH_CALLS:
            raise WireError("too_large", f"at most {BATCH_CALLS} calls at once, not {len(calls)}")
        return json_response(await asyncio.gather(*(self.answered(call, caller) for call in calls)))

    async def _stream(self, request: web.Request, caller: str) -> web.StreamResponse:
        socket = web.WebSocketResponse(
            max_msg_size=BODY_BYTES, compress=False, autoping=False, timeout=CLOSE_S
        )
        if not socket.can_prepare(request):
            raise WireError("bad_request", "this address speaks WebSocket")
        await socket.prepare(request)
        forward = not self.guard.is_peer(request)
        connection = request.protocol if isinstance(request.protocol, BoundedConnection) else None
        stream = Stream(
            socket, lambda call: self.answered(call, caller, forward=forward), connection
        )
        self.streams.add(stream)
        try:
            await stream.run()
        except Exception:  # an answer in HTTP has no place in an open WebSocket
            log.exception("failed", extra={"fields": {"path": "/v1/stream"}})
            await socket.close(
                code=WSCloseCode.INTERNAL_ERROR, message=b"the server failed; its log says how"
            )
        finally:
            self.streams.discard(stream)
        return socket

    async def _envs(self, request: web.Request, caller: str) -> web.Response:
        total = await self._total(request)
        return json_response(
            EnvList(
                list(self.catalogue.about),
                int(total.value("palestra_capacity")),
                int(total.value("palestra_free")),
            )
        )

    async def _env(self, request: web.Request, caller: str) -> web.Response:
        return json_response(self.catalogue.describe(request.match_info["env"]))

    async def _tasks(self, request: web.Request, caller: str) -> web.Response:
        numbers = {
            "offset": request.query.get("offset", "0"),
            "limit": request.query.get("limit", str(PAGE_TASKS)),
        }
        for name, text in numbers.items():
            is_number = text.isascii() and text.isdecimal() and len(text) < 10
            if not is_number or (name == "limit" and int(text) == 0):
                raise WireError("bad_request", f"{name}: expected a number, got {text[:100]!r}")
        if "split" not in request.query:
            raise WireError("bad_request", "split: is required and not set")
        env, split = request.match_info["env"], request.query["split"]
        return json_response(
            self.catalogue.page(env, split, int(numbers["offset"]), int(numbers["limit"]))
        )

    async def _task(self, request: web.Request, caller: str) -> web.Response:
        if "id" not in request.query:
            raise WireError("bad_request", "id: is required and not set")
        return json_response(self.catalogue.task(request.match_info["env"], request.query["id"]))

    async def _health(self, request: web.Request, caller: str) -> web.Response:
        accepts = self.sessions.accepts_new
        return json_response(
            Health("ok" if accepts else "stopping", len(self.sessions)),
            status=200 if accepts else 503,
        )

    async def _metrics(self, request: web.Request, caller: str) -> web.Response:
        total = await self._total(request)
        return web.Response(body=total.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _total(self, request: web.Request) -> Total:
        """The metrics of this process, and of all others behind the address unless one of them
        asks.
        """
        others: list[list[Metric]] = []
        if self.peers is not None and not self.guard.is_peer(request):
            others = await self.peers.metrics()
        return Total([self.registry.collect(), *others])

    def collect(self) -> Iterator[Metric]:
        """What this process tells besides its calls."""
        table = self.sessions
        yield GaugeMetricFamily("palestra_sessions", "Open sessions.", len(table))
        yield GaugeMetricFamily("palestra_capacity", "Seats.", table.capacity)
        yield GaugeMetricFamily("palestra_free", "Seats that are free.", table.free)
        yield GaugeMetricFamily(
            "palestra_streams", "Open WebSocket connections.", len(self.streams)
        )
        yield CounterMetricFamily(
            "palestra_expired", "Sessions whose lease ran out.", table.expired_total
        )
        yield from self.gate.metrics()
        yield from self.catalogue.metrics()

    async def _openapi(self, request: web.Request, caller: str) -> web.Response:
        return json_response(openapi())

    # life

    async def _start(self, app: web.Application) -> None:
        self._sweeper = asyncio.create_task(self._sweep())

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(min(1.0, self.sessions.lease_s / 4, self.limits.headers_s / 4))
            try:
                self.gate.sweep(asyncio.get_running_loop().time())
                self._close_idle_streams()
                await self.sessions.sweep()
            except Exception:
                # The loop goes on: without sweeps, expired sessions would pile up.
                log.exception("sweep failed")

    def _close_idle_streams(self) -> None:
        """Close unused streams. Their clients open them again for the next call."""
        idle = [stream for stream in self.streams if stream.is_idle(self.limits.stream_idle_s)]
        for stream in idle:
            self.streams.discard(stream)
            task = asyncio.create_task(stream.close(1000, "no calls for a long time"))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def _stop(self, app: web.Application) -> None:
        self._sweeper.cancel()
        self.sessions.accepts_new = False
        closing = [asyncio.create_task(stream.close()) for stream in self.streams]
        if closing:  # together, and not longer for those who do not answer
            _, late = await asyncio.wait(closing, timeout=2 * CLOSE_S)
            for task in late:
                task.cancel()
        await self.sessions.close()
        await self.catalogue.close()

    async def drain(self, limit_s: float) -> None:
        """Refuse new sessions, and wait until the existing ones end or the limit is reached."""
        self.sessions.accepts_new = False
        until = time.monotonic() + limit_s
        while len(self.sessions) and time.monotonic() < until:
            await asyncio.sleep(0.05)


def json_response(value: Any, *, status: int = 200) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(value), status=status, content_type="application/json"
    )


def error_response(error: WireError) -> web.Response:
    status = STATUS[error.code]
    headers = {"Retry-After": str(RETRY_AFTER_S)} if status in (429, 503) else {}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    body = msgspec.json.encode({"error": error.error})
    return web.Response(body=body, status=status, content_type="application/json", headers=headers)
