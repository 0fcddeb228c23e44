"""Environments from Python: as a Gymnasium environment, and under a name of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from palestra.agents import agents
from palestra.algos import algos
from palestra.api.inputs import EnvInput, env_table
from palestra.core.errors import ConfigError
from palestra.core.extras import naming_extras
from palestra.core.registry import Registry
from palestra.engines import engines
from palestra.envs import envs
from palestra.horizons import horizons

if TYPE_CHECKING:
    from palestra.envs.check import Check
    from palestra.envs.gym import GymEnv

T = TypeVar("T")

REGISTRIES: dict[str, Registry[Any]] = {
    "env": envs,
    "agent": agents,
    "algo": algos,
    "engine": engines,
    "horizon": horizons,
}


@naming_extras("palestra.make")
def make(
    name: str, *, split: str = "train", render_mode: str | None = None, **options: Any
) -> GymEnv:
    """Create a registered environment as a `gymnasium.Env` with text spaces.

    `options`: keyword arguments of the environment's constructor.
    """
    from palestra.envs.gym import GymEnv

    return GymEnv(envs[name](**options), split=split, render_mode=render_mode)


def check_environment(env: EnvInput, *, tasks: int = 20) -> list[Check]:
    """Try every promise of the contract on a sample of tasks, as `palestra env check` does."""
    from palestra.envs.check import check_environment

    table = env_table(env)
    return check_environment(table["name"], table.get("options"), tasks=tasks)


def register(name: str, kind: str = "env") -> Callable[[T], T]:
    """Give a class a name in this process, as a decorator: `@palestra.register("guess")`.

    `kind`: "env", "agent", "algo", "engine" or "horizon". A package that others install declares
    an entry point instead (`palestra.envs`, ...), which works in every process.
    """
    if kind not in REGISTRIES:
        raise ConfigError(f"kind = {kind!r}: expected one of {', '.join(REGISTRIES)}")
    return REGISTRIES[kind].register_local(name)
