"""The state of a run: all it needs to be resumed as if it had never stopped."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import msgspec

from palestra.core.seeds import derive_seed
from palestra.horizons.base import Progress
from palestra.rollout.partial import PendingGroup


@dataclass(frozen=True, slots=True)
class Memory:
    """What the guard remembers of the steps so far. Part of the run's state."""

    recent: dict[str, tuple[float, ...]] = field(default_factory=dict)
    """The last values, at most a window of them, by bound."""
    best_success: float = 0.0
    """The highest mean over a window."""
    broken: tuple[str, ...] = ()
    """The bounds that the last step broke."""
    rollbacks: int = 0
    """How many times the run was rolled back."""


@dataclass(frozen=True)
class State:
    """All that a run needs to be resumed as if it had never stopped. Saved in every checkpoint."""

    step: int = 0
    """Training steps done."""
    tokens: int = 0
    """Of all training episodes so far."""
    tasks_drawn: dict[str, int] = field(default_factory=dict)
    """How many tasks of each environment were drawn."""
    tasks_skipped: dict[str, int] = field(default_factory=dict)
    """How many of those were skipped (`rollout.skip_solved`)."""
    tasks_skippable: dict[str, dict[str, float]] = field(default_factory=dict)
    """Those of each environment whose last group had zero advantage, with the success of that group
    (`rollout.skip_solved`).
    """
    success: dict[str, tuple[float, ...]] = field(default_factory=dict)
    """The success rate of each training step so far in which the environment was played."""
    updates_skipped: int = 0
    in_flight: tuple[PendingGroup, ...] = ()
    """Groups that were started and not yet trained on (`rollout.partial`)."""
    guard: Memory = field(default_factory=Memory)

    def sampling_seed(self, seed: int) -> int:
        """The seed of the next episodes, in a run with this seed. A rollback changes it, since the
        same episodes would lead to the same collapse.
        """
        return derive_seed(seed, "rollback", self.guard.rollbacks) if self.guard.rollbacks else seed

    def progress(self, env: str) -> Progress:
        """The input of this environment's horizon schedule."""
        return Progress(self.step, self.success.get(env, ()))


def state_to_dict(state: State) -> dict[str, Any]:
    return asdict(state)


def state_from_dict(values: dict[str, Any]) -> State:
    return msgspec.convert(values, State)
