"""The horizon follows the measured success rate."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field, PositiveInt, model_validator

from palestra.horizons.base import Horizon, Progress

ROUNDING = 1e-9
"""Tolerance on means of success rates: ten steps of 0.6 must pass a gate of 0.6."""


class Adaptive(Horizon):
    """Advances a stage when success is high or has plateaued, and falls back when it drops.

    Decisions are based on the mean success of the last `window` steps of the current stage.
    """

    kind: Literal["adaptive"] = "adaptive"
    turns: tuple[PositiveInt, ...] = Field(min_length=2)
    """Maximum number of turns in each stage."""
    window: PositiveInt = 10
    """Steps over which success is averaged; also the minimum length of a stage."""
    gate: float = Field(default=0.6, gt=0, le=1)
    """Success rate at which to advance to the next stage."""
    fall: float = Field(default=0.2, gt=0, le=1)
    """Fall back when success is this far below the rate at which the previous stage was left."""
    plateau: float | None = Field(default=0.01, ge=0)
    """Also advance when the mean success of two consecutive windows differs by no more than this;
    null disables it.
    """

    @model_validator(mode="after")
    def _growing(self) -> Adaptive:
        if list(self.turns) != sorted(set(self.turns)):
            raise ValueError(f"turns must grow, got {list(self.turns)}")
        return self

    def __call__(self, progress: Progress) -> int:
        return self.turns[self.stage(progress) - 1]

    def stage(self, progress: Progress) -> int:
        """The stage, recomputed from the whole history.

        After a fallback, a stage is left only through a higher gate, halfway between the success at
        which it was left and 1, and no longer at a plateau: so it cannot oscillate forever.
        """
        stage, since = 1, 0
        left_at, gates = dict[int, float](), dict[int, float]()
        for end in range(1, len(progress.success) + 1):
            here = progress.success[max(since, end - 2 * self.window) : end]
            if len(here) < self.window:
                continue
            recent = math.fsum(here[-self.window :]) / self.window
            if stage > 1 and recent < left_at[stage - 1] - self.fall - ROUNDING:
                stage, since = stage - 1, end
                gates[stage] = (left_at[stage] + 1) / 2
            elif stage < len(self.turns) and self._advances(here, recent, gates.get(stage)):
                left_at[stage] = recent
                stage, since = stage + 1, end
        return stage

    def _advances(self, here: tuple[float, ...], recent: float, raised_gate: float | None) -> bool:
        if recent >= (self.gate if raised_gate is None else raised_gate) - ROUNDING:
            return True
        if self.plateau is None or raised_gate is not None or len(here) < 2 * self.window:
            return False
        before = math.fsum(here[: self.window]) / self.window
        return abs(recent - before) <= self.plateau + ROUNDING

    @property
    def full(self) -> int:
        return self.turns[-1]
