"""The collapse guard: watches metrics that show early that training is collapsing, and reports
bounds that are broken.
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
    """A bound was broken, and the run stops."""


class RollbackRequested(Exception):
    """A bound was broken, and the run returns to an earlier checkpoint."""

    def __init__(self, reason: str, step: int, rollbacks: int) -> None:
        super().__init__(reason)
        self.step = step
        self.rollbacks = rollbacks
        """How many times the run has been rolled back before."""


def watch(
    settings: GuardSettings, memory: Memory, figures: Mapping[str, float]
) -> tuple[Memory, dict[str, str]]:
    """The memory after one more step, and the bounds that are broken now, each with a description.

    A metric that the step does not have (nothing was trained on, say) leaves its window unchanged.
    """
    recent = dict(memory.recent)
    for bound in settings.bounds:
        if FIGURES[bound] in figures:
            recent[bound] = (*recent.get(bound, ()), figures[FIGURES[bound]])[-settings.window :]
    full = {bound: values for bound, values in recent.items() if len(values) == settings.window}
    means = {bound: math.fsum(values) / len(values) for bound, values in full.items()}
    best = max(memory.best_success, means.get("success_fall", 0.0))
    limits = dict(settings.bounds)
    if settings.success_fall is not None:
        limits["success_fall"] = best - settings.success_fall  # a fall from the best window so far
    broken = {}
    for bound, mean in means.items():
        limit = limits[bound]
        is_above = bound.endswith("_above")
        excess = mean - limit if is_above else limit - mean
        if excess > ROUNDING:
            side = "above" if is_above else "below"
            broken[bound] = (
                f"{FIGURES[bound]} was {mean:.4g} over {settings.window} steps, "
                f"{side} {limit:.4g} (guard.{bound})"
            )
    return replace(memory, recent=recent, best_success=best, broken=tuple(broken)), broken
