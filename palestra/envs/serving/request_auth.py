"""Access control: programs with a token, but no web pages in a user's browser."""

from __future__ import annotations

import hmac
import ipaddress
import socket
from functools import lru_cache
from urllib.parse import urlsplit

from aiohttp import web

from palestra.envs.serving.wire import WireError

PEER_HEADER = "X-Palestra-Caller"
OPEN_PATHS = ("/health",)
"""Without a token: a load balancer asks here."""


class RequestAuth:
    """Checks a request's host, origin and token."""

    def __init__(
        self, tokens: tuple[str, ...] = (), hosts: tuple[str, ...] = (), peer_secret: str = ""
    ) -> None:
        self.tokens = tuple(token.encode() for token in tokens)
        self.hosts = {"localhost", socket.gethostname().lower(), *(host.lower() for host in hosts)}
        self.peer_secret = peer_secret.encode()

    def admit(self, request: web.Request) -> str:
        """Whose request it is. Sessions belong to the token that opened them."""
        if self.is_peer(request):
            return request.headers.get(PEER_HEADER, "")
        host = request.headers.get("Host", "")
        if not _is_address(name := _name(host)) and name not in self.hosts:
            raise WireError(
                "forbidden", f"the host {host[:100]!r} is not this server; --allow-host adds a name"
            )
        origin = request.headers.get("Origin")
        if origin is not None and _origin_host(origin) != host.lower():
            raise WireError(
                "forbidden", f"requests of pages from {origin[:100]!r} are not answered"
            )
        if not self.tokens or request.path in OPEN_PATHS:
            return ""
        given = bearer_token(request).encode(errors="replace")
        matches = [
            number for number, token in enumerate(self.tokens) if hmac.compare_digest(given, token)
        ]
        if not matches:
            raise WireError(
                "unauthorized",
                "the request needs the header Authorization: Bearer TOKEN with a token of "
                "this server",
            )
        return str(matches[0])

    def is_peer(self, request: web.Request) -> bool:
        """It comes from another process of this server."""
        if not self.peer_secret or PEER_HEADER not in request.headers:
            return False
        given = bearer_token(request).encode(errors="replace")
        return hmac.compare_digest(given, self.peer_secret)


def bearer_token(request: web.BaseRequest) -> str:
    """The bearer token of a request; empty for another scheme or none."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


@lru_cache(maxsize=1000)
def _is_address(name: str) -> bool:
    """A browser can be led here by any name that resolves to us, but not by our bare address."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


@lru_cache(maxsize=1000)
def _name(host: str) -> str:
    """Without its port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _origin_host(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""
