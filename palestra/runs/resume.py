"""Which settings of a run may change when it is resumed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from palestra.config.config import Config
from palestra.core.errors import ConfigError

FIXED = {
    "seed": "seed",
    "model": "model",
    "dtype": "model",
    "lora": "model",
    "env.name": "environment",
    "env.options": "environment",
    "agent.format": "format",
    "agent.example": "prompt",
    "agent.template": "prompt",
    "algo.name": "algorithm",
    "warm_start": "warm start",
}
"""Settings that cannot change, each with its name in messages: the weights, episodes and metrics so
far depend on them.
"""
FIXED_IN_MIXTURE = ("label", "name", "options")
"""Of each environment of a mixture. Its weight, horizon and group may change."""
MISSING = object()

Tree = dict[str, Any]


def tree_of(config: Config) -> Tree:
    """The configuration as a checkpoint stores it and reads it back."""
    found: Tree = msgspec.json.decode(msgspec.json.encode(config.model_dump(mode="json")))
    return found


def refuse_changes(before: Tree, after: Config) -> None:
    """Raise ConfigError for the first setting that differs from the run's own and must not."""
    now = tree_of(after)
    for name, what in FIXED.items():
        for setting, old, new in _differences(name, _at(before, name), _at(now, name)):
            _refuse(setting, old, new, what)
    _refuse_other_mixture(before.get("mixture") or [], now["mixture"])
    fixed = ["critic.kind"]
    if not after.algo.is_on_policy:
        # They select the data, whose order a resumed run must find again.
        of_data = ["round", "data", "episodes", "noise", "min_reward", "best"]
        fixed = [name for name in of_data if name in now["algo"]] + fixed
    for name in fixed:
        old = _at(before, f"algo.{name}")
        if old != _at(now, f"algo.{name}"):
            raise ConfigError(
                f"algo.{name}: cannot be changed when a run of {after.algo.name} is resumed; "
                f"it was begun with {_shown(old)}"
            )


def described_changes(before: Tree, after: Config) -> str:
    """All settings that differ, for the log; empty if none does."""
    now = tree_of(after)
    changes: list[str] = []
    for name in now:
        for setting, old, new in _differences(name, before.get(name, MISSING), now[name]):
            changes.append(f"{setting} = {_shown(new)} (was {_shown(old)})")
    return "; ".join(changes)


def _refuse(setting: str, old: Any, new: Any, what: str) -> None:
    raise ConfigError(
        f"{setting} = {_shown(new)}: a run's {what} cannot be changed when it is resumed; "
        f"it was begun with {_shown(old)}"
    )


def _refuse_other_mixture(before: list[Tree], after: list[Tree]) -> None:
    if len(before) != len(after):
        _refuse("mixture", _env_names(before), _env_names(after), "environment")
    for index, (old, new) in enumerate(zip(before, after, strict=True)):
        for name in FIXED_IN_MIXTURE:
            setting = f"mixture.{index}.{name}"
            changes = _differences(setting, old.get(name, MISSING), new.get(name, MISSING))
            for changed, was, now in changes:
                _refuse(changed, was, now, "environment")


def _env_names(mixture: list[Tree]) -> list[Any]:
    return [member.get("label") or member.get("name") for member in mixture]


def _at(tree: Tree, dotted: str) -> Any:
    node: Any = tree
    for key in dotted.split("."):
        if not isinstance(node, dict) or key not in node:
            return MISSING
        node = node[key]
    return node


def _differences(name: str, old: Any, new: Any) -> Iterator[tuple[str, Any, Any]]:
    """The settings that differ, with their old and new values.

    A setting that only one side has comes from another version of the program and is left out,
    unless the other side lacks the whole table.
    """
    if isinstance(old, dict) and isinstance(new, dict):
        is_free = name.endswith("options")  # whose keys are the environment's own
        for key in {**old, **new}:
            if is_free or (key in old and key in new):
                yield from _differences(
                    f"{name}.{key}", old.get(key, MISSING), new.get(key, MISSING)
                )
    elif old != new and (old is not MISSING or "options." in name):
        yield name, old, new


def _shown(value: Any) -> str:
    if value is MISSING or value is None:
        return "none"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
