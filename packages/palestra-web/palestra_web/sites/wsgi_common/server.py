"""Serve a WSGI application to many instances in parallel, until the supervisor ends."""

from __future__ import annotations

import hmac
import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

import waitress
from wsgi_common import instance

Application = Callable[[dict[str, Any], Any], Iterable[bytes]]
THREADS = 8


class Instanced:
    """Sets the request's database file, then lets the site answer.

    `login` makes a session of a user in the current file and returns its cookies: `POST /-/login`,
    for the supervisor alone.
    """

    def __init__(self, site: Application, login: Callable[[str], dict[str, str]]) -> None:
        self.site = site
        self.login = login

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if environ["PATH_INFO"] == "/-/alive":
            return _text(start_response, "200 OK", "alive")
        host = environ.get("HTTP_HOST", "").partition(":")[0]
        visitor = instance.VISITOR if host in ("127.0.0.1", "localhost") else ""
        file = instance.file_of(environ.get("HTTP_X_INSTANCE", visitor))
        if file is None:
            return _text(
                start_response,
                "404 Not Found",
                "There is no such instance: send its id in the header X-Instance.",
            )
        instance.current.set(file)
        if environ["PATH_INFO"] == "/-/login":
            return self._answer_login(environ, start_response)
        return self.site(environ, start_response)

    def _answer_login(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if not hmac.compare_digest(environ.get("HTTP_X_TOKEN", ""), os.environ["SITE_TOKEN"]):
            return _text(start_response, "403 Forbidden", "The supervisor alone logs users in so.")
        user = json.loads(environ["wsgi.input"].read())["user"]
        try:
            cookies = self.login(user)
        except LookupError as error:
            return _text(start_response, "404 Not Found", str(error))
        return _text(start_response, "200 OK", json.dumps(cookies))


def serve(application: Application) -> None:
    """Say on stdout which port it is, then answer until stdin is closed: the supervisor holds its
    other end.
    """
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(("127.0.0.1", int(os.environ["SITE_PORT"])))
    sys.stdout.write(f"{listening.getsockname()[1]}\n")
    sys.stdout.flush()
    threading.Thread(target=_end_with_supervisor, daemon=True).start()
    waitress.serve(
        application,
        sockets=[listening],
        threads=THREADS,
        clear_untrusted_proxy_headers=True,
        _quiet=True,
    )


def _end_with_supervisor() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


def _text(start_response: Any, status: str, text: str) -> list[bytes]:
    body = text.encode()
    start_response(
        status, [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(body)))]
    )
    return [body]
