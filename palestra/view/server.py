"""The viewer's server: the page, its data, and events for changes.

It only reads, except for the routes of `palestra play`.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from palestra.core.untrusted import valid_utf8
from palestra.envs.serving.request_auth import RequestAuth, bearer_token
from palestra.envs.serving.wire import STATUS, WireError
from palestra.view.answers import Answers, Pulse
from palestra.view.index import NotThere

log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

PAGE = Path(__file__).parent / "page"
POLL_S = 1.0
HEARTBEAT_S = 15.0
THREADS = 16
"""Answers computed at the same time. An objective takes seconds, and others must not wait for it.
"""
EVENTS_WAITING = 1000
"""A page with more unread events is taken for closed."""
THE_END = b""
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action "
        "'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def make_app(
    answers: Answers,
    *,
    tokens: tuple[str, ...] = (),
    hosts: tuple[str, ...] = (),
    play: Callable[[web.Application], None] | None = None,
    page: Path = PAGE,
) -> web.Application:
    """`hosts`: names that requests may use for the server, besides the machine's own.

    `play`: adds its routes under /api/play/.
    """
    site = Site(answers, ViewerAuth(tokens, hosts), page)
    app = web.Application(middlewares=[site.outermost])
    site.add_routes(app)
    if play is not None:
        play(app)
    return app


class ViewerAuth:
    """Admits requests with a token (in a header, a cookie, or the address), and none from pages of
    other sites.
    """

    def __init__(self, tokens: tuple[str, ...], hosts: tuple[str, ...]) -> None:
        self.tokens = tokens
        self.request_auth = RequestAuth(hosts=hosts)
        self.cookie = f"palestra-{hashlib.sha256(' '.join(tokens).encode()).hexdigest()[:8]}"
        """A name of its own for each server, since servers on other ports share the cookies."""

    def check(self, request: web.Request) -> None:
        self.request_auth.admit(request)
        if request.path.startswith("/api/play/") and request.method == "POST":
            # A page of another site can send neither without the permission of this server (CORS).
            is_json = request.content_type == "application/json"
            if not is_json or request.headers.get("X-Palestra") != "1":
                raise WireError("forbidden", "play is asked with JSON and the header X-Palestra: 1")
        elif request.method not in ("GET", "HEAD"):
            raise web.HTTPMethodNotAllowed(request.method, ["GET", "HEAD"])
        given = (
            bearer_token(request),
            request.cookies.get(self.cookie, ""),
            request.query.get("token", ""),
        )
        if self.tokens and not any(self.knows(text) for text in given):
            raise WireError("unauthorized", "open the page with ?token=TOKEN once")

    def knows(self, given: str) -> bool:
        content = given.encode(errors="replace")
        return any(hmac.compare_digest(content, token.encode()) for token in self.tokens)

    def remember(self, request: web.Request, response: web.StreamResponse) -> None:
        """Set a cookie with the token that came in the address.

        The answer is not a redirect: after a link from another site, a browser would not send a
        strict cookie with the redirected request.
        """
        given = request.query.get("token", "")
        if self.knows(given):
            response.set_cookie(self.cookie, given, httponly=True, samesite="Strict", path="/")


class Site:
    """The routes."""

    def __init__(self, answers: Answers, auth: ViewerAuth, page: Path) -> None:
        self.answers, self.auth, self.page = answers, auth, page
        self.listeners: set[asyncio.Queue[bytes]] = set()
        self.last: dict[str, Pulse] = {}

    def add_routes(self, app: web.Application) -> None:
        run = "/api/runs/{run}"
        routes: dict[str, Callable[[web.Request], dict[str, Any]]] = {
            "/api/runs.json": lambda r: self.answers.runs(),
            f"{run}/run.json": lambda r: self.answers.run(r.match_info["run"]),
            f"{run}/objective.json": lambda r: self.answers.objective(r.match_info["run"]),
            f"{run}/episodes.json": lambda r: self.answers.episodes(
                r.match_info["run"], _number(r.query.get("from", "0"))
            ),
            f"{run}/search.json": lambda r: self.answers.search(
                r.match_info["run"], r.query.get("q", "")
            ),
            f"{run}/texts.json": lambda r: self.answers.texts(r.match_info["run"]),
            f"{run}/episodes/{{file}}/{{line}}.json": lambda r: self.answers.episode(*_episode(r)),
            f"{run}/scenes/{{file}}/{{line}}.json": lambda r: self.answers.scenes(*_episode(r)),
        }
        for path, answer in routes.items():
            app.router.add_get(path, _json(answer))
        app.router.add_get("/api/events", self._events, allow_head=False)
        app.router.add_get("/", self._file)
        for file in self.page.rglob("*.*"):
            app.router.add_get(f"/{file.relative_to(self.page).as_posix()}", self._file)
        app.on_response_prepare.append(self._add_headers)
        app.cleanup_ctx.append(self._watching)
        app.on_shutdown.append(self._end_events)

    @web.middleware
    async def outermost(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Around every request: authenticates it, and turns any error into one line of JSON."""
        try:
            self.auth.check(request)
            response = await handler(request)
            if not response.prepared:  # the headers of a stream of events are sent already
                self.auth.remember(request, response)
            return response
        except WireError as error:
            return _error(STATUS.get(error.code, 400), error.message)
        except NotThere as error:
            return _error(404, str(error))
        except web.HTTPException as error:
            return _error(error.status, error.reason)
        except Exception:
            log.exception("%s failed", request.path)
            return _error(500, "the server failed; its log says how")

    async def _add_headers(self, request: web.Request, response: web.StreamResponse) -> None:
        response.headers.update(HEADERS)

    async def _file(self, request: web.Request) -> web.StreamResponse:
        return web.FileResponse(self.page / (request.path.lstrip("/") or "index.html"))

    # changes

    async def _watching(self, app: web.Application) -> Any:
        watch = asyncio.create_task(self._watch())
        yield
        watch.cancel()
        self.answers.close()

    async def _watch(self) -> None:
        while True:
            try:
                now = await asyncio.to_thread(self.answers.pulse)
                before, self.last = self.last, now
                for id, pulse in now.items():
                    earlier = before.get(id)
                    if pulse != earlier:
                        rewound = earlier is not None and pulse.is_rewound_from(earlier)
                        self._tell(_event(id, pulse, rewound=rewound))
            except Exception:
                log.exception("looking for changes failed; trying again")
            await asyncio.sleep(POLL_S)

    def _tell(self, event: bytes) -> None:
        for listener in list(self.listeners):
            if listener.qsize() < EVENTS_WAITING:
                listener.put_nowait(event)

    async def _end_events(self, app: web.Application) -> None:
        self._tell(THE_END)

    async def _events(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        listener: asyncio.Queue[bytes] = asyncio.Queue()
        self.listeners.add(listener)
        try:
            with suppress(ConnectionResetError):  # the page was closed
                for id, pulse in self.last.items():
                    await response.write(_event(id, pulse, rewound=False))
                while (event := await self._next_event(listener)) != THE_END:
                    await response.write(event)
        finally:
            self.listeners.discard(listener)
        return response

    async def _next_event(self, listener: asyncio.Queue[bytes]) -> bytes:
        try:
            return await asyncio.wait_for(listener.get(), HEARTBEAT_S)
        except TimeoutError:
            return b": still here\n\n"


def _event(id: str, pulse: Pulse, *, rewound: bool) -> bytes:
    data = {"run": id, **pulse._asdict(), "rewound": rewound}
    return b"event: change\ndata: " + msgspec.json.encode(data) + b"\n\n"


def _json(answer: Callable[[web.Request], dict[str, Any]]) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        body = await asyncio.to_thread(lambda: msgspec.json.encode(answer(request)))
        return web.Response(body=body, content_type="application/json")

    return handle


def _error(status: int, message: str) -> web.Response:
    return web.Response(
        body=msgspec.json.encode({"error": valid_utf8(message)}),
        status=status,
        content_type="application/json",
    )


def _episode(request: web.Request) -> tuple[str, str, int]:
    return (
        request.match_info["run"],
        request.match_info["file"],
        _number(request.match_info["line"]),
    )


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise web.HTTPBadRequest(reason=f"expected a number, got {text[:40]!r}")
    return int(text)


async def serve(
    app: web.Application, host: str, port: int, on_ready: Callable[[int], None]
) -> None:
    """Serve until interrupted. `on_ready` gets the port. Raises OSError if it cannot listen."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS))
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        on_ready(runner.addresses[0][1])
        await asyncio.Event().wait()
    finally:
        with suppress(asyncio.CancelledError):
            await runner.cleanup()
