"""Settings of the collapse guard: bounds on figures that go wrong before a run is lost."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from palestra.algos.base import Algorithm
from palestra.core.settings import Settings

Share = Annotated[float, Field(gt=0, lt=1)]

FIGURES = {
    "entropy_below": "policy/entropy",
    "zero_advantage_above": "groups/zero_advantage",
    "mismatch_above": "policy/mismatch_kl",
    "grad_norm_above": "grad_norm",
    "success_fall": "success",
}
"""What each bound is on, as the metrics call it."""


class GuardSettings(Settings):
    """Each bound is on the mean over `window` steps; those that are not set bind nothing."""

    window: PositiveInt = 10
    """Training steps over which the metrics are averaged."""
    entropy_below: PositiveFloat | None = None
    """Of the policy's choice of a token, in nats."""
    zero_advantage_above: Share | None = None
    """The share of groups from which nothing can be learned."""
    mismatch_above: PositiveFloat | None = None
    """The KL divergence between the policy as the engine and as the learner computes it."""
    grad_norm_above: PositiveFloat | None = None
    """Before clipping."""
    success_fall: Share | None = None
    """How far the success rate may be below the best that it was, both over a window."""
    action: Literal["warn", "rollback", "stop"] = "warn"
    """Say so; go back to the checkpoint from before the window and sample differently from there
    on; or end the run.
    """
    rollbacks: PositiveInt | None = None
    """How often a run may go back before it is ended; 3 where not set."""

    @property
    def most_rollbacks(self) -> int:
        return self.rollbacks or 3

    @property
    def bounds(self) -> dict[str, float]:
        """Those that are set."""
        return {name: value for name in FIGURES if (value := getattr(self, name)) is not None}

    @model_validator(mode="after")
    def _no_idle_settings(self) -> GuardSettings:
        if not self.bounds:
            raise ValueError(
                f"no bound is set, so it has no effect; set one of {', '.join(FIGURES)}"
            )
        if self.rollbacks is not None and self.action != "rollback":
            raise ValueError(
                f"rollbacks = {self.rollbacks}: has no effect with action = "
                f"{self.action!r}; did you mean 'rollback'?"
            )
        return self

    def check(self, algo: Algorithm, reach: int, *, is_beside_learner: bool, partial: int) -> None:
        """What a run has no figure for cannot be bound, and going back must be possible and lead
        somewhere else.

        `reach`: the steps between the oldest checkpoint that is kept and the newest.
        """
        for name in ("success_fall", "zero_advantage_above", "mismatch_above"):
            has_figure = algo.is_on_policy if name == "mismatch_above" else algo.plays
            if name in self.bounds and not has_figure:
                raise ValueError(
                    f"guard.{name} = {self.bounds[name]:g}: has no effect, {algo.name} "
                    "does not learn from play at every step"
                )
        if self.mismatch_above is not None and is_beside_learner:
            raise ValueError(
                f"guard.mismatch_above = {self.mismatch_above:g}: has no effect where all "
                "episodes are of older weights"
            )
        if self.action == "rollback" and not algo.is_on_policy:
            raise ValueError(
                f"guard.action = 'rollback': {algo.name} would go the same way again; use "
                "'warn' or 'stop'"
            )
        if self.action == "rollback" and partial:
            raise ValueError(
                "guard.action = 'rollback': groups in flight (rollout.partial = "
                f"{partial}) cannot go back; use 'warn' or 'stop'"
            )
        if self.action == "rollback" and reach < self.window:
            raise ValueError(
                f"guard.window = {self.window}: save.every * (save.keep - 1) must be at "
                f"least that, and is {reach}: "
                "a rollback needs a checkpoint from before the window"
            )
