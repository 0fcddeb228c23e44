"""How episodes of training steps are sampled, and how far sampling may run ahead of learning."""

from __future__ import annotations

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from palestra.core.settings import Settings


class RolloutSettings(Settings):
    """How the episodes of a training step are sampled."""

    tasks: PositiveInt = 16
    """Tasks per training step."""
    group: PositiveInt = 8
    """Trajectories per task."""
    temperature: PositiveFloat = 1.0
    """Sampling temperature."""
    concurrency: PositiveInt = 128
    """Maximum number of concurrent episodes."""
    retries: NonNegativeInt = 1
    """Maximum number of retries of an episode that ended in a fault."""
    resample_rounds: NonNegativeInt = 0
    """Dynamic sampling: maximum number of rounds that replace groups without a learning signal."""
    skip_solved: float = Field(default=0.0, ge=0, lt=1)
    """Probability of skipping a task whose last group succeeded throughout or had zero advantage.
    """
    prefetch: int = Field(default=0, ge=0, le=1)
    """With 1, the episodes of the next step are sampled during the update, with the weights from
    before it.
    """
    partial: NonNegativeInt = 0
    """Partial rollouts: up to this many unfinished groups carry over to the next step and continue
    with the updated weights.
    """
    max_age: PositiveInt | None = None
    """Maximum age in steps of groups that carry over; older groups are dropped and counted as
    `groups/outdated`. Default: 4.
    """
    max_staleness: NonNegativeInt = 0
    """Asynchronous rollouts: groups are sampled continuously, up to this many steps ahead of the
    learner, and queued; weights are synced between turns.

    No token of a step was sampled by weights more than this many updates old. 0: synchronous.
    """

    @property
    def most_age(self) -> int:
        return self.max_age or 4

    @property
    def is_overlapped(self) -> bool:
        """Whether steps train on episodes of older weights."""
        return self.prefetch > 0 or self.partial > 0 or self.max_staleness > 0

    @property
    def is_concurrent(self) -> bool:
        """Whether episodes are sampled during the update."""
        return self.prefetch > 0 or self.max_staleness > 0

    @model_validator(mode="after")
    def _no_conflicts(self) -> RolloutSettings:
        if self.partial and self.resample_rounds:
            raise ValueError(
                f"resample_rounds ({self.resample_rounds}) and partial ({self.partial}): "
                "set one of them, not both"
            )
        if self.max_age is not None and not self.partial:
            raise ValueError(
                f"max_age = {self.max_age}: has no effect while partial = 0, no group is "
                "older than its step"
            )
        for name in ("prefetch", "partial", "resample_rounds", "skip_solved"):
            if self.max_staleness and getattr(self, name):
                raise ValueError(
                    f"{name} ({getattr(self, name)}) and max_staleness "
                    f"({self.max_staleness}): set one of them, not both"
                )
        return self
