"""Python values as the nested tables of a recipe: classes by name, settings as they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypedDict

from palestra.algos import algos
from palestra.algos.base import Algorithm
from palestra.config import config as configs
from palestra.config.agent import AgentSettings
from palestra.config.config import Config
from palestra.config.env import EnvSettings
from palestra.config.guard import GuardSettings
from palestra.config.launch import LaunchSettings
from palestra.config.lora import LoraSettings
from palestra.config.model import PretrainedModel, TinyModel
from palestra.config.optimizer import OptimizerConfig
from palestra.config.rollout import RolloutSettings
from palestra.config.run import EvalSettings, LimitSettings, SaveSettings, WarmStart
from palestra.config.track import TrackSettings
from palestra.core.errors import ConfigError
from palestra.core.registry import Registry
from palestra.core.settings import Settings
from palestra.engines import engines
from palestra.engines.base import EngineSettings
from palestra.envs import Environment, envs
from palestra.horizons import horizons
from palestra.horizons.base import Horizon

Tree = dict[str, Any]
Table = Mapping[str, Any]

EnvInput = (
    str | type[Environment] | Callable[[], Environment] | EnvSettings | Table | Sequence["EnvInput"]
)
"""A registered name, "module:Class", a URL, an Environment class, a callable that returns an
environment, a table of settings, or a list of these (a mixture).
"""
ModelInput = str | Path | TinyModel | PretrainedModel | Table
"""A Hugging Face name or folder, a GGUF file, or settings of a model."""


class RunSettings(TypedDict, total=False):
    """Settings of a run: the tables and values of a recipe, as typed objects or as mappings."""

    seed: int
    steps: int
    limit: LimitSettings | Table
    device: str
    dtype: str
    threads: int
    agent: AgentSettings | Table
    engine: EngineSettings | Table
    rollout: RolloutSettings | Table
    algo: Algorithm | Table | str
    optim: OptimizerConfig | Table
    lora: LoraSettings | Table | None
    horizon: Horizon | Table | int
    warm_start: WarmStart | Table | None
    eval: EvalSettings | Table
    save: SaveSettings | Table
    guard: GuardSettings | Table | None
    track: TrackSettings | Table
    launch: LaunchSettings | Table


CHOSEN: dict[str, Registry[Any]] = {"algo": algos, "engine": engines, "horizon": horizons}
"""Tables whose class a key names."""


def config_of(
    env: EnvInput | None,
    model: ModelInput | None,
    recipe: str | Path,
    settings: Mapping[str, Any],
) -> Config:
    """A configuration from a recipe, and from what is given on top of it."""
    tree = configs.read_recipe(recipe)
    given, dotted = tables_of(env, model, settings)
    if env is not None:
        tree = {name: table for name, table in tree.items() if name not in ("env", "mixture")}
    if model is not None:
        tree.pop("model", None)
    return configs.build(configs.merge(tree, given), dotted, imports=True)


def tables_of(
    env: EnvInput | None, model: ModelInput | None, settings: Mapping[str, Any]
) -> tuple[Tree, Tree]:
    """What is given as tables, and the settings that are given by their dotted names."""
    given, dotted = settings_tree(settings)
    if env is not None:
        given |= env_tables(env)
    if model is not None:
        given["model"] = model_table(model)
    return given, dotted


def settings_tree(settings: Mapping[str, Any]) -> tuple[Tree, Tree]:
    """Tables of settings, and those that are given by their dotted names.

    An int as `horizon` is a fixed one; a string as `algo` is its name.
    """
    tree: Tree = {}
    dotted: Tree = {}
    for name, value in settings.items():
        if "." in name:
            dotted[name] = value
        elif name == "horizon" and isinstance(value, int):
            tree[name] = {"kind": "fixed", "turns": value}
        elif name == "algo" and isinstance(value, str):
            tree[name] = {"name": value}
        elif isinstance(value, Settings):
            tree[name] = settings_table(name, value)
        else:
            tree[name] = dict(value) if isinstance(value, Mapping) else value
    return tree, dotted


def settings_table(table: str, settings: Settings) -> Tree:
    """What was set, by name; a class that no registry knows is named "module:Class"."""
    found = settings.model_dump(exclude_unset=True)
    if table in CHOSEN:
        registry, key = CHOSEN[table], configs.CHOICES[table]
        name = getattr(settings, key)
        if name not in registry.names() or registry[name] is not type(settings):
            name = registry.name_class(type(settings))
        found[key] = name
    elif isinstance(settings, PretrainedModel | TinyModel):
        found["kind"] = settings.kind
    return found


def model_table(model: ModelInput) -> Tree:
    if isinstance(model, Settings):
        return settings_table("model", model)
    if isinstance(model, Mapping):
        return dict(model)
    return {"kind": "pretrained", "path": str(model)}


def env_tables(env: EnvInput) -> Tree:
    """The table `env`, or `mixture` for a list."""
    if isinstance(env, Sequence) and not isinstance(env, str):
        if not env:
            raise ConfigError("env = []: expected at least one environment")
        tables = [env_table(one) for one in env]
        names = [table.get("name") for table in tables]
        for one, name in zip(env, names, strict=True):
            # They would be one class to the registry.
            if callable(one) and not isinstance(one, type | partial) and names.count(name) > 1:
                called = str(name).rpartition(":")[2]
                raise ConfigError(f"env: two callables are called {called!r}; name each by a def")
        return {"mixture": tables}
    return {"env": env_table(env)}


def env_table(env: Any) -> Tree:
    """One environment. Only its name is asked for: the class is constructed before the run."""
    if isinstance(env, str):
        return {"name": env}
    if isinstance(env, Settings):
        return settings_table("env", env)
    if isinstance(env, Mapping):
        table = dict(env)
        if "name" in table and not isinstance(table["name"], str):
            own = env_table(table.pop("name"))
            if options := own.pop("options", {}) | table.get("options", {}):
                table["options"] = options
            return own | table
        return table
    if isinstance(env, partial) and isinstance(env.func, type) and not env.args:
        return env_table(env.func) | {"options": dict(env.keywords)}
    if isinstance(env, Environment):
        raise ConfigError(
            f"env = an instance of {type(env).__name__}: many episodes run at the same time, each "
            "in an environment of its own; give the class, or a callable that returns one"
        )
    if isinstance(env, type) and not issubclass(env, Environment):
        raise ConfigError(f"env = {env.__name__}: expected a subclass of palestra.Environment")
    if isinstance(env, type):
        return {"name": envs.name_class(env)}
    if callable(env):
        return {"name": envs.name_class(_class_of_factory(env))}
    raise ConfigError(
        f"env = {env!r}: expected an Environment class, a name, a URL, a callable that returns "
        "an environment, or a list of these"
    )


def _class_of_factory(factory: Callable[[], Environment]) -> type[Environment]:
    """A class whose call returns what the factory returns, so that it can stand in a registry."""

    def new(cls: type[Environment]) -> Environment:
        made = factory()
        if not isinstance(made, Environment):
            raise TypeError(
                f"expected a palestra.Environment, the callable returned {type(made).__name__}"
            )
        return made

    name = getattr(factory, "__name__", type(factory).__name__).strip("<>")
    return type(name, (Environment,), {"__new__": new, "__module__": "__main__"})
