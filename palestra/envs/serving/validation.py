"""Checks, converts and bounds what environments return, in one place for all isolation modes."""

from __future__ import annotations

import math
import signal
from typing import Any

import msgspec

from palestra.core.interrupts import Interrupted
from palestra.core.types import Step, Task
from palestra.envs.base import Environment

CHARACTERS = 1_000_000
"""The limit for an observation, for `info` as JSON, and for the listed actions."""
FAULT_CHARACTERS = 10_000
"""The limit for a fault's message, which is also logged."""
ONE_LINE = 500
"""The limit for an environment's message in an error of one line."""
DEPTH = 50
"""The nesting limit of `info`."""
MARK_END = " characters more]"


class Overdue(BaseException):
    """A deadline has passed.

    Not an Exception, so that an environment's `except Exception` does not swallow it.
    """


def is_environments(error: BaseException) -> bool:
    """Whether the environment raised this error, and not our deadline or the user's Ctrl-C.

    If only Python itself handles SIGINT, a KeyboardInterrupt counts as the user's.
    """
    if isinstance(error, Overdue | Interrupted):
        return False
    return (
        type(error) is not KeyboardInterrupt
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    )


class ValidatedEnv:
    """An environment with checked return values. A wrong one raises TypeError or ValueError."""

    def __init__(self, env: Environment) -> None:
        self.env = env
        self._score = 0.0

    def reset(self, task: Task) -> str:
        self._score = 0.0
        return text("reset must return a text", self.env.reset(task))

    def step(self, action: str) -> Step:
        step = checked(self.env.step(action))
        self._score += step.reward
        if not math.isfinite(self._score):
            raise ValueError(
                f"the episode's rewards add up to {self._score}: the last one was {step.reward!r}"
            )
        return step

    def actions(self) -> list[str] | None:
        actions = self.env.actions()
        if actions is None:
            return None
        if not isinstance(actions, list | tuple):
            raise TypeError(f"actions must return a list of texts or None, not {shown(actions)}")
        plain = [_whole("actions must return texts", action) for action in actions]
        if sum(map(len, plain)) > CHARACTERS:
            raise ValueError(f"actions returned more than {CHARACTERS:,} characters")
        return plain

    def expert(self) -> str | None:
        action = self.env.expert()
        return None if action is None else _whole("expert must return a text or None", action)

    def scene(self) -> Any:
        return self.env.scene()


def checked(step: Step) -> Step:
    """A step that can be stored. Raises TypeError or ValueError for anything else."""
    if not isinstance(step, Step):
        raise TypeError(f"step must return a Step, not {shown(step)}")
    if _is_plain(step):
        # A copy: the environment may keep its `info`, and fill it later.
        return Step(
            step.observation,
            step.reward,
            step.terminated,
            step.truncated,
            step.success,
            step.invalid,
        )
    reward = _plain(step.reward)
    if not isinstance(reward, int | float) or not math.isfinite(reward):
        raise TypeError(f"a step needs a finite reward, not {shown(step.reward)}")
    return Step(
        text("a step needs a text as its observation", step.observation),
        float(reward),
        _truth("terminated", step.terminated),
        _truth("truncated", step.truncated),
        None if step.success is None else _truth("success", step.success),
        _truth("invalid", step.invalid),
        _info(step.info) if step.info or not isinstance(step.info, dict) else {},
    )


def _is_plain(step: Step) -> bool:
    """Whether nothing in a step has to be converted, which is so for nearly all."""
    return (
        type(step) is Step
        and type(step.observation) is str
        and step.observation.isascii()
        and len(step.observation) <= CHARACTERS
        and type(step.reward) is float
        and math.isfinite(step.reward)
        and type(step.terminated) is bool
        and type(step.truncated) is bool
        and (step.success is None or type(step.success) is bool)
        and type(step.invalid) is bool
        and type(step.info) is dict
        and not step.info
    )


def text(expected: str, value: Any) -> str:
    """A text that can be encoded, cut if it is too long."""
    return cut(_storable(expected, value), CHARACTERS)


