"""Metadata of an environment, which a worker reports to processes that must not run its code."""

from __future__ import annotations

from typing import Any

import msgspec

from palestra.core.types import Example
from palestra.envs import Environment


class About(msgspec.Struct):
    name: str
    splits: tuple[str, ...]
    per_process: int
    max_turns: int
    instructions: str
    example: list[Example]


ASKED = ("about", "tasks", "task", "vocabulary", "texts")


def told(env: Environment, what: str, argument: Any) -> Any:
    match what:
        case "about":
            return About(
                env.name,
                tuple(env.splits),
                env.per_process,
                env.max_turns,
                env.instructions,
                list(env.example),
            )
        case "tasks":
            return list(env.tasks(argument))
        case "task":
            return env.task(argument)
        case "vocabulary":
            return env.vocabulary()
        case _:
            texts = env.texts()
            return None if texts is None else list(texts)
