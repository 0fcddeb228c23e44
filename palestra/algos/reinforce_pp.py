"""The algorithm `reinforce_pp`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from palestra.algos.advantages import group_relative, whiten
from palestra.algos.batch import Batch
from palestra.algos.policy import CriticFree

if TYPE_CHECKING:
    from torch import Tensor


class ReinforcePP(CriticFree):
    """REINFORCE++ (arXiv:2501.03262): advantages normalized over the whole batch, with or without
    the group's mean as a baseline.
    """

    name: Literal["reinforce_pp"] = "reinforce_pp"
    baseline: bool = False
    """Subtract the group's mean reward first."""

    @property
    def compares_within_groups(self) -> bool:
        return self.baseline

    @property
    def may_lack_signal(self) -> bool:
        """Without a baseline, advantages are relative to all trajectories of the step."""
        return self.baseline

    @property
    def credit_formulas(self) -> list[str]:
        return ["A_i = R_i - mean_group(R_i)" if self.baseline else "A_i = R_i"]

    def explain_credit(self) -> list[str]:
        formula, *rest = super().explain_credit()
        before = formula.removeprefix("A_c = ")
        return [
            f"A_c = whiten_step({before})  # mean 0 and deviation 1 over the action "
            "tokens of the step",
            *rest,
        ]

    def turn_credit(self, batch: Batch) -> Tensor:
        credit_N = batch.reward_N
        if self.baseline:
            credit_N = group_relative(batch.reward_N, batch.group_N, scale=False)
        return credit_N[batch.trajectory_U]

    def advantages(self, batch: Batch) -> Tensor:
        return whiten(super().advantages(batch))
