"""What of a run's configuration may change when the run is resumed, and what it was begun with and
keeps.
"""

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
"""What cannot change, each with what a message calls it: weights, episodes and figures so far were
made with it.
"""
FIXED_IN_MIXTURE = ("label", "name", "options")
"""Of each environment of a mixture. Its weight, horizon and group may change."""
MISSING = object()

Tree = dict[str, Any]


def tree_of(config: Config) -> Tree:
    """As a checkpoint stores it, and finds it again."""
    found: Tree = msgspec.json.decode(msgspec.json.encode(config.model_dump(mode="json")))
    return found


def refuse_changes(before: Tree, after: Config) -> None:
    """Raises ConfigError with the first setting that differs from the run's own and may not."""
    now = tree_of(after)
    for name, what in FIXED.items():
        for setting, old, new in _differences(name, _at(before, name), _at(now, name)):
            _refuse(setting, old, new, what)
    _refuse_other_mixture(before.get("mixture") or [], now["mixture"])
    fixed = (
        ["round", "data", "episodes", "noise", "min_reward", "best"]
        if not after.algo.is_on_policy
        else []
    )
    for name in (*(name for name in fixed if name in now["algo"]), "critic.kind"):
        if (old := _at(before, f"algo.{name}")) != _at(now, f"algo.{name}"):
            kind = f"a run of {after.algo.name}"
            raise ConfigError(
                f"algo.{name}: cannot be changed when {kind} is resumed; it was begun "
                f"with {_shown(old)}"
            )


def described_changes(before: Tree, after: Config) -> str:
    """All settings that differ, for the log; empty where none does."""
    now = tree_of(after)
    found = [
        f"{setting} = {_shown(new)} (was {_shown(old)})"
        for name in now
        for setting, old, new in _differences(name, before.get(name, MISSING), now[name])
    ]
    return "; ".join(found)


def _refuse(setting: str, old: Any, new: Any, what: str) -> None:
    raise ConfigError(
        f"{setting} = {_shown(new)}: a run's {what} cannot be changed when it is resumed; "
        f"it was begun with {_shown(old)}"
    )


def _refuse_other_mixture(before: list[Tree], after: list[Tree]) -> None:
    if len(before) != len(after):
        named = [
            [member.get("label") or member.get("name") for member in members]
            for members in (after, before)
        ]
        _refuse("mixture", named[1], named[0], "environment")
    for place, (old, new) in enumerate(zip(before, after, strict=True)):
        for name in FIXED_IN_MIXTURE:
            for setting, was, now in _differences(
                f"mixture.{place}.{name}", old.get(name, MISSING), new.get(name, MISSING)
            ):
                _refuse(setting, was, now, "environment")


def _at(tree: Tree, dotted: str) -> Any:
    node: Any = tree
    for key in dotted.split("."):
        if not isinstance(node, dict) or key not in node:
            return MISSING
        node = node[key]
    return node


def _differences(name: str, old: Any, new: Any) -> Iterator[tuple[str, Any, Any]]:
    """Setting by setting.

    One that only one side knows is of another version of the program, unless the whole table is
    chosen anew.
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
