"""The contract of every algorithm: its data source, the estimates it needs, its advantages and its
loss.
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
    """The trained model's outputs for the action tokens."""

    logp_C: Tensor
    entropy_C: Tensor
    """Has a gradient only if the algorithm asks for one."""
    value_C: Tensor | None = None
    """The critic's estimate before each token; None without a critic."""


class Algorithm(Settings):
    """An algorithm: pure functions whose object is its own settings.

    It knows nothing of the learner, and the learner does not know which algorithm it runs.
    """

    name: str
    means_of_loss: ClassVar[frozenset[str]] = frozenset()
    """Diagnostics averaged by the loss's own `weights`.

    All others are means over all action tokens.
    """

    def source(self) -> Source:
        """The data source of each step's trajectories."""
        return OnPolicy()

    @property
    def is_on_policy(self) -> bool:
        """Whether every step trains on new rollouts of the policy."""
        return isinstance(self.source(), OnPolicy)

    @property
    def plays(self) -> bool:
        """Whether training includes any rollouts of the policy."""
        return not isinstance(self.source(), Offline)

    @property
    def weighs_rewards(self) -> bool:
        """Whether the scale of rewards matters, and not only their order."""
        return False

    def temperature(self, sampling: float) -> float:
        """The temperature of the trained log-probs, given the sampling temperature."""
        return sampling

    def learnable(self, group: Group) -> list[Trajectory]:
        """The trajectories of a group that enter the gradient and its statistics."""
        return [t for t in group.valid if t.sampled_tokens]

    def turn_rewards(self, trajectory: Trajectory) -> list[float]:
        """The reward of each turn, as the advantages count it."""
        return own_rewards(trajectory)

    def has_signal(self, group: Group) -> bool:
        """Whether the group has a learning signal; dynamic sampling replaces groups without one."""
        return bool(self.learnable(group))

    @property
    def may_lack_signal(self) -> bool:
        """Whether a group of valid episodes can lack a signal, so that replacing it can help."""
        return False

    @property
    def needs(self) -> frozenset[Need]:
        """Estimates to compute before the first update, besides the engine's log-probs."""
        return frozenset()

    @property
    def keeps_reference(self) -> bool:
        """Whether the run keeps a copy of the model from before the first step."""
        return "reference" in self.needs

    @property
    def needs_baseline(self) -> bool:
        """Whether each task gets one more episode, sampled greedily, as a baseline."""
        return False

    def baseline_reward(self, group: Group) -> float:
        """The reward of the greedy episode of the group's task."""
        assert group.baseline is not None
        return math.fsum(self.turn_rewards(group.baseline))

    @property
    def critic_settings(self) -> CriticSettings | None:
        return None

    @property
    def compares_within_groups(self) -> bool:
        """Whether advantages are relative to the group, so that a group of one teaches nothing."""
        return False

    @property
    def off_policy_error(self) -> str:
        """Why it cannot learn from episodes sampled by older weights; empty if it can."""
        return "takes no importance ratios, so nothing would make up for episodes of older weights"

    @property
    def supports_off_policy(self) -> bool:
        """Whether importance weights correct for tokens that older weights sampled."""
        return False

    @property
    def learns_only_from_advantages(self) -> bool:
        """Whether a token with advantage 0 has no gradient apart from the entropy bonus, so that
        its forward pass can be skipped.
        """
        return False

    @property
    def unit(self) -> Unit:
        """What must not be split across forward passes, because the loss needs all of it."""
        return "segment"

    def lr_progress(self, step: int, steps: int) -> tuple[int, int]:
        """The position of training step `step` (from 1) in the learning-rate schedule, and the
        schedule's length.
        """
        return step - 1, steps

    @abstractmethod
    def explain(self) -> list[str]:
        """The objective as formulas that can be evaluated, with the numbers filled in: one `name =
        expression  # comment` per line.

        Suffixes say what a name has one value per: c an action token, u a turn, i a trajectory, p a
        pair. The first line is the maximized objective of one optimizer step. Lines that begin with
        # are comments for the reader.
        """

    @abstractmethod
    def add_advantages(self, batch: Batch) -> Batch:
        """The batch with what the loss reads: advantages, and returns if there is a critic."""

    @abstractmethod
    def weights(self, batch: Batch) -> Tensor:
        """The weight of each action token's loss in one optimizer step over `batch`."""

    @abstractmethod
    def loss(self, policy: PolicyOutput, batch: Batch) -> tuple[Tensor, Stats]:
        """The loss of each action token, and its diagnostics."""


class CriticSettings(Settings):
    """The value function."""

    kind: Literal["head", "model"] = "head"
    """"head": a value head on the policy network. "model": a separate network, initialized as a
    copy of the policy.
    """
    lr: PositiveFloat | None = None
    """Learning rate of the critic's own parameters. Default: the policy's."""
    warmup: NonNegativeInt = 0
    """Training steps in which only the critic is updated."""
