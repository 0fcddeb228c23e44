"""Settings of the collapse guard: bounds on metrics that show a collapsing run early."""

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
"""The metric that each bound applies to."""


class GuardSettings(Settings):
    """Bounds on means over `window` steps; bounds that are not set do not apply."""

    window: PositiveInt = 10
    """Training steps over which the metrics are averaged."""
    entropy_below: PositiveFloat | None = None
    """Lower bound on the policy's entropy per token, in nats."""
    zero_advantage_above: Share | None = None
    """Upper bound on the fraction of groups without a learning signal."""
    mismatch_above: PositiveFloat | None = None
    """Upper bound on the KL divergence between the engine's and the learner's log-probs."""
    grad_norm_above: PositiveFloat | None = None
    """Upper bound on the gradient norm before clipping."""
    success_fall: Share | None = None
    """Maximum drop of the success rate below its best value, both averaged over a window."""
    action: Literal["warn", "rollback", "stop"] = "warn"
    """If a bound is crossed: log a warning; return to the checkpoint from before the window and
    sample with other noise from there; or end the run.
    """
    rollbacks: PositiveInt | None = None
    """Maximum number of rollbacks before the run ends. Default: 3."""

    @property
    def most_rollbacks(self) -> int:
        return self.rollbacks or 3

    @property
    def bounds(self) -> dict[str, float]:
        """The bounds that are set, by name."""
        values = {name: getattr(self, name) for name in FIGURES}
        return {name: value for name, value in values.items() if value is not None}

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

    def check(self, algo: Algorithm, reach: int, *, is_concurrent: bool, partial: int) -> None:
        """Raise ValueError for bounds on metrics that the run does not have, and for rollbacks that
        are impossible or would repeat the same steps.

        `reach`: the number of steps from the oldest kept checkpoint to the newest.
        """
        for name in ("success_fall", "zero_advantage_above", "mismatch_above"):
            has_figure = algo.is_on_policy if name == "mismatch_above" else algo.plays
            if name in self.bounds and not has_figure:
                raise ValueError(
                    f"guard.{name} = {self.bounds[name]:g}: has no effect, {algo.name} "
                    "does not learn from play at every step"
                )
        if self.mismatch_above is not None and is_concurrent:
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
