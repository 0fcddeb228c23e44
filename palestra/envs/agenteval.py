"""AgentEval's names for tasks (arXiv:2406.04151): `textcraft_12` is the task that AgentGym's server of TextCraft has at number 12."""

from __future__ import annotations

LONGEST_NUMBER = 9
"""In digits."""


def agenteval_number(env: str, id: str) -> int | None:
    """12 of `textcraft_12`, where the environment is called textcraft; None of any other id."""
    kind, _, number = id.rpartition("_")
    is_number = number.isascii() and number.isdecimal() and len(number) <= LONGEST_NUMBER and number == str(int(number))
    return int(number) if kind == env and is_number else None
