"""The configuration of a run as one typed, frozen object: from a TOML file and the command line."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args

import tomli_w
from pydantic import (
    NonNegativeInt,
    PositiveInt,
    PrivateAttr,
    SerializeAsAny,
    ValidationError,
    model_validator,
)

from palestra.algos import algos
from palestra.algos.base import Algorithm
from palestra.algos.grpo import GRPO
from palestra.config.agent import AgentSettings
from palestra.config.env import DEFAULT_ENV, EnvSettings, EnvSpec, Member
from palestra.config.guard import GuardSettings
from palestra.config.launch import LaunchSettings
from palestra.config.lora import LoraSettings
from palestra.config.model import PretrainedModel, TinyModel, models
from palestra.config.optimizer import OptimizerConfig
from palestra.config.renamed import refuse_renamed
from palestra.config.rollout import RolloutSettings
from palestra.config.run import EvalSettings, LimitSettings, SaveSettings, WarmStart
from palestra.config.run_format import format_error
from palestra.config.synonyms import SYNONYMS
from palestra.config.track import TrackSettings
from palestra.core.credentials import hidden
from palestra.core.errors import ConfigError
from palestra.core.files import read_regular
from palestra.core.registry import Registry, nearest
from palestra.core.settings import UNSET, Settings, Unresolved, chosen_from
from palestra.core.untrusted import Unreadable, read_toml
from palestra.engines import engines
from palestra.engines.base import EngineSettings
from palestra.engines.torch.settings import TorchEngineSettings
from palestra.envs import envs, is_url, label_of
from palestra.envs.serving.handles import BadEnvironment, guarded
from palestra.horizons import horizons
from palestra.horizons.base import Horizon
from palestra.horizons.fixed import Fixed

log = logging.getLogger(__name__)

CHOICES = {"algo": "name", "engine": "name", "horizon": "kind", "model": "kind", "env": "name"}
"""Tables whose other keys depend on this one: another choice starts from its own defaults."""

LEARNING_RATES = {"tiny": 2e-4, "lora": 1e-5, "pretrained": 1e-6}
"""Defaults of `optim.lr` for a tiny model, an adapter, and all weights of a pretrained model."""
WARM_START_RATES = {"tiny": 2e-3, "lora": 1e-4, "pretrained": 2e-5}
"""The same of `warm_start.lr`: imitation takes larger steps."""

IMPORT_S = 60.0
"""How long the import of a class that a configuration names may take, as `env.deadline_s`."""

DEFAULTS = {
    "algo": "grpo",
    "engine": "torch",
    "horizon": "fixed",
    "model": "tiny",
    "env": DEFAULT_ENV,
}


LARGEST = 1_000_000
"""Maximum size of a recipe in bytes."""

EXPECTED = {
    "bool_parsing": "expected true or false",
    "bool_type": "expected true or false",
    "dict_type": "expected a table",
    "float_parsing": "expected a number",
    "float_type": "expected a number",
    "int_from_float": "expected a whole number",
    "int_parsing": "expected a whole number",
    "int_type": "expected a whole number",
    "list_type": "expected a list, such as [1, 2]",
    "model_attributes_type": "expected a table",
    "model_type": "expected a table",
    "string_type": "expected text",
    "tuple_type": "expected a list, such as [1, 2]",
}
"""What to say of an error of pydantic, by its type."""
OF_A_TABLE = ("value_error", "assertion_error")
"""Errors about a whole table, which is not printed."""


class Config(Settings):
    """Everything that defines a run."""

    seed: NonNegativeInt = 0
    """Random seed of weight initialization, task sampling and token sampling."""
    steps: PositiveInt = 100
    """Training steps."""
    limit: LimitSettings = LimitSettings()
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device of the model; "auto" uses CUDA if there is a GPU."""
    dtype: Literal["float32", "bfloat16", "float64"] = "float32"
    """Type that the model computes in.

    Master weights are float32 or wider. float64 is slow; it makes runs comparable to the last step.
    """
    threads: NonNegativeInt = 0
    """CPU threads; 0 uses one per core. Bit-identical runs need the same number."""
    model: Annotated[SerializeAsAny[Settings], chosen_from(models, "kind", DEFAULTS["model"])] = (
        TinyModel()
    )
    env: EnvSettings | None = None
    mixture: tuple[Member, ...] = ()
    """Several environments to train on, instead of one `env`."""
    agent: AgentSettings = AgentSettings()
    engine: Annotated[
        SerializeAsAny[EngineSettings], chosen_from(engines, "name", DEFAULTS["engine"])
    ] = TorchEngineSettings()
    rollout: RolloutSettings = RolloutSettings()
    algo: Annotated[SerializeAsAny[Algorithm], chosen_from(algos, "name", DEFAULTS["algo"])] = (
        GRPO()
    )
    optim: OptimizerConfig = OptimizerConfig()
    lora: LoraSettings | None = None
    """Train a LoRA adapter. Default: train all weights."""
    horizon: Annotated[
        SerializeAsAny[Horizon], chosen_from(horizons, "kind", DEFAULTS["horizon"])
    ] = Fixed()
    warm_start: WarmStart | None = None
    eval: EvalSettings = EvalSettings()
    save: SaveSettings = SaveSettings()
    guard: GuardSettings | None = None
    """Bounds on metrics, and what to do if one is crossed. Default: no bounds."""
    track: TrackSettings = TrackSettings()
    launch: LaunchSettings = LaunchSettings()
    _dropped: dict[str, list[str]] = PrivateAttr(default_factory=dict)
    """Settings of the recipe that another choice has dropped, by the choice."""

    @model_validator(mode="before")
    @classmethod
    def _some_environment(cls, tree: Any) -> Any:
        if isinstance(tree, dict) and not tree.get("mixture") and tree.get("env") is None:
            return tree | {"env": {}}
        return tree

    @model_validator(mode="before")
    @classmethod
    def _learning_rates_of_the_model(cls, tree: Any) -> Any:
        """Fill in the defaults of learning rates, which depend on the model."""
        if not isinstance(tree, dict):
            return tree
        model = tree.get("model", {})
        is_pretrained = isinstance(model, PretrainedModel) or (
            isinstance(model, dict) and model.get("kind") == "pretrained"
        )
        kind = "pretrained" if is_pretrained else "tiny"
        if is_pretrained and tree.get("lora") not in (None, UNSET):
            kind = "lora"
        own = {
            "optim": _with_rate(tree.get("optim", {}), LEARNING_RATES[kind]),
            "warm_start": _with_rate(tree.get("warm_start"), WARM_START_RATES[kind]),
        }
        return tree | {name: table for name, table in own.items() if table is not None}

    @model_validator(mode="after")
    def _fits_together(self) -> Config:
        if self.unresolved:
            # Only a configuration whose classes were imported can be checked as a whole.
            return self
        if self.env is not None and self.mixture:
            raise ValueError(
                "env and mixture: there is either one environment or a mixture of them"
            )
        labels = [spec.label for spec in self.env_specs]
        for label in labels:
            if labels.count(label) > 1:
                raise ValueError(
                    f"mixture: two environments are called {label!r}; give each a label of its own"
                )
        for spec in self.env_specs:
            self._check_env(spec)
        if isinstance(self.model, TinyModel) and self.dtype == "bfloat16":
            raise ValueError("dtype = 'bfloat16': a tiny model is too small for it; use 'float32'")
        if isinstance(self.model, TinyModel) and self.lora is not None:
            raise ValueError(
                "lora: an adapter needs a model that has learned something; set "
                "model.path, or train all weights"
            )
        self._check_idle()
        self._check_launch()
        self._check_age()
        if self.guard is not None:
            reach = self.save.every * (self.save.keep - 1)
            self.guard.check(
                self.algo,
                reach,
                is_concurrent=self.rollout.is_concurrent,
                partial=self.rollout.partial,
            )
        return self

    @property
    def unresolved(self) -> str:
        """The first table whose class is named "module:Class" and was not imported; empty if there
        is none.
        """
        tables: dict[str, Settings | None] = {
            "algo.name": self.algo,
            "engine.name": self.engine,
            "horizon.kind": self.horizon,
            "model.kind": self.model,
        }
        for member in self.mixture:
            tables[f"mixture.{member.title}.horizon.kind"] = member.horizon
        for setting, table in tables.items():
            if isinstance(table, Unresolved):
                return f"{setting} = {getattr(table, setting.rpartition('.')[2])!r}"
        return ""

    def refuse_unresolved(self, command: str) -> None:
        """Raise ConfigError if a class that the command needs was not imported."""
        if self.unresolved:
            raise ConfigError(
                f"{self.unresolved}: {command} imports nothing that a configuration names; "
                "install the class as a plugin (an entry point), or train, which imports it"
            )

    def _check_age(self) -> None:
        """Whether the algorithm can learn from episodes that older weights sampled."""
        error = self.algo.off_policy_error
        for name in ("prefetch", "partial", "max_staleness"):
            value = getattr(self.rollout, name)
            if value and error:
                raise ValueError(f"rollout.{name} = {value}: {self.algo.name} {error}")
        if self.rollout.max_staleness and not self.algo.supports_off_policy:
            cure = "set algo.recompute_logprobs = true and algo.correction.cap = 2"
            raise ValueError(
                f"rollout.max_staleness = {self.rollout.max_staleness}: tokens of older "
                f"weights must be weighed; {cure}"
            )
        if self.rollout.max_staleness and self.is_deterministic:
            race = (
                "what is sampled during an update depends on timing; set "
                "engine.deterministic = false"
            )
            raise ValueError(f"rollout.max_staleness = {self.rollout.max_staleness}: {race}")

    @property
    def is_deterministic(self) -> bool:
        """Whether batches must not depend on the timing of environments."""
        return self.engine.is_deterministic

    def _check_env(self, spec: EnvSpec) -> None:
        table = "env" if self.env is not None else f"mixture.{spec.label}"
        if self.rollout.partial and self.is_deterministic and not spec.env.is_inline:
            where = f"{table}.isolation = 'process'"
            if spec.env.is_remote:
                where = f"{table}.name = {spec.env.name!r}"
            race = (
                "is apart from training, and which group is complete first is a race; set "
                "engine.deterministic = false"
            )
            raise ValueError(f"rollout.partial = {self.rollout.partial}: {where} {race}")
        if self.algo.compares_within_groups and spec.group < 2:
            if self.env is not None or self.rollout.group == spec.group:
                table = "rollout"
            raise ValueError(
                f"{table}.group = {spec.group}: {self.algo.name} compares trajectories of "
                "a task and needs at least 2"
            )

    def _check_idle(self) -> None:
        """A setting that has no effect under the chosen algorithm is an error."""
        plays = self.algo.plays
        default = RolloutSettings()
        only_on_policy = ("resample_rounds", "prefetch", "partial", "max_staleness")
        idle: list[str] = []
        if not self.algo.is_on_policy:
            idle += only_on_policy
        if not plays:
            idle += ("tasks", "group")
        does = "does not play every step" if plays else "plays no episodes while training"
        for name in idle:
            value = getattr(self.rollout, name)
            if value != getattr(default, name):
                raise ValueError(
                    f"rollout.{name} = {value!r}: has no effect, {self.algo.name} {does}"
                )
        if not plays and self.horizon.kind != "fixed":
            raise ValueError(
                f"horizon.kind = {self.horizon.kind!r}: has no effect, {self.algo.name} {does}; "
                "set horizon.kind = 'fixed'"
            )
        for member in self.mixture:
            if not plays and (
                member.group is not None
                or (member.horizon is not None and member.horizon.kind != "fixed")
            ):
                raise ValueError(
                    f"mixture.{member.title}: group and horizon have no effect, "
                    f"{self.algo.name} {does}"
                )
            if member.reward_scale != 1 and not self.algo.weighs_rewards:
                reason = self._why_scale_is_idle()
                raise ValueError(
                    f"mixture.{member.title}.reward_scale = {member.reward_scale:g}: has "
                    f"no effect under {self.algo.name}{reason}"
                )
        if self.rollout.resample_rounds and not self.algo.may_lack_signal:
            reason = "every group has a signal there, so none is replaced"
            raise ValueError(
                f"rollout.resample_rounds = {self.rollout.resample_rounds}: has no effect "
                f"under {self.algo.name}: {reason}"
            )
        critic = self.algo.critic_settings
        if critic is not None and critic.warmup >= self.steps:
            raise ValueError(
                f"algo.critic.warmup = {critic.warmup}: must be below steps "
                f"({self.steps}), or the policy never learns"
            )

    def _why_scale_is_idle(self) -> str:
        if "scale" not in type(self.algo).model_fields:
            return ""
        return (
            ", which divides by the deviation of the same rewards; set algo.scale = false, or "
            "the environment's weight"
        )

    def _check_launch(self) -> None:
        """What several workers, or shared weights, cannot do."""
        launch = self.launch
        if launch.workers > 1 and self.rollout.partial:
            reason = (
                "which group is complete first differs from worker to worker; use "
                "rollout.prefetch or rollout.max_staleness"
            )
            raise ValueError(
                f"rollout.partial = {self.rollout.partial}: with launch.workers = "
                f"{launch.workers}, {reason}"
            )
        if launch.workers > 1 and self.optim.accumulation_parts not in (1, launch.workers):
            raise ValueError(
                f"optim.accumulation_parts = {self.optim.accumulation_parts}: "
                f"{launch.workers} workers add up in {launch.workers} parts"
            )
        critic = self.algo.critic_settings
        for field, is_set in (
            ("lora", self.lora is not None),
            ("algo.critic.kind", critic is not None and critic.kind == "model"),
        ):
            if launch.sharding == "fsdp" and is_set:
                raise ValueError(
                    f"launch.sharding = 'fsdp': does not go with {field} yet; did you mean 'none'?"
                )

    @cached_property
    def env_specs(self) -> tuple[EnvSpec, ...]:
        """The environments of the run: one, or those of the mixture."""
        if self.env is not None:
            label = label_of(self.env.name)
            return (EnvSpec(label, self.env, 1.0, self.horizon, self.rollout.group, 1.0),)
        specs: list[EnvSpec] = []
        for member in self.mixture:
            horizon = member.horizon or self.horizon
            group = member.group or self.rollout.group
            specs.append(
                EnvSpec(member.title, member, member.weight, horizon, group, member.reward_scale)
            )
        return tuple(specs)

    @property
    def eval_temperature(self) -> float:
        return self.rollout.temperature if self.eval.temperature is None else self.eval.temperature

    def eval_horizon(self, spec: EnvSpec) -> int:
        return self.eval.horizon or spec.horizon.full


