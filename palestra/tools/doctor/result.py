"""The result of a check: one line with a number."""

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
    """The outcome of one check."""

    name: str
    ok: bool
    number: float | None
    """The figure that decided, in the unit of `detail`; None if the check did not get that far."""
    detail: str
    seconds: float


class Verdict(NamedTuple):
    """What the function of a check returns."""

    ok: bool
    number: float | None
    detail: str


def check(name: str) -> Callable[[Callable[P, Verdict]], Callable[P, CheckResult]]:
    """Decorates a check: adds its name and time to the verdict. An exception is a failed check."""

    def decorate(judge: Callable[P, Verdict]) -> Callable[P, CheckResult]:
        @wraps(judge)
        def run(*args: P.args, **kwargs: P.kwargs) -> CheckResult:
            began = time.monotonic()
            try:
                ok, number, detail = judge(*args, **kwargs)
            except Exception as error:  # noqa: BLE001  an exception is a result here
                ok, number, detail = False, None, in_one_line(error)
            return CheckResult(name, ok, number, detail, time.monotonic() - began)

        return run

    return decorate


@dataclass(frozen=True, slots=True)
class Attempt(Generic[T]):
    """Something that later checks need, or None; the result says why."""

    result: CheckResult
    made: T | None


def attempt(
    name: str, make: Callable[[], T], describe: Callable[[T], tuple[float, str]]
) -> Attempt[T]:
    """Create something that later checks need, as a check of its own."""
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
    """Bytes in KiB, MiB or GiB."""
    if count >= 1 << 30:
        return f"{count / (1 << 30):.1f} GiB"
    if count >= 1 << 20:
        return f"{count / (1 << 20):.1f} MiB"
    return f"{count / (1 << 10):.1f} KiB"
