"""A bridge from WSGI to `fossil http`: one short process for each request, on the file of an
instance.
"""

import hashlib
import re
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

from . import fossil

DAYS = 30
"""The lifetime of a session that `login` creates."""
MENU = re.compile(rb"<div id=(['\"])hbdrop\1")
"""The animated site map: the target of a click would depend on its time. Fossil has a setting for
it.
"""
HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "upgrade"}


class Application:
    """The code host, as WSGI has it."""

    def __init__(self, base: Path) -> None:
        """`base`: the folder of the seed. Fossil is copied again, because the machine's version may
        have changed.
        """
        self._program, self._library = fossil.install(base), fossil.faketime()
        fossil.check(self._program, self._library, base / "base.sqlite3")

    def __call__(
        self,
        file: Path,
        environ: dict[str, Any],
        start_response: Callable[[str, list[tuple[str, str]]], Any],
    ) -> Iterable[bytes]:
        moment, seed = present(file)
        done = fossil.answer(
            self._program, self._library, file, request(environ), moment=moment, seed=seed
        )
        status, headers, body = reply(done.stdout)
        if not status:
            body = (
                f"fossil ended with {done.returncode}: "
                f"{done.stderr.decode(errors='replace')[-500:]}"
            ).encode()
            status = "500 Internal Server Error"
            headers = [("Content-Type", "text/plain; charset=utf-8")]
        body = MENU.sub(rb"\g<0> data-anim-ms=\g<1>0\g<1>", body)
        start_response(status, [*headers, ("Content-Length", str(len(body)))])
        return [body]


def present(file: Path) -> tuple[datetime, str]:
    """The instance's time and random seed. Both advance only with writes, so viewing a page twice
    shows the same.
    """
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=fossil.SECONDS)) as base:
        (written,) = base.execute("SELECT count(*) FROM rcvfrom").fetchone()
    return fossil.NOW + timedelta(minutes=written), f"{seed_of(file)}/{written}"


def seed_of(file: Path) -> str:
    """The seed of the episode's random choices: a file next to the instance's databases."""
    seed = file.with_name("seed")
    return seed.read_text() if seed.is_file() else ""


def request(environ: dict[str, Any]) -> bytes:
    """The request as received, without connection headers."""
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    # WSGI has decoded the path (PEP 3333: bytes as latin-1); fossil expects it as it was sent
    path = quote((environ["PATH_INFO"] or "/").encode("latin-1"), safe="/:@!$&'()*+,;=~-._")
    query = environ.get("QUERY_STRING", "")
    headers = {
        key[5:].replace("_", "-").lower(): value
        for key, value in environ.items()
        if key.startswith("HTTP_")
    }
    headers["content-length"] = str(len(body))
    if environ.get("CONTENT_TYPE"):
        headers["content-type"] = environ["CONTENT_TYPE"]
    lines = [f"{environ['REQUEST_METHOD']} {path}{'?' + query if query else ''} HTTP/1.0"]
    lines += [
        f"{name.title()}: {value}" for name, value in headers.items() if name not in HOP_BY_HOP
    ]
    return "".join(f"{line}\r\n" for line in lines).encode("latin-1") + b"\r\n" + body


def reply(output: bytes) -> tuple[str, list[tuple[str, str]], bytes]:
    """Status, headers and body. The status is empty if fossil returned none."""
    head, _, body = output.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    _, _, status = first.partition(" ")
    dropped = {"content-length", "date", *HOP_BY_HOP}
    headers: list[tuple[str, str]] = []
    for line in lines:
        name, _, value = line.partition(":")
        if name.lower() not in dropped:
            headers.append((name, value.strip()))
    return status, headers, body


def login(file: Path, user: str) -> dict[str, str]:
    """The cookies of a new session, without the form: as fossil's login.c makes them."""
    token = hashlib.sha256(f"{seed_of(file)}/{user}".encode()).hexdigest()[:50].upper()
    base = sqlite3.connect(file)
    try:
        with base:
            (project,) = base.execute(
                "SELECT value FROM config WHERE name = 'project-code'"
            ).fetchone()
            changed = base.execute(
                "UPDATE user SET cookie = ?, cexpire = julianday(?) + ? "
                "WHERE login = ? AND length(pw) > 1",
                (token, f"{fossil.NOW:%Y-%m-%d %H:%M:%S}", DAYS, user),
            ).rowcount
    finally:
        base.close()
    if not changed:
        raise LookupError(f"no user {user!r} on the code host")
    return {f"fossil-{project[:16]}": f"{token}/{project[:16]}/{user}"}