def load(
    recipe: str | Path, overrides: dict[str, Any] | None = None, *, imports: bool = False
) -> Config:
    """Read a recipe, a file or a shipped one by its name.

    `overrides` maps dotted keys such as `algo.clip_low` to values.

    `imports`: as for `build`.
    """
    return build(read_recipe(recipe), overrides, imports=imports)


RECIPES = Path(__file__).parents[1] / "recipes"
"""The recipes that are shipped, which have names: "quickstart", "results/textcraft"."""


def shipped_recipes() -> dict[str, Path]:
    """The files of the shipped recipes, by name."""
    found = {}
    for path in sorted(RECIPES.rglob("*.toml")):
        found[path.relative_to(RECIPES).with_suffix("").as_posix()] = path
    return found


def is_environment(source: str) -> bool:
    """Whether `source` is the name of an environment rather than a recipe; recipes come first."""
    if Path(source).exists() or source.endswith(".toml") or source in shipped_recipes():
        return False
    return is_url(source) or envs.is_external(source) or source in envs


def find_recipe(recipe: str | Path) -> Path:
    """The file of a recipe that is given as a path, or by the name of a shipped one."""
    path = Path(recipe)
    if path.suffix == ".py":
        raise ConfigError(
            f"{recipe}: is a Python file; expected a recipe, or the environment in the file by its "
            f"name: {path.stem}:ClassName"
        )
    if path.is_dir():
        raise ConfigError(
            f"{recipe}: is a folder; expected a recipe, a TOML file or one of "
            f"{', '.join(name for name in shipped_recipes() if '/' not in name)}"
        )
    if path.exists() or path.suffix == ".toml":
        return path
    shipped = shipped_recipes()
    if str(recipe) not in shipped:
        known = [name for name in shipped if "/" not in name]
        raise ConfigError(f"{recipe}: no such recipe; {nearest(str(recipe), known)}")
    return shipped[str(recipe)]


