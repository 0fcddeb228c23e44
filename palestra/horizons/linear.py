"""The horizon grows linearly."""

from __future__ import annotations

from typing import Literal

from pydantic import PositiveInt, model_validator

from palestra.horizons.base import Horizon, Progress


class Linear(Horizon):
    """Grows linearly from `first` to `last` turns over `steps` training steps."""

    kind: Literal["linear"] = "linear"
    first: PositiveInt
    """Turns at the first training step."""
    last: PositiveInt
    """Turns after `steps` training steps."""
    steps: PositiveInt
    """Training steps over which the turns grow."""

    @model_validator(mode="after")
    def _growing(self) -> Linear:
        if self.last < self.first:
            raise ValueError(f"last ({self.last}) must not be below first ({self.first})")
        return self

    def __call__(self, progress: Progress) -> int:
        return self.first + self.stage(progress) - 1

    def stage(self, progress: Progress) -> int:
        return 1 + (self.last - self.first) * min(progress.step, self.steps) // self.steps

    @property
    def full(self) -> int:
        return self.last
