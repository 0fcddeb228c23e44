"""AgentEval's names for tasks (arXiv:2406.04151): `textcraft_12` is the task that AgentGym's server
of TextCraft has at number 12.
"""

from __future__ import annotations

from collections.abc import Iterable

from palestra.core.registry import nearest

LONGEST_NUMBER = 9
"""In digits."""


def agenteval_number(env: str, id: str) -> int | None:
    """The number in an id such as `textcraft_12` of environment `env`; None for any other id."""
    kind, _, number = id.rpartition("_")
    is_number = (
        number.isascii()
        and number.isdecimal()
        and len(number) <= LONGEST_NUMBER
        and number == str(int(number))
    )
    return int(number) if kind == env and is_number else None


def no_such_task(
    env: str, id: str, *, shape: str, example: str, name: str, names: Iterable[str]
) -> ValueError:
    """The error for an id whose first part `name` is unknown, with the format of ids and the
    nearest known name.
    """
    hint = nearest(name[:100], names)
    meant = f"; {hint}" if hint.startswith("did you mean") else ""
    return ValueError(
        f"{env} has no task {id[:100]!r}: expected {shape} or {env}_<number>, such as "
        f"{example} or {env}_12{meant}"
    )
