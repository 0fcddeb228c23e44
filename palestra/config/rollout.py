"""How a training step's episodes are played, and how far play may run ahead of learning."""

from __future__ import annotations

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from palestra.core.settings import Settings


class RolloutSettings(Settings):
    tasks: PositiveInt = 16
    """Tasks per training step."""
    group: PositiveInt = 8
    """Trajectories per task."""
    temperature: PositiveFloat = 1.0
    """Sampling temperature."""
    concurrency: PositiveInt = 128
    """Episodes in flight at once."""
    retries: NonNegativeInt = 1
    """How often an episode that a fault ended is begun anew."""
    resample_rounds: NonNegativeInt = 0
    """Dynamic sampling: rounds in which groups without a signal are replaced by fresh ones."""
    skip_solved: float = Field(default=0.0, ge=0, lt=1)
    """How often a task is passed over that taught nothing when it last came: its group succeeded
    throughout, or had no signal.
    """
    prefetch: int = Field(default=0, ge=0, le=1)
    """1: the episodes of the next step are played while the learner learns from this one's, with
    the weights as they were before.
    """
    partial: NonNegativeInt = 0
    """Groups that may still be being played when a step ends.

    They go on with the new weights and count for a later step.
    """
    max_age: PositiveInt | None = None
    """Carried groups that were begun more steps ago are dropped, and counted as `groups/outdated`.

    Default: 4.
    """
    max_staleness: NonNegativeInt = 0
    """Asynchronous: groups are played all the time, up to so many steps ahead of the learner, and
    queued; weights change between turns.

    A step waits only for groups of its own, and none of their tokens was sampled by weights that
    are more steps older than this.
    """

    @property
    def most_age(self) -> int:
        return self.max_age or 4

    @property
    def is_overlapped(self) -> bool:
        """Whether episodes of older weights are learned from."""
        return self.prefetch > 0 or self.partial > 0 or self.max_staleness > 0

    @property
    def is_beside_learner(self) -> bool:
        """Whether episodes are played while the learner is at work."""
        return self.prefetch > 0 or self.max_staleness > 0

    @model_validator(mode="after")
    def _fresh_or_carried(self) -> RolloutSettings:
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
        for name in (
            ("prefetch", "partial", "resample_rounds", "skip_solved") if self.max_staleness else ()
        ):
            if getattr(self, name):
                raise ValueError(
                    f"{name} ({getattr(self, name)}) and max_staleness "
                    f"({self.max_staleness}): set one of them, not both"
                )
        return self
