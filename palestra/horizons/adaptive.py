"""The horizon follows the measured success."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field, PositiveInt, model_validator

from palestra.horizons.base import Horizon, Progress

ROUNDING = 1e-9
"""Sums of success rates are off by less than this: ten steps of 0.6 have a mean of 0.6, and open a
gate of 0.6.
"""


class Adaptive(Horizon):
    """A stage further when success says so, never on a timer alone; a stage back when success
    breaks down.

    Stages are left by what was measured in them: the mean success of the last `window` steps.
    """

    kind: Literal["adaptive"] = "adaptive"
    turns: tuple[PositiveInt, ...] = Field(min_length=2)
    """Maximum number of turns in each stage."""
    window: PositiveInt = 10
    """Steps whose success is averaged; no stage is left sooner."""
    gate: float = Field(default=0.6, gt=0, le=1)
    """Go on at this success."""
    fall: float = Field(default=0.2, gt=0, le=1)
    """Go back when success is so far below that at which the stage before was left."""
    plateau: float | None = Field(default=0.01, ge=0)
    """Go on, too, where a window differs from the one before it by no more than this; without it
    success alone decides.
    """

    @model_validator(mode="after")
    def _growing(self) -> Adaptive:
        if list(self.turns) != sorted(set(self.turns)):
            raise ValueError(f"turns must grow, got {list(self.turns)}")
        return self

    def __call__(self, progress: Progress) -> int:
        return self.turns[self.stage(progress)]

    def stage(self, progress: Progress) -> int:
        """What the whole history leads to, step by step.

        A stage that was fallen back to is left again by a higher gate only, halfway from where it
        was left to 1: so it cannot swing for ever, and a plateau no longer opens it.
        """
        stage, since = 0, 0
        left_at, gates = dict[int, float](), dict[int, float]()
        for end in range(1, len(progress.success) + 1):
            here = progress.success[max(since, end - 2 * self.window) : end]
            if len(here) < self.window:
                continue
            recent = math.fsum(here[-self.window :]) / self.window
            if stage > 0 and recent < left_at[stage - 1] - self.fall - ROUNDING:
                stage, since = stage - 1, end
                gates[stage] = (left_at[stage] + 1) / 2
            elif stage < len(self.turns) - 1 and self._goes_on(here, recent, gates.get(stage)):
                left_at[stage] = recent
                stage, since = stage + 1, end
        return stage

    def _goes_on(self, here: tuple[float, ...], recent: float, raised_gate: float | None) -> bool:
        if recent >= (self.gate if raised_gate is None else raised_gate) - ROUNDING:
            return True
        if self.plateau is None or raised_gate is not None or len(here) < 2 * self.window:
            return False
        before = math.fsum(here[: self.window]) / self.window
        return abs(recent - before) <= self.plateau + ROUNDING

    @property
    def full(self) -> int:
        return self.turns[-1]
