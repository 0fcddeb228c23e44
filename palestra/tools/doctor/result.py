"""What a check says: one line, with a number in it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Generic, NamedTuple, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One thing that was looked at, and how it is."""

    name: str
    ok: bool
    number: float | None
    """The figure that decided, in the unit that `detail` gives; None where it did not come to one.

    """
    detail: str
    seconds: float


class Verdict(NamedTuple):
    """What a check makes of what it was given."""

    ok: bool
    number: float | None
    detail: str


def check(name: str) -> Callable[[Callable[P, Verdict]], Callable[P, CheckResult]]:
    """Makes a finding of a verdict. A check that breaks has found something too: it has failed."""

    def named(examine: Callable[P, Verdict]) -> Callable[P, CheckResult]:
        @wraps(examine)
        def find(*args: P.args, **kwargs: P.kwargs) -> CheckResult:
            began = time.monotonic()
            try:
                ok, number, detail = examine(*args, **kwargs)
            except Exception as error:  # noqa: BLE001  an exception is a finding here
                ok, number, detail = False, None, in_one_line(error)
            return CheckResult(name, ok, number, detail, time.monotonic() - began)

        return find

    return named


@dataclass(frozen=True, slots=True)
class Attempt(Generic[T]):
    """Something that other checks need: there it is, or not, and the finding says why."""

    result: CheckResult
    made: T | None


def attempt(
    name: str, make: Callable[[], T], describe: Callable[[T], tuple[float, str]]
) -> Attempt[T]:
    """Make something, as a check of its own."""
    made: list[T] = []

    @check(name)
    def tried() -> Verdict:
        made.append(make())
        return Verdict(True, *describe(made[0]))

    result = tried()
    return Attempt(result, made[0] if result.ok else None)


def in_one_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def size(count: float) -> str:
    """Bytes as people read them."""
    unit, name = next(
        ((1 << power, name) for power, name in ((30, "GiB"), (20, "MiB")) if count >= 1 << power),
        (1 << 10, "KiB"),
    )
    return f"{count / unit:.1f} {name}"
