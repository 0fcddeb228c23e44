"""The collapse guard: bounds on figures that go wrong before a run is lost, and what is done when one is broken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from palestra.algos.base import Algorithm
from palestra.core.settings import Settings

Share = Annotated[float, Field(gt=0, lt=1)]

FIGURES = {
    "entropy_below": "policy/entropy",
    "dead_above": "groups/dead",
    "mismatch_above": "policy/mismatch_kl",
    "grad_norm_above": "grad_norm",
    "success_fall": "success",
}
"""What each bound is on, as the metrics call it."""


class Collapsed(RuntimeError):
    """A bound was broken, and the run is not to go on."""


class BoundBroken(Exception):
    """A bound was broken, and the run is to go back."""

    def __init__(self, reason: str, step: int, rollbacks: int) -> None:
        super().__init__(reason)
        self.step = step
        self.rollbacks = rollbacks
        """How often it went back already."""


class GuardSettings(Settings):
    """Each bound is on the mean over `window` steps; those that are not set bind nothing."""

    window: PositiveInt = 10
    entropy_below: PositiveFloat | None = None
    """Of the policy's choice of a token, in nats."""
    dead_above: Share | None = None
    """The share of groups from which nothing can be learnt."""
    mismatch_above: PositiveFloat | None = None
    """The KL divergence between the policy as the engine and as the learner computes it."""
    grad_norm_above: PositiveFloat | None = None
    """Before clipping."""
    success_fall: Share | None = None
    """How far the success rate may be below the best that it was, both over a window."""
    action: Literal["warn", "rollback", "stop"] = "warn"
    """Say so; go back to the checkpoint from before the window and sample differently from there on; or end the run."""
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
            raise ValueError(f"no bound is set, so it has no effect; set one of {', '.join(FIGURES)}")
        if self.rollbacks is not None and self.action != "rollback":
            raise ValueError(f"rollbacks = {self.rollbacks}: has no effect with action = {self.action!r}; did you mean 'rollback'?")
        return self

    def check(self, algo: Algorithm, reach: int, *, is_beside_learner: bool, carry: int) -> None:
        """What a run has no figure for cannot be bound, and going back must be possible and lead somewhere else.

        `reach`: the steps between the oldest checkpoint that is kept and the newest.
        """
        for name in ("success_fall", "dead_above", "mismatch_above"):
            if name in self.bounds and algo.source not in (("play", "rounds") if name != "mismatch_above" else ("play",)):
                raise ValueError(f"guard.{name} = {self.bounds[name]:g}: has no effect, {algo.name} does not learn from play at every step")
        if self.mismatch_above is not None and is_beside_learner:
            raise ValueError(f"guard.mismatch_above = {self.mismatch_above:g}: has no effect where all episodes are of older weights")
        if self.action == "rollback" and algo.source != "play":
            raise ValueError(f"guard.action = 'rollback': {algo.name} would go the same way again; use 'warn' or 'stop'")
        if self.action == "rollback" and carry:
            raise ValueError(f"guard.action = 'rollback': groups in flight (rollout.carry = {carry}) cannot go back; use 'warn' or 'stop'")
        if self.action == "rollback" and reach < self.window:
            raise ValueError(
                f"guard.window = {self.window}: save.every * (save.keep - 1) must be at least that, and is {reach}: "
                "a rollback needs a checkpoint from before the window"
            )


@dataclass(frozen=True, slots=True)
class Memory:
    """What the guard knows of the steps so far. Part of the run's state."""

    recent: dict[str, tuple[float, ...]] = field(default_factory=dict)
    """The last values, at most a window of them, by bound."""
    best_success: float = 0.0
    """The highest mean over a window."""
    broken: tuple[str, ...] = ()
    """The bounds that the last step broke."""
    rollbacks: int = 0
    """How often the run went back."""


def watch(settings: GuardSettings, memory: Memory, figures: Mapping[str, float]) -> tuple[Memory, dict[str, str]]:
    """The memory with one more step in it, and the bounds that are broken now, each with what is wrong.

    A figure that the step does not have, as where nothing was learnt, leaves its window as it was.
    """
    recent = dict(memory.recent)
    for bound in settings.bounds:
        if FIGURES[bound] in figures:
            recent[bound] = (*recent.get(bound, ()), figures[FIGURES[bound]])[-settings.window :]
    means = {bound: sum(values) / len(values) for bound, values in recent.items() if len(values) == settings.window}
    best = max(memory.best_success, means.get("success_fall", 0.0))
    limits = settings.bounds | ({"success_fall": best - settings.success_fall} if settings.success_fall is not None else {})
    broken = {}
    for bound, mean in means.items():
        is_above = bound.endswith("_above")
        if mean > limits[bound] if is_above else mean < limits[bound]:
            side = f"{'above' if is_above else 'below'} {limits[bound]:.4g}"
            broken[bound] = f"{FIGURES[bound]} was {mean:.4g} over {settings.window} steps, {side} (guard.{bound})"
    return replace(memory, recent=recent, best_success=best, broken=tuple(broken)), broken
