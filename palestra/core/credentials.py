"""Secrets: which hosts get the environment servers' token, what is never printed, and what is not
passed to other programs.
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
    """The text without the users and passwords of its URLs. In doubt, it hides more."""
    return _USERINFO.sub("://***@", text)


def has_password(url: str) -> bool:
    """Whether a URL has a user or a password in it."""
    return hidden(url) != url


# which hosts get the token


def name_hosts(flags: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Allow the token for the environment servers on a command line.

    They are kept in an environment variable, which the workers of a launch inherit.
    """
    for url in (*_urls_of_flags(flags), *_urls_of_settings(settings)):
        name_host(url)


def name_host(url: str) -> None:
    """Allow the token for the server of this URL."""
    origin = _origin(url)
    named = _named()
    if origin is not None and origin not in named:
        os.environ[HOSTS_VARIABLE] = " ".join([*named, origin])


def token_for(url: str) -> str:
    """The token if the server at this URL may have it, else "".

    Raises BadToken for a token that is not valid in a header.
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
        if is_named(url):
            return f"set {TOKEN_VARIABLE}"
        return f"set {TOKEN_VARIABLE}, and {HOSTS_VARIABLE}={urlsplit(url).netloc}"
    if is_named(url):
        return f"the one in {TOKEN_VARIABLE} is not a token of this server"
    reason = "this server stands neither on the command line nor there"
    return (
        f"{TOKEN_VARIABLE} goes to hosts of {HOSTS_VARIABLE} only, and {reason}; set "
        f"{HOSTS_VARIABLE}={urlsplit(url).netloc}"
    )


def is_named(url: str) -> bool:
    """Whether the user named this server, and not just a recipe, which may be a stranger's."""
    origin, parts = _origin(url), _split(url)
    if origin is None or parts is None:
        return False
    return any(_fits(entry, origin, parts) for entry in _named())


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
    """scheme://host:port, always with the port. None if it is not the URL of a server."""
    parts = _split(url)
    if parts is None or parts.scheme not in PORTS or not parts.hostname:
        return None
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}:{parts.port or PORTS[parts.scheme]}"


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        _ = parts.port  # parsed when it is read; raises ValueError
    except ValueError:
        return None
    return parts


def _urls_of_flags(flags: Mapping[str, Any]) -> Iterator[str]:
    for name in ("env", "name"):
        if isinstance(flags.get(name), str):
            yield flags[name]


def _urls_of_settings(settings: Mapping[str, Any]) -> Iterator[str]:
    """The URLs of `--env.name`, `--env.urls` and `--mixture`. URLs in other settings are not those
    of environment servers.
    """
    # The settings are not validated yet, so they may have any type.
    dotted = {}
    for name, value in settings.items():
        if name.startswith("env."):
            dotted[name.removeprefix("env.")] = value
    mixture = settings.get("mixture")
    members = mixture if isinstance(mixture, list) else []
    for table in [dotted, settings.get("env"), *members]:
        if not isinstance(table, dict):
            continue
        urls = table.get("urls")
        for url in [table.get("name"), *(urls if isinstance(urls, list) else [])]:
            if isinstance(url, str):
                yield url


# what is not passed to other programs


def is_secret(name: str, value: str) -> bool:
    """Whether an environment variable looks like a secret, by its name or a password in a URL."""
    return bool(_SECRET_NAME.search(name) or _SECRET_VALUE.search(value))


def without_secrets(keep: Iterable[str] = ()) -> dict[str, str]:
    """The environment variables for a program that runs a stranger's code: without the user's
    secrets, except for those that `keep` names.
    """
    kept = set(keep)
    variables: dict[str, str] = {}
    for name, value in os.environ.items():
        if name in kept or not is_secret(name, value):
            variables[name] = value
    return variables
