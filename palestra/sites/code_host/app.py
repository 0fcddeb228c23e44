"""A bridge from WSGI to `fossil http`: one short process for each request, on the file of an instance."""

import os
import secrets
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

DAYS = 30
"""How long a session that `login` made is good for."""
SECONDS = 60
"""Fossil answers within 20 ms; what takes longer is stuck."""
OPTIONS = ("--nojail", "--nossl", "--nocompress", "--nodelay", "--ipaddr", "127.0.0.1")
HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "upgrade"}


def application(file: Path, environ: dict[str, Any], start_response: Callable[[str, list[tuple[str, str]]], Any]) -> Iterable[bytes]:
    done = subprocess.run(  # noqa: S603
        ["fossil", "http", str(file), *OPTIONS],  # noqa: S607
        input=request(environ),
        env={"HOME": tempfile.gettempdir(), "FOSSIL_HOME": tempfile.gettempdir(), "PATH": os.environ["PATH"]},
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )
    status, headers, body = reply(done.stdout)
    if not status:
        body = f"fossil ended with {done.returncode}: {done.stderr.decode(errors='replace')[-500:]}".encode()
        status, headers = "500 Internal Server Error", [("Content-Type", "text/plain; charset=utf-8")]
    start_response(status, [*headers, ("Content-Length", str(len(body)))])
    return [body]


def request(environ: dict[str, Any]) -> bytes:
    """The request as it came over the wire, but for what concerns the connection."""
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    # WSGI has decoded the path (PEP 3333: bytes as latin-1); fossil expects it as it was sent
    path = quote((environ["PATH_INFO"] or "/").encode("latin-1"), safe="/:@!$&'()*+,;=~-._")
    query = environ.get("QUERY_STRING", "")
    headers = {key[5:].replace("_", "-").lower(): value for key, value in environ.items() if key.startswith("HTTP_")}
    headers["content-length"] = str(len(body))
    if environ.get("CONTENT_TYPE"):
        headers["content-type"] = environ["CONTENT_TYPE"]
    lines = [f"{environ['REQUEST_METHOD']} {path}{'?' + query if query else ''} HTTP/1.0"]
    lines += [f"{name.title()}: {value}" for name, value in headers.items() if name not in HOP_BY_HOP]
    return "".join(f"{line}\r\n" for line in lines).encode("latin-1") + b"\r\n" + body


def reply(output: bytes) -> tuple[str, list[tuple[str, str]], bytes]:
    """Status, headers and body; an empty status where fossil gave none."""
    head, _, body = output.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    _, _, status = first.partition(" ")
    pairs = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]
    dropped = {"content-length", "date", *HOP_BY_HOP}
    return status, [(name, value) for name, value in pairs if name.lower() not in dropped], body


def login(file: Path, user: str) -> dict[str, str]:
    """The cookies of a new session, without the form: as fossil's login.c makes them."""
    token = secrets.token_hex(25).upper()
    base = sqlite3.connect(file)
    try:
        with base:
            (project,) = base.execute("SELECT value FROM config WHERE name = 'project-code'").fetchone()
            changed = base.execute(
                "UPDATE user SET cookie = ?, cexpire = julianday('now') + ? WHERE login = ? AND length(pw) > 1", (token, DAYS, user)
            ).rowcount
    finally:
        base.close()
    if not changed:
        raise LookupError(f"no user {user!r} on the code host")
    return {f"fossil-{project[:16]}": f"{token}/{project[:16]}/{user}"}
