"""Which network addresses stay on this host."""

from __future__ import annotations

from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