def read_recipe(recipe: str | Path, above: tuple[Path, ...] = ()) -> dict[str, Any]:
    """The tables of a recipe, merged with those of its `base`."""
    path = find_recipe(recipe)
    try:
        text = read_regular(path, most_bytes=LARGEST).decode()
        if reason := format_error(text):
            raise ConfigError(f"{path}: {reason}")
        tree = read_toml(text)
    except FileNotFoundError:
        siblings = []
        if path.parent.is_dir():
            siblings = [other.name for other in path.parent.glob("*.toml")]
        hint = f"; {nearest(path.name, siblings)}" if siblings else ""
        raise ConfigError(f"{path}: no such recipe{hint}") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except Unreadable as error:
        raise ConfigError(f"{path}: {error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not TOML: {error}") from error
    if not tree:
        raise ConfigError(
            f"{path}: the recipe is empty; expected at least a table [env] with the name of an "
            "environment (palestra init writes a recipe, palestra recipes lists the shipped ones)"
        )
    base = tree.pop("base", None)
    if base is None:
        return tree
    seen = (*above, path.resolve())
    if not isinstance(base, str) or (path.parent / base).resolve() in seen:
        raise ConfigError(
            f"{path}: base = {base!r}: expected another recipe, as seen from this one's folder"
        )
    return merge(read_recipe(path.parent / base, seen), tree)


