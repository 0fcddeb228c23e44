"""Environment servers for the duration of a run: `palestra env serve`, started by an actor of the
Ray cluster.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import IO

import msgspec

from palestra.config.config import Config
from palestra.config.env import EnvSpec
from palestra.core.credentials import without_secrets
from palestra.core.errors import ConfigError
from palestra.envs import envs
from palestra.envs.serving.catalogue import Served
from palestra.envs.serving.main import ServerSettings

CAPACITY = 1024
"""The most sessions of one server."""


def served(config: Config) -> list[Served]:
    """The environments of a run that are not on a server already."""
    specs = [spec for spec in config.env_specs if not spec.env.is_remote]
    for spec in specs:
        if spec.env.sandbox != "none":
            raise ConfigError(
                f"launch.env_servers = {config.launch.env_servers}: {spec.label} is "
                "played in a sandbox, which these servers do not have; "
                "serve it by `palestra env serve --sandbox bwrap` and give its URL"
            )
    names = [_name_on_server(spec) for spec in specs]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                f"launch.env_servers = {config.launch.env_servers}: one server cannot "
                f"have two environments called {name!r}; "
                "serve them by `palestra env serve` and give their URLs"
            )
    if not specs:
        raise ConfigError(
            f"launch.env_servers = {config.launch.env_servers}: has no effect, all "
            "environments are on servers already"
        )
    envs_served: list[Served] = []
    for env in [spec.env for spec in specs]:
        one = Served(env.name, env.options, "process", env.deadline_s, pass_env=env.pass_env)
        envs_served.append(one)
    return envs_served


def urls_by_label(config: Config, addresses: Sequence[str]) -> dict[str, list[str]]:
    """The URLs of each environment of the run on these servers."""
    urls: dict[str, list[str]] = {}
    for spec in config.env_specs:
        if addresses and not spec.env.is_remote:
            name = _name_on_server(spec)
            urls[spec.label] = [f"{address}/{name}" for address in addresses]
    return urls


def _name_on_server(spec: EnvSpec) -> str:
    """The name of the environment's class."""
    return envs[spec.env.name].name


class EnvServer:
    """An actor with a server process. The server exits with the actor, because its stdin closes."""

    def __init__(self, settings: bytes) -> None:
        from ray.util import get_node_ip_address

        own = msgspec.json.decode(settings, type=ServerSettings)
        own = msgspec.structs.replace(own, host=get_node_ip_address(), port=0)
        command = [sys.executable, "-m", "palestra.envs.serving.main"]
        pass_env: list[str] = []
        for env in own.served:
            pass_env += env.pass_env
        self._process = subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=without_secrets(pass_env)
        )
        assert self._process.stdin is not None
        assert self._process.stderr is not None
        # By stdin, since a command line would show the tokens to all users of the machine.
        self._process.stdin.write(msgspec.json.encode(own) + b"\n")
        self._process.stdin.flush()
        self._address = _address_said(self._process.stderr)
        threading.Thread(target=_pass_on, args=(self._process.stderr,), daemon=True).start()

    def address(self) -> str:
        return self._address


def _address_said(lines: IO[bytes]) -> str:
    said = []
    for line in lines:
        said.append(line.decode(errors="replace"))
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if event.get("event") == "listening":
            return str(event["url"])
    raise RuntimeError("the environment server did not start: " + "".join(said[-5:]))


def _pass_on(lines: IO[bytes]) -> None:
    for line in lines:
        sys.stderr.write(line.decode(errors="replace"))