def _whole(expected: str, value: Any) -> str:
    """A text that must not be cut."""
    plain = _storable(expected, value)
    if len(plain) > CHARACTERS:
        raise ValueError(f"{expected} of at most {CHARACTERS:,} characters, not of {len(plain):,}")
    return plain


def _storable(expected: str, value: Any) -> str:
    if type(value) is not str:
        if not isinstance(value, str):
            raise TypeError(f"{expected}, not {shown(value)}")
        value = str.__str__(value)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"{expected}, and this one cannot be encoded: {error.reason}, at "
                f"character {error.start}"
            ) from None
    return value


def _truth(name: str, value: Any) -> bool:
    plain = value if type(value) is bool else _plain(value)
    if type(plain) is not bool:
        raise TypeError(
            f"a step's {name} must be True or False{' or None' * (name == 'success')}, "
            f"not {shown(value)}"
        )
    return plain


def _plain(value: Any) -> Any:
    """Numbers of NumPy, PyTorch and the like as Python's own."""
    if type(value) in (float, int, bool) or getattr(value, "shape", None) != ():
        return value
    return value.item()


def _info(info: Any) -> dict[str, Any]:
    """Convert `info` to plain JSON, as it is stored in the run folder."""
    if not isinstance(info, dict):
        raise TypeError(f"a step's info must be a table (dict), not {shown(info)}")
    try:
        encoded = msgspec.json.encode(info, enc_hook=_number)
        plain: dict[str, Any] = msgspec.json.decode(encoded)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise TypeError(f"a step's info cannot be written as JSON: {error}") from error
    if encoded.count(b"[") + encoded.count(b"{") > DEPTH and _depth(plain) > DEPTH:
        raise ValueError(f"a step's info is nested more than {DEPTH} deep")
    if len(encoded) > CHARACTERS:
        return {"info": cut(encoded.decode(), CHARACTERS)}
    return plain


def _number(value: Any) -> Any:
    plain = _plain(value)
    if type(plain) not in (float, int, bool):
        raise TypeError(f"{type(value).__name__} is no JSON")
    return plain


def _depth(value: Any) -> int:
    """The nesting depth, computed without recursion: untrusted data could exhaust the stack."""
    depth, level = 0, [value]
    while containers := [one for one in level if isinstance(one, dict | list)]:
        depth += 1
        level = []
        for one in containers:
            level += one.values() if isinstance(one, dict) else one
    return depth


def cut(value: str, most: int) -> str:
    """Cut a text to `most` characters, with a mark at the end if it was longer."""
    if len(value) <= most:
        return value
    kept, mark = most, ""
    # Iterates to a fixed point: the number in the mark depends on the mark's own length.
    while kept + len(mark) != most or not mark:
        kept = most - len(mark)
        mark = f"[... cut, {len(value) - kept:,}{MARK_END}"
    return value[:kept] + mark


def is_cut(value: str) -> bool:
    return value.endswith(MARK_END) and len(value) >= FAULT_CHARACTERS


def shown(value: Any) -> str:
    """Describe a wrong return value. Its `__repr__` is environment code and may raise."""
    try:
        return f"{type(value).__name__} {value!r:.100}"
    except BaseException as error:
        if not is_environments(error):
            raise
        return f"an object of {type(value).__name__}"


def message_of(error: Exception) -> str:
    """One line of what an environment's exception says, or of what it is if it says nothing."""
    try:
        words = str.__str__(str(error))
    except Exception:  # noqa: BLE001  its `__str__` is environment code
        words = ""
    line = " ".join((words or described(error)).split())
    return cut(line.encode(errors="backslashreplace").decode(), ONE_LINE)


def described(error: BaseException) -> str:
    """Describe an environment's exception, even if its `__str__` raises."""
    try:
        name, words = str(type(error).__name__), str.__str__(str(error))
    except BaseException as broken:
        if not is_environments(broken):
            raise
        name, words = "an exception that cannot be shown", object.__repr__(error)
    return cut(f"{name}: {words}".encode(errors="backslashreplace").decode(), FAULT_CHARACTERS)
