"""How many turns an agent may take as training goes on (ScalingInter-RL, arXiv:2509.08755).

A schedule is a pure function of `Progress`, and its settings are itself. Resuming gives the horizon that never stopping gives.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Literal

from pydantic import Field, PositiveInt, model_validator

from palestra.registry import Registry
from palestra.settings import Settings


@dataclass(frozen=True, slots=True)
class Progress:
    """What a schedule may look at. It is saved in the checkpoint."""

    step: int
    """Training steps done."""
    success: tuple[float, ...] = ()
    """The success rate of each training step so far."""


class Horizon(Settings):
    """Base of all schedules."""

    kind: str

    @abstractmethod
    def __call__(self, progress: Progress) -> int:
        """The turns that episodes of the next step may take."""

    @abstractmethod
    def stage(self, progress: Progress) -> int:
        """The stage of the curriculum, counted from 0; the viewer draws it as a band."""

    @property
    @abstractmethod
    def full(self) -> int:
        """The longest horizon of the schedule: what evaluation uses unless told otherwise."""


class Fixed(Horizon):
    """The same number of turns at every step."""

    kind: Literal["fixed"] = "fixed"
    turns: PositiveInt = 20

    def __call__(self, progress: Progress) -> int:
        return self.turns

    def stage(self, progress: Progress) -> int:
        return 0

    @property
    def full(self) -> int:
        return self.turns


class Stages(Horizon):
    """The paper's schedule: `turns[k]` during the k-th stretch of `every` steps, the last one for ever."""

    kind: Literal["stages"] = "stages"
    turns: tuple[PositiveInt, ...] = Field(min_length=1)
    every: PositiveInt

    @model_validator(mode="after")
    def _growing(self) -> Stages:
        if list(self.turns) != sorted(self.turns):
            raise ValueError(f"turns must not shrink, got {list(self.turns)}")
        return self

    def __call__(self, progress: Progress) -> int:
        return self.turns[self.stage(progress)]

    def stage(self, progress: Progress) -> int:
        return min(progress.step // self.every, len(self.turns) - 1)

    @property
    def full(self) -> int:
        return self.turns[-1]


class Linear(Horizon):
    """From `first` to `last` turns in equal strides over `steps` training steps."""

    kind: Literal["linear"] = "linear"
    first: PositiveInt
    last: PositiveInt
    steps: PositiveInt

    @model_validator(mode="after")
    def _growing(self) -> Linear:
        if self.last < self.first:
            raise ValueError(f"last ({self.last}) must not be below first ({self.first})")
        return self

    def __call__(self, progress: Progress) -> int:
        return self.first + self.stage(progress)

    def stage(self, progress: Progress) -> int:
        return (self.last - self.first) * min(progress.step, self.steps) // self.steps

    @property
    def full(self) -> int:
        return self.last


horizons: Registry[type[Horizon]] = Registry(
    "horizons",
    {
        "fixed": "palestra.horizon:Fixed",
        "stages": "palestra.horizon:Stages",
        "linear": "palestra.horizon:Linear",
    },
)
