"""The contract of every algorithm: where it learns from, what it needs to know, whom it credits,
what it minimizes.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import NonNegativeInt, PositiveFloat

from palestra.algos.batch import Batch, Unit, own_rewards
from palestra.algos.losses import Stats
from palestra.algos.sources import Offline, OnPolicy, Source
from palestra.core.settings import Settings
from palestra.core.types import Group, Trajectory

if TYPE_CHECKING:
    from torch import Tensor

Need = Literal["old", "reference", "value"]


@dataclass(frozen=True, slots=True)
class PolicyOutput:
    """What the model being trained says of the chosen tokens."""

    logp_C: Tensor
    entropy_C: Tensor
    """Carries a gradient only where the algorithm asks for one."""
    value_C: Tensor | None = None
    """What the critic expects before each of them, where there is a critic."""


class Algorithm(Settings):
    """Small, pure and blind to the learner, as the learner is to it. Its settings are itself."""

    name: str
    means_of_loss: ClassVar[frozenset[str]] = frozenset()
    """Diagnostics that are averaged as the loss is, by `weights`.

    All others are means over all action tokens.
    """

    def source(self) -> Source:
        """Where a step's trajectories come from."""
        return OnPolicy()

    @property
    def is_on_policy(self) -> bool:
        """Whether the policy plays at every step."""
        return isinstance(self.source(), OnPolicy)

    @property
    def plays(self) -> bool:
        """Whether the policy plays at all while it is trained."""
        return not isinstance(self.source(), Offline)

    @property
    def weighs_rewards(self) -> bool:
        """Whether the size of a reward matters, beside which one is larger."""
        return False

    def temperature(self, sampling: float) -> float:
        """That of the log-probs which are learned from,
        where episodes are sampled at `sampling`.
        """
        return sampling

    def learnable(self, group: Group) -> list[Trajectory]:
        """The trajectories of a group that enter the gradient and its statistics."""
        return [t for t in group.valid if t.sampled_tokens]

    def turn_rewards(self, trajectory: Trajectory) -> list[float]:
        """What each turn is credited with."""
        return own_rewards(trajectory)

    def has_signal(self, group: Group) -> bool:
        """Whether there is something to learn from the group: one without is replaced in dynamic
        sampling.
        """
        return bool(self.learnable(group))

    @property
    def may_lack_signal(self) -> bool:
        """Whether a group of sound episodes can be without a signal, so that playing another one in
        its place can help.
        """
        return False

    @property
    def needs(self) -> frozenset[Need]:
        """What is to be computed before the first update, besides the log-probs that the engine
        gave.
        """
        return frozenset()

    @property
    def keeps_reference(self) -> bool:
        """Whether the model as it was before the first step is kept, and goes with the run."""
        return "reference" in self.needs

    @property
    def needs_baseline(self) -> bool:
        """Whether each task is played once more, greedily, to compare with."""
        return False

    def baseline_reward(self, group: Group) -> float:
        """What the greedy episode of the group's task is credited with."""
        assert group.baseline is not None
        return math.fsum(self.turn_rewards(group.baseline))

    @property
    def critic_settings(self) -> CriticSettings | None:
        return None

    @property
    def compares_within_groups(self) -> bool:
        """Whether a trajectory without others of its task teaches nothing."""
        return False

    @property
    def off_policy_error(self) -> str:
        """Why it cannot learn from episodes that were sampled by older weights;
        empty where it can.
        """
        return "takes no importance ratios, so nothing would make up for episodes of older weights"

    @property
    def supports_off_policy(self) -> bool:
        """Whether tokens are weighed by how likely the learner's own policy is to choose them next
        to the one that sampled them.
        """
        return False

    @property
    def learns_only_from_advantages(self) -> bool:
        """Whether a token without an advantage has no gradient but that of the entropy, so that it
        need not be computed.
        """
        return False

    @property
    def unit(self) -> Unit:
        """What one forward pass must hold whole for the loss to be computed."""
        return "segment"

    def lr_progress(self, step: int, steps: int) -> tuple[int, int]:
        """Where training step `step` (from 1) stands in the schedule of the learning rate, and how
        long that is.
        """
        return step - 1, steps

    @abstractmethod
    def explain(self) -> list[str]:
        """The objective as formulas that can be computed, with the numbers filled in: `name =
        expression  # comment`, a line each.

        Suffixes say what a name has one number for: c an action token, u a turn, i a trajectory, p
        a pair. The first line is what is maximized, over what one optimizer step learns from. Lines
        that begin with # are for people alone.
        """

    @abstractmethod
    def add_advantages(self, batch: Batch) -> Batch:
        """The batch with what the loss will read of it: advantages, and returns where there is a
        critic.
        """

    @abstractmethod
    def weights(self, batch: Batch) -> Tensor:
        """What each chosen token's loss counts for in one optimizer step over `batch`."""

    @abstractmethod
    def loss(self, policy: PolicyOutput, batch: Batch) -> tuple[Tensor, Stats]:
        """The loss of each chosen token."""


class CriticSettings(Settings):
    """Who estimates what is still to come."""

    kind: Literal["head", "model"] = "head"
    """One more output of the policy's own network, or a network of its own that begins as a copy of
    it.
    """
    lr: PositiveFloat | None = None
    """Of the critic's own parameters; as the policy's where not set."""
    warmup: NonNegativeInt = 0
    """Training steps in which the critic learns and the policy does not."""
