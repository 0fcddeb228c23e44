"""Which network addresses stay on this host, and who must know a token."""

from __future__ import annotations

import os
from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def tokens_for(host: str, variable: str, *, is_asked_for: bool) -> tuple[str, ...]:
    """Those of the environment variable, separated by commas or blanks. Raises ValueError where
    there must be one and is none.

    There must be one for any address that others reach, and where somebody asked for tokens by
    naming the variable.
    """
    tokens = tuple(os.environ.get(variable, "").replace(",", " ").split())
    if not tokens and (is_asked_for or not is_loopback(host)):
        raise ValueError(f"--host {host}: needs a token, and the variable {variable} has none")
    return tokens