def merge(base: dict[str, Any], tree: dict[str, Any]) -> dict[str, Any]:
    """`tree` over `base`, key by key in all tables.

    A table that makes another choice, such as another algorithm, inherits nothing.
    """

    def merged(name: str, old: Any, new: Any) -> Any:
        if not isinstance(old, dict) or not isinstance(new, dict):
            return new
        if _makes_another_choice(name, old, new):
            return new
        return old | {key: merged("", old.get(key), value) for key, value in new.items()}

    return base | {name: merged(name, base.get(name), value) for name, value in tree.items()}


def _makes_another_choice(table: str, old: dict[str, Any], new: dict[str, Any]) -> bool:
    key = CHOICES.get(table)
    return key is not None and key in new and new[key] != old.get(key, DEFAULTS[table])


def build(
    tree: dict[str, Any], overrides: dict[str, Any] | None = None, *, imports: bool = False
) -> Config:
    """A configuration from nested tables and dotted overrides.

    `imports`: import the classes that are named "module:Class". Without it, reading an untrusted
    configuration runs no code.
    """
    overrides = dict(overrides or {})
    if isinstance(tree.get("model"), str):
        tree = tree | {"model": _named(tree["model"])}
    if isinstance(overrides.get("model"), str):
        for key, value in _named(overrides.pop("model")).items():
            overrides[f"model.{key}"] = value
    dropped: dict[str, list[str]] = {}
    for table, key in CHOICES.items():
        choice = overrides.get(f"{table}.{key}")
        old = tree.get(table)
        if choice is None or not isinstance(old, dict):
            continue
        if old.get(key, DEFAULTS[table]) != choice:
            dropped[f"{table}.{key} = {choice!r}"] = _dropped(table, key, old, overrides)
            tree = tree | {table: {key: choice}}
    for dotted, value in overrides.items():
        tree = _set(tree, dotted.split("."), value, dotted)
    refuse_renamed(tree)
    try:
        with importing() if imports else nullcontext():
            config = Config.model_validate(tree, context={"imports": imports})
    except ValidationError as error:
        raise ConfigError(hidden(_explain(error, tree))) from None
    config._dropped = {choice: settings for choice, settings in dropped.items() if settings}
    return config


