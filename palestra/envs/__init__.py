"""Environments: what an agent acts in, and the pools and servers that run them.

Importing this package imports no environment.
"""

from typing import Any
from urllib.parse import unquote, urlsplit

from palestra.core.registry import Registry, UnknownName, check_options
from palestra.envs.base import Environment, content_id
from palestra.envs.serving.forks import contained
from palestra.envs.serving.validation import message_of


class Environments(Registry[type[Environment]]):
    """Environments by registered name, or by the URL of a served environment."""

    def __getitem__(self, name: str) -> type[Environment]:
        if not is_url(name):
            return super().__getitem__(name)
        from palestra.envs.serving.remote import remote_kind

        return remote_kind(name)


envs = Environments(
    "envs",
    {
        "textcraft": "palestra.envs.textcraft.env:TextCraft",
        "babyai": "palestra.envs.babyai.env:BabyAI",
        "agentgym": "palestra.envs.adapters.agentgym:AgentGym",
        "search": "palestra.envs.search.env:Search",
        "sciworld": "palestra.envs.sciworld.env:SciWorld",
        "webarena": "palestra.envs.web.webarena:WebArena",
        "miniwob": "palestra.envs.web.miniwob:MiniWob",
        "guess": "palestra.envs.guess.env:Guess",
    },
    base="palestra.envs.base:Environment",
    packages={"web": "palestra-web"},
)


def is_url(name: str) -> bool:
    return name.startswith(("http://", "https://"))


def label_of(name: str) -> str:
    """The label of an environment in a run: its registered name, the last part of a URL, or a
    class's name in lower case.

    Computed from the name alone, without importing anything or asking a server.
    """
    if is_url(name):
        return unquote(urlsplit(name).path.strip("/"))
    if ":" in name:
        return name.rpartition(":")[2].rpartition(".")[2].lower()
    return name


def check_name(name: str) -> None:
    """Raise UnknownName for a name that no environment can have, without importing it or asking a
    server.
    """
    if not is_url(name):
        envs.check_name(name)
        return
    from palestra.envs.serving.remote import split_url

    split_url(name)


def make_env(name: str, options: dict[str, Any]) -> Environment:
    """Create an environment with its options. Raises a one-line ValueError for wrong options."""
    try:
        kind = envs[name]
    except UnknownName as error:
        raise ValueError(f"name = {name!r}: {error}") from error
    check_options(kind, options, name)
    try:
        with contained():
            return kind(**options)
    # A constructor only sees its options and its set-up, so any exception is about these.
    except Exception as error:
        raise ValueError(f"options = {options!r}: {name}: {message_of(error)}") from error


__all__ = ["Environment", "check_name", "content_id", "envs", "is_url", "label_of", "make_env"]
