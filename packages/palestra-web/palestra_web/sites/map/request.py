"""The data of a request."""

import sqlite3
from dataclasses import dataclass
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import parse_qsl

COOKIE = "map_session"


@dataclass
class Request:
    base: sqlite3.Connection
    path: str
    post: bool
    values: dict[str, str]
    """The fields of the form or of the query."""
    user: sqlite3.Row | None
    token: str = ""
    arguments: tuple[str, ...] = ()
    """The parts of the path that vary."""

    def text(self, name: str) -> str:
        return self.values.get(name, "").strip()

    def number(self, name: str, default: int) -> int:
        """A whole number, or the default for an invalid text."""
        text = self.text(name)
        return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else default

    @property
    def id(self) -> int:
        return int(self.arguments[0][:12])

    @property
    def units(self) -> str:
        return str(self.user["units"]) if self.user else "km"

    @property
    def user_id(self) -> int:
        assert self.user is not None, "only pages for users ask who it is"
        return int(self.user["id"])


def read(environ: dict[str, Any], base: sqlite3.Connection) -> Request:
    post = environ["REQUEST_METHOD"] == "POST"
    query = environ.get("QUERY_STRING", "")
    if post:
        query = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)).decode()
    cookie = SimpleCookie(environ.get("HTTP_COOKIE", "")).get(COOKIE)
    token = cookie.value if cookie else ""
    user = base.execute(
        "SELECT user.* FROM user_session JOIN user ON user.id = user_session.user WHERE token = ?",
        (token,),
    ).fetchone()
    return Request(
        base,
        environ.get("PATH_INFO") or "/",
        post,
        dict(parse_qsl(query, keep_blank_values=True)),
        user,
        token,
    )