def warn_of_dropped(config: Config) -> None:
    """Say which of the recipe's settings another choice has dropped.

    Called after the checks of a command, so that a mistake is answered in one line.
    """
    for choice, settings in config._dropped.items():
        log.warning(
            "%s begins with its own defaults; dropped from the recipe: %s",
            choice,
            ", ".join(settings),
        )


@contextmanager
def importing() -> Iterator[None]:
    """Around the import of what a configuration names.

    Whatever a module does when it is imported is one line, within a deadline.
    """
    try:
        with guarded(
            "the configuration",
            "the import of what it names",
            deadline_s=IMPORT_S,
            telling=(ConfigError, ValidationError),
        ):
            yield
    except BadEnvironment as error:
        raise ConfigError(str(error)) from error


def _dropped(table: str, key: str, old: dict[str, Any], overrides: dict[str, Any]) -> list[str]:
    """The settings of a table that another choice drops: there they may mean something else."""
    return [
        f"{table}.{name} = {value!r}"
        for name, value in old.items()
        if name != key and f"{table}.{name}" not in overrides
    ]


def _named(path: str) -> dict[str, str]:
    """The short form `model = "path"`, in a file or as a flag, as a table."""
    return {"kind": "pretrained", "path": path}


def _set(tree: Any, keys: list[str], value: Any, dotted: str) -> dict[str, Any]:
    """`tree` with one value changed; the tables on the way to it are copied, not modified."""
    if not isinstance(tree, dict):
        raise ConfigError(f"{dotted} = {value!r}: there is no such table")
    first, *rest = keys
    if rest:
        value = _set(tree.get(first, {}), rest, value, dotted)
    return tree | {first: value}


