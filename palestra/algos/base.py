"""The contract of every algorithm: which log-probs it needs, whom it credits, what it minimises."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Literal

from pydantic import NonNegativeFloat
from torch import Tensor

from palestra.algos.losses import Stats
from palestra.batch import Batch
from palestra.settings import Settings
from palestra.types import Group, Trajectory, Turn

Need = Literal["old", "reference"]


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the model being trained says of the chosen tokens."""

    logp_C: Tensor
    entropy_C: Tensor
    """For diagnostics: carries no gradient."""


class Algorithm(Settings):
    """Small, pure and blind to the learner, as the learner is to it. Its settings are itself."""

    name: str
    overlong: Literal["train", "mask"] = "train"
    """Trajectories that a token budget ended: learnt from, or left out of the gradient and of the group's statistics."""

    invalid_penalty: NonNegativeFloat = 0.0
    """Taken off the reward for each turn whose action could not be read or done. The environment's own reward is what is reported."""

    def turn_reward(self, turn: Turn) -> float:
        """What a turn is credited with."""
        return turn.reward - self.invalid_penalty * turn.invalid

    def learnable(self, group: Group) -> list[Trajectory]:
        """The trajectories of a group that enter the gradient and its statistics."""
        kept = [t for t in group.valid if t.sampled_tokens]
        return kept if self.overlong == "train" else [t for t in kept if not t.stop.is_overlong]

    def has_signal(self, group: Group) -> bool:
        """Whether there is something to learn from the group: one without is replaced in dynamic sampling."""
        if not self.compares_within_groups:
            return bool(self.learnable(group))
        return len({sum(map(self.turn_reward, trajectory.turns)) for trajectory in self.learnable(group)}) > 1

    @property
    def needs(self) -> frozenset[Need]:
        """The log-probs to be computed before the first update, besides those the engine gave."""
        return frozenset()

    @property
    def compares_within_groups(self) -> bool:
        """Whether a trajectory without others of its task teaches nothing."""
        return True

    @property
    def learns_only_from_advantages(self) -> bool:
        """Whether a token without an advantage has no gradient, so that it need not be computed."""
        return False

    @abstractmethod
    def explain(self) -> list[str]:
        """The objective as formulas with the numbers filled in, a line each. i: a trajectory, c: a token that the policy chose."""

    def explain_reward(self) -> list[str]:
        """What a trajectory is credited with, and which have no part."""
        penalty = f" - {self.invalid_penalty:g} x (turns with an invalid action)" if self.invalid_penalty else ""
        left_out = "a fault ended" if self.overlong == "train" else "a fault or a token budget ended"
        return [
            f"R_i = sum of the environment's rewards{penalty}",
            f"trajectories that {left_out} have no part, neither here nor in a mean or a deviation",
        ]

    @abstractmethod
    def advantages(self, batch: Batch) -> Tensor:
        """How much better than expected each chosen token's trajectory went."""

    @abstractmethod
    def weights(self, batch: Batch) -> Tensor:
        """What each chosen token's loss counts for in one optimiser step over `batch`."""

    @abstractmethod
    def loss(self, new: Prediction, batch: Batch) -> tuple[Tensor, Stats]:
        """The loss of each chosen token."""
