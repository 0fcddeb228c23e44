"""ScalingInter-RL (arXiv:2509.08755): few turns first, more turns in stages."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveInt, model_validator

from palestra.horizons.base import Horizon, Progress


class Stages(Horizon):
    """ScalingInter-RL: the interaction horizon grows monotonically with training.

    Short horizons first make the policy exploit what it can do in few turns; longer ones then let
    it explore. The paper's h_1 < h_2 < ... < h_n are `turns`, and its delta is `every`: the horizon
    of step t is turns[min(t // every, n - 1)].
    """

    kind: Literal["stages"] = "stages"
    turns: tuple[PositiveInt, ...] = Field(min_length=1)
    """Maximum number of turns in each stage."""
    every: PositiveInt
    """Training steps of a stage. The last stage lasts until the end."""

    @model_validator(mode="after")
    def _growing(self) -> Stages:
        if list(self.turns) != sorted(self.turns):
            raise ValueError(f"turns must not shrink, got {list(self.turns)}")
        return self

    def __call__(self, progress: Progress) -> int:
        return self.turns[self.stage(progress) - 1]

    def stage(self, progress: Progress) -> int:
        return 1 + min(progress.step // self.every, len(self.turns) - 1)

    @property
    def full(self) -> int:
        return self.turns[-1]
