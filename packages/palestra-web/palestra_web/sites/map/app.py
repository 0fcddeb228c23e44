"""The map as a WSGI application over the file of an instance."""

import re
import secrets
import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import account, pages, store
from .html import page
from .request import COOKIE, Request, read
from .seed import hashed


@dataclass(frozen=True)
class Reply:
    body: bytes = b""
    status: str = "200 OK"
    headers: tuple[tuple[str, str], ...] = ()


def redirect(to: str, cookie: str | None = None) -> Reply:
    headers = [("Location", to)]
    if cookie is not None:
        headers.append(("Set-Cookie", f"{COOKIE}={cookie}; Path=/; HttpOnly; SameSite=Lax"))
    return Reply(status="303 See Other", headers=tuple(headers))


def application(
    file: Path, environ: dict[str, Any], start_response: Callable[[str, list[tuple[str, str]]], Any]
) -> Iterable[bytes]:
    with store.opened(file) as base:
        reply = respond(read(environ, base))
    headers = [
        ("Content-Type", "text/html; charset=utf-8"),
        ("Content-Length", str(len(reply.body))),
        ("Cache-Control", "no-store"),
    ]
    start_response(reply.status, [*headers, *reply.headers])
    return [reply.body]


def login(file: Path, user: str) -> dict[str, str]:
    """The cookies of a new session, without the form."""
    with store.opened(file) as base:
        row = base.execute("SELECT id FROM user WHERE login = ?", (user,)).fetchone()
        if row is None:
            raise LookupError(f"no user {user!r} on the map")
        return {COOKIE: _session(base, row["id"])}


def respond(request: Request) -> Reply:
    """The first matching route. Personal pages redirect visitors to the login form."""
    for pattern, post, private, view in ROUTES:
        match = re.fullmatch(pattern, request.path)
        if match is None or request.post != post:
            continue
        if private and request.user is None:
            return redirect("/login")
        request.arguments = match.groups()
        return view(request)
    return missing(request)


def missing(request: Request) -> Reply:
    return Reply(
        page("Page not found", "<p>There is no such page.</p>", request.user), "404 Not Found"
    )


def shown(view: Callable[[Request], tuple[str, str] | None]) -> Callable[[Request], Reply]:
    """A page from a function that returns its title and body, or None for a page not found."""

    def reply(request: Request) -> Reply:
        result = view(request)
        if result is None:
            return missing(request)
        return Reply(page(*result, request.user, request.values.get("notice", "")))

    return reply


def changed(view: Callable[[Request], str]) -> Callable[[Request], Reply]:
    """Apply a change and redirect to the URL that it returns."""
    return lambda request: redirect(view(request))


def log_in(request: Request) -> Reply:
    name, password = request.values.get("login", "").strip(), request.values.get("password", "")
    row = request.base.execute(
        "SELECT id FROM user WHERE login = ? AND password = ?", (name, hashed(password, name))
    ).fetchone()
    if row is None:
        return Reply(
            page(
                *pages.login_form(request), None, "That user name and password do not fit together."
            )
        )
    return redirect("/lists", _session(request.base, row["id"]))


def log_out(request: Request) -> Reply:
    request.base.execute("DELETE FROM user_session WHERE token = ?", (request.token,))
    return redirect("/", "")


def _session(base: sqlite3.Connection, user_id: int) -> str:
    token = secrets.token_hex(16)
    base.execute("INSERT INTO user_session VALUES (?, ?)", (token, user_id))
    return token


ROUTES: tuple[tuple[str, bool, bool, Callable[[Request], Reply]], ...] = (
    # path, POST, only for users, view
    ("/", False, False, shown(pages.home)),
    ("/search", False, False, shown(pages.search)),
    (r"/place/(\d+)", False, False, shown(pages.place)),
    (r"/place/(\d+)/nearby", False, False, shown(pages.nearby)),
    ("/route", False, False, shown(pages.route)),
    ("/countries", False, False, shown(pages.countries)),
    (r"/country/([A-Z]{2})", False, False, shown(pages.country)),
    ("/login", False, False, shown(pages.login_form)),
    ("/login", True, False, log_in),
    ("/logout", True, False, log_out),
    ("/lists", False, True, shown(account.lists)),
    ("/lists", True, True, changed(account.add_list)),
    (r"/list/(\d+)", False, True, shown(account.own_list)),
    (r"/list/(\d+)/rename", True, True, changed(account.rename_list)),
    (r"/list/(\d+)/delete", True, True, changed(account.delete_list)),
    (r"/item/(\d+)/remove", True, True, changed(account.remove_item)),
    (r"/item/(\d+)/note", True, True, changed(account.note_item)),
    (r"/place/(\d+)/save", True, True, changed(account.save_place)),
    (r"/place/(\d+)/report", True, True, changed(account.report_place)),
    ("/routes", False, True, shown(account.routes)),
    ("/routes", True, True, changed(account.save_route)),
    (r"/route/(\d+)/delete", True, True, changed(account.delete_route)),
    ("/settings", False, True, shown(account.settings)),
    ("/settings", True, True, changed(account.save_settings)),
)