def dump(config: Config) -> str:
    """The configuration as TOML that loads to the same one."""
    return tomli_w.dumps(config.model_dump(mode="json", exclude_none=True))


def _explain(error: ValidationError, tree: dict[str, Any]) -> str:
    """The first error in one line. Typos come first: they tend to cause the others."""
    problem = min(error.errors(include_url=False), key=lambda e: e["type"] != "extra_forbidden")
    spec = [str(part) for part in problem["loc"]]
    field, value = ".".join(spec), problem["input"]
    if problem["type"] == "extra_forbidden":
        return _explain_unknown(spec, value, tree)
    if problem["type"] == "missing":
        return f"{field}: is required and not set"
    if problem["type"] == "literal_error":
        listed = problem["ctx"]["expected"].replace(" or ", ",").split(",")
        expected = [part.strip(" '") for part in listed]
        return (
            f"{field} = {value!r}: expected one of {', '.join(expected)}; "
            f"{nearest(str(value), expected)}"
        )
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "value_error" and re.match(r"[a-z_.]+ = ", message):
        # The message names a field below this one.
        return f"{field}.{message}" if spec else message
    if not spec:
        return message
    message = EXPECTED.get(problem["type"], message)
    if message == "expected a table" and _is_optional_table(field):
        message = "expected a table of settings, or 'none'"
    if message.startswith("Input should be "):
        message = f"expected a value {message.removeprefix('Input should be ')}"
    if isinstance(value, Settings) or (isinstance(value, dict) and problem["type"] in OF_A_TABLE):
        return f"{field}: {message}"
    return f"{field} = {value!r}: {message[0].lower()}{message[1:]}"


def _is_optional_table(name: str) -> bool:
    field = Config.model_fields.get(name)
    return field is not None and NoneType in get_args(field.annotation)


def _explain_unknown(spec: list[str], value: Any, tree: dict[str, Any]) -> str:
    """A setting that there is not, and the one that may be meant: by another trainer's name for it,
    by the same name in another table, or by a similar name in this one.
    """
    siblings = _siblings(tree, spec[:-1])
    while isinstance(value, dict) and len(value) == 1:
        # A table that there is not, with the one setting that was given in it.
        (name, value), *_ = value.items()
        spec = [*spec, name]
    name, close = spec[-1], nearest(spec[-1], siblings)
    found = [SYNONYMS[name]] if name in SYNONYMS and _is_setting(tree, SYNONYMS[name]) else []
    if not found:
        tables = [table for table in Config.model_fields if table != "mixture"]
        found = [f"{table}.{name}" for table in tables if name in _siblings(tree, [table])]
    if found:
        close = f"did you mean {' or '.join(map(repr, found[:3]))}?"
    return f"{'.'.join(spec)} = {value!r}: there is no such setting; {close}"


def _is_setting(tree: dict[str, Any], dotted: str) -> bool:
    """Whether there is such a setting under the choices of this configuration."""
    *tables, name = dotted.split(".")
    return name in _siblings(tree, tables)


def _siblings(tree: dict[str, Any], spec: list[str]) -> list[str]:
    """The names of the settings in a table, under the choices of this configuration."""
    kind: type[Settings] = Config
    registries: dict[str, Registry[Any]] = {
        "algo": algos,
        "engine": engines,
        "horizon": horizons,
        "model": models,
    }
    node: Any = tree
    for name in spec:
        if name.isdecimal():
            node = node[int(name)]
            continue
        node = node.get(name) if isinstance(node, dict) else None
        if name in registries:
            chosen = DEFAULTS[name]
            if isinstance(node, dict):
                chosen = str(node.get(CHOICES[name], chosen))
            registry = registries[name]
            is_ours = not registry.is_external(chosen) and chosen in registry
            kind = registry[chosen] if is_ours else Unresolved
        else:
            annotation = kind.model_fields[name].annotation
            options = (*get_args(annotation), annotation)
            classes = [option for option in options if inspect.isclass(option)]
            kind = next((option for option in classes if issubclass(option, Settings)), Unresolved)
    return list(kind.model_fields)


def _with_rate(table: Any, rate: float) -> Any:
    """The settings with `lr`, unless they have one."""
    if isinstance(table, OptimizerConfig | WarmStart) and "lr" not in table.model_fields_set:
        table = table.model_dump(exclude_unset=True)
    return {"lr": rate} | table if isinstance(table, dict) else table
