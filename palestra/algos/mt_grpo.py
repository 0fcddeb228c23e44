"""GRPO for many turns, unbiased: each turn is judged by what followed it, against the others of the
group at the same turn.

Three things bias GRPO's gradient: a trajectory's own reward in the mean, the deviation, and the
length in the denominator (arXiv:2503.20783). Here the mean is over the others, nothing is divided
by a deviation, and the denominator is a constant.
"""

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
    name: Literal["mt_grpo"] = "mt_grpo"
    gamma: float = Field(default=1.0, gt=0, le=1)
    """Discount a turn: below 1, what comes later counts less for a turn."""
    normalize: Normalize = "constant"
    constant: PositiveInt | None = 256
    """The token budget of an episode: it sets the scale of the loss and nothing else."""

    @property
    def credit_formulas(self) -> list[str]:
        return [
            "A_u = return_u - mean_same_turn(return_u)  # the others of the group at the "
            "same turn, or else their whole returns",
            f"return_u = to_go_turns(reward_u, {self.gamma:.10g})",
        ]

    def turn_credit(self, batch: Batch) -> Tensor:
        return turn_relative(batch.reward_U, batch.trajectory_U, batch.group_N, gamma=self.gamma)
