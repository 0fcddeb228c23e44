"""The collapse guard: watches figures that go wrong before a run is lost, and says when a bound is
broken.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from palestra.config.guard import FIGURES, GuardSettings
from palestra.core.errors import UserError
from palestra.runs.state import Memory

ROUNDING = 1e-9
"""Means of floats are off by less than this: ten steps of 0.3 are not above 0.3."""


class GuardTripped(UserError, RuntimeError):
    """A bound was broken, and the run is not to go on."""


class RollbackRequested(Exception):
    """A bound was broken, and the run is to go back."""

    def __init__(self, reason: str, step: int, rollbacks: int) -> None:
        super().__init__(reason)
        self.step = step
        self.rollbacks = rollbacks
        """How often it went back already."""


def watch(
    settings: GuardSettings, memory: Memory, figures: Mapping[str, float]
) -> tuple[Memory, dict[str, str]]:
    """The memory with one more step in it, and the bounds that are broken now, each with what is
    wrong.

    A figure that the step does not have, as where nothing was learned, leaves its window as it was.
    """
    recent = dict(memory.recent)
    for bound in settings.bounds:
        if FIGURES[bound] in figures:
            recent[bound] = (*recent.get(bound, ()), figures[FIGURES[bound]])[-settings.window :]
    means = {
        bound: math.fsum(values) / len(values)
        for bound, values in recent.items()
        if len(values) == settings.window
    }
    best = max(memory.best_success, means.get("success_fall", 0.0))
    limits = settings.bounds | (
        {"success_fall": best - settings.success_fall} if settings.success_fall is not None else {}
    )
    broken = {}
    for bound, mean in means.items():
        is_above = bound.endswith("_above")
        excess = mean - limits[bound] if is_above else limits[bound] - mean
        if excess > ROUNDING:
            side = f"{'above' if is_above else 'below'} {limits[bound]:.4g}"
            broken[bound] = (
                f"{FIGURES[bound]} was {mean:.4g} over {settings.window} steps, {side} "
                f"(guard.{bound})"
            )
    return replace(memory, recent=recent, best_success=best, broken=tuple(broken)), broken
