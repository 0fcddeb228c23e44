"""The result of an evaluation, as it is returned, stored, shown and sent to trackers."""

from __future__ import annotations

from typing import Annotated

import msgspec

LARGEST = 1e100
"""Stored figures are no larger: nothing that is worked out from them overflows."""

Share = Annotated[float, msgspec.Meta(ge=-1, le=2)]
"""A share of all, with room for rounding and for intervals."""
Figure = Annotated[float, msgspec.Meta(ge=-LARGEST, le=LARGEST)]
Count = Annotated[int, msgspec.Meta(ge=0, le=10**12)]


class Estimate(float):
    """A number with its 95% interval. Prints as "89.3% [85.3%, 92.3%]"."""

    low: float
    high: float

    def __new__(cls, value: float, interval: tuple[float, float]) -> Estimate:
        self = super().__new__(cls, value)
        self.low, self.high = interval
        return self

    def __str__(self) -> str:
        return f"{float(self):.1%} [{self.low:.1%}, {self.high:.1%}]"

    def __repr__(self) -> str:
        return f"Estimate({float(self)!r}, ({self.low!r}, {self.high!r}))"


class Score(msgspec.Struct, frozen=True):
    """Results over some tasks, each with its 95% interval."""

    tasks: Count
    episodes: Count
    success: Share
    """avg@k: the mean over tasks of the share of successful episodes."""
    success_interval: tuple[Share, Share]
    pass_at_k: Share
    """The share of tasks solved in at least one of k episodes, of those tasks that have k: faults
    leave others with fewer.
    """
    pass_interval: tuple[Share, Share]
    reward: Figure
    """The mean over tasks of their episodes' mean reward."""
    turns: Figure
    """Up to the horizon, per episode."""
    tokens: Figure
    """Sampled up to the horizon, per episode."""
    reward_interval: tuple[Figure, Figure] | None = None
    """Of the mean over tasks: what counts where tasks can be done in part, as in SciWorld. None
    where nothing can be said of it.
    """


class HorizonScores(msgspec.Struct, frozen=True):
    """Results of one environment at one horizon."""

    all: Score
    categories: dict[str, Score]


Horizons = Annotated[dict[str, HorizonScores], msgspec.Meta(min_length=1)]
"""By the number of turns, the longest last."""


class EvalResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an evaluation. `eval/*.json` in the run folder holds it as it is."""

    phase: str
    """"raw", "warm start", "interim", "final"; of `palestra eval` the agent, or "eval"."""
    step: Count
    split: str = ""
    ids: str | msgspec.UnsetType = msgspec.UNSET
    """The file that named the tasks, in place of a split."""
    splits: dict[str, int] | msgspec.UnsetType = msgspec.UNSET
    """How many of the named tasks belong to which split."""
    k: Count
    """Episodes of each task."""
    faults: Count = 0
    """Episodes that a fault ended; they are not counted in any score."""
    all: Score
    """All tasks, at the horizon they were played with."""
    envs: dict[str, Horizons]

    @property
    def name(self) -> str:
        """What its files in the run folder are called."""
        return f"step-{self.step:06d}-{self.phase.replace(' ', '-')}"

    @property
    def success(self) -> Estimate:
        """The success rate over all tasks, with its 95% interval."""
        return Estimate(self.all.success, self.all.success_interval)

    @property
    def reward(self) -> float:
        """The mean reward over all tasks."""
        return self.all.reward

    def at_full_horizon(self) -> dict[str, HorizonScores]:
        """By environment."""
        return {env: list(horizons.values())[-1] for env, horizons in self.envs.items()}
