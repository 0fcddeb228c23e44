"""The algorithm `mt_grpo`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field, PositiveInt

from palestra.algos.advantages import turn_relative
from palestra.algos.batch import Batch
from palestra.algos.losses import Normalize
from palestra.algos.policy import CriticFree

if TYPE_CHECKING:
    from torch import Tensor


class MultiTurnGRPO(CriticFree):
    """Unbiased multi-turn GRPO: the advantage of a turn is its return relative to the same turn of
    the other trajectories in the group.

    Three things bias GRPO's gradient: a trajectory's own reward in the group mean, the division by
    the standard deviation, and the length in the denominator (arXiv:2503.20783). Here the mean is
    over the other trajectories, nothing is divided by a standard deviation, and the denominator is
    a constant.
    """

    name: Literal["mt_grpo"] = "mt_grpo"
    gamma: float = Field(default=1.0, gt=0, le=1)
    """Discount factor per turn."""
    normalize: Normalize = "constant"
    constant: PositiveInt | None = 256
    """Divisor of the loss: usually the token budget of an episode. It only scales the loss."""

    @property
    def credit_formulas(self) -> list[str]:
        return [
            "A_u = return_u - mean_same_turn(return_u)  # the others of the group at the "
            "same turn, or else their whole returns",
            f"return_u = to_go_turns(reward_u, {self.gamma:.10g})",
        ]

    def turn_credit(self, batch: Batch) -> Tensor:
        return turn_relative(batch.reward_U, batch.trajectory_U, batch.group_N, gamma=self.gamma)
