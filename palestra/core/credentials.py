"""Secrets: which hosts get the environment servers' token, what is never printed, and what other
programs are not told.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import SplitResult, urlsplit

from palestra.core.errors import UserError

TOKEN_VARIABLE = "PALESTRA_ENV_TOKEN"  # noqa: S105  its name, not its value
"""Where the environment server's token is read from, by the server and by its clients."""
HOSTS_VARIABLE = "PALESTRA_ENV_HOSTS"
"""The hosts that clients send the token to: `host`, `host:port` or `http://host:port`, separated by
commas or blanks.
"""
PORTS = {"http": 80, "https": 443}

_USERINFO = re.compile(r"://(?:\S*|[^/?#\n]*)@")
_SECRET_NAME = re.compile(
    r"(?:^|_)(?:TOKENS?|API_?KEYS?|KEYS?|SECRETS?|CREDENTIALS?|AUTH|PAT)(?:_|$)|PASSWORD|PASSWD|PASSPHRASE|^AWS_",
    re.IGNORECASE,
)
_SECRET_VALUE = re.compile(r"://[^/?#\s]+@")
"""A URL with a user or a password: a proxy's, a database's, a package index's."""


class BadToken(UserError, ValueError):
    """The token cannot be sent. The message does not show it."""


def hidden(text: str) -> str:
    """The text without the users and passwords of the URLs in it.

    It hides too much rather than too little.
    """
    return _USERINFO.sub("://***@", text)


def has_password(url: str) -> bool:
    """Whether a URL has a user or a password in it."""
    return hidden(url) != url


# which hosts get the token


def name_hosts(flags: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Remember the environment servers that stand on a command line, so that they get the token.

    They are kept in the environment: the workers of a launch inherit them.
    """
    for url in (*_urls_of_flags(flags), *_urls_of_settings(settings)):
        name_host(url)


def name_host(url: str) -> None:
    """Let the token go to the server of this URL."""
    origin = _origin(url)
    named = _named()
    if origin is not None and origin not in named:
        os.environ[HOSTS_VARIABLE] = " ".join([*named, origin])


def token_for(url: str) -> str:
    """The token, where the server at this URL may have it; else nothing.

    Raises BadToken for one that no header can carry.
    """
    token = os.environ.get(TOKEN_VARIABLE, "").strip()
    if not token or not is_named(url):
        return ""
    if not all("!" <= character <= "~" for character in token):
        raise BadToken(
            f"{TOKEN_VARIABLE}: expected letters, digits and signs of ASCII without "
            "blanks; it has other characters"
        )
    return token


def how_to_give_token(url: str) -> str:
    """What to do about a server that asks for a token."""
    if not os.environ.get(TOKEN_VARIABLE, "").strip():
        return f"set {TOKEN_VARIABLE}" + (
            "" if is_named(url) else f", and {HOSTS_VARIABLE}={urlsplit(url).netloc}"
        )
    if is_named(url):
        return f"the one in {TOKEN_VARIABLE} is not a token of this server"
    reason = "this server stands neither on the command line nor there"
    return (
        f"{TOKEN_VARIABLE} goes to hosts of {HOSTS_VARIABLE} only, and {reason}; set "
        f"{HOSTS_VARIABLE}={urlsplit(url).netloc}"
    )


def is_named(url: str) -> bool:
    """Whether the user named the server at this URL, and not only some recipe or run folder."""
    origin = _origin(url)
    parts = _split(url)
    return (
        origin is not None
        and parts is not None
        and any(_fits(entry, origin, parts) for entry in _named())
    )


def _fits(entry: str, origin: str, parts: SplitResult) -> bool:
    if "://" in entry:
        return _origin(entry) == origin
    host = _split(f"//{entry}")
    return (
        host is not None
        and host.hostname == parts.hostname
        and host.port in (None, parts.port or PORTS.get(parts.scheme))
    )


def _named() -> list[str]:
    return os.environ.get(HOSTS_VARIABLE, "").replace(",", " ").split()


def _origin(url: str) -> str | None:
    """scheme://host:port, always with the port; None where it is no URL of a server."""
    parts = _split(url)
    if parts is None or parts.scheme not in PORTS or not parts.hostname:
        return None
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}:{parts.port or PORTS[parts.scheme]}"


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        _ = parts.port  # it is read only now
    except ValueError:
        return None
    return parts


def _urls_of_flags(flags: Mapping[str, Any]) -> Iterator[str]:
    for name in ("env", "name"):
        if isinstance(flags.get(name), str):
            yield flags[name]


def _urls_of_settings(settings: Mapping[str, Any]) -> Iterator[str]:
    """Of `--env.name`, `--env.urls` and `--mixture`; other settings with URLs are about other
    servers.
    """
    tables = [
        {
            name.removeprefix("env."): value
            for name, value in settings.items()
            if name.startswith("env.")
        }
    ]
    tables += [settings["env"]] if isinstance(settings.get("env"), dict) else []
    mixture = settings.get("mixture")
    tables += (
        [member for member in mixture if isinstance(member, dict)]
        if isinstance(mixture, list)
        else []
    )
    for table in tables:
        urls = table.get("urls")
        yield from (
            url
            for url in (table.get("name"), *(urls if isinstance(urls, list) else []))
            if isinstance(url, str)
        )


# what other programs are not told


def is_secret(name: str, value: str) -> bool:
    """Whether an environment variable looks like a secret: by its name,
    or by a password in a URL.
    """
    return bool(_SECRET_NAME.search(name) or _SECRET_VALUE.search(value))


def without_secrets(keep: Iterable[str] = ()) -> dict[str, str]:
    """The environment variables for a program that runs other people's code: without the user's
    secrets, save those that `keep` names.
    """
    kept = set(keep)
    return {
        name: value
        for name, value in os.environ.items()
        if name in kept or not is_secret(name, value)
    }
