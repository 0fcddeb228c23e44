"""REINFORCE++ (arXiv:2501.03262): rewards whitened over the whole batch, with or without the group's mean as a baseline."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from palestra.algos.advantages import group_relative, whiten
from palestra.algos.policy import PolicyGradient
from palestra.batch import Batch


class ReinforcePP(PolicyGradient):
    name: Literal["reinforce_pp"] = "reinforce_pp"
    baseline: bool = False
    """Take off the mean of the group first."""

    @property
    def compares_within_groups(self) -> bool:
        return self.baseline

    @property
    def credit_formula(self) -> str:
        return f"{'R_i - mean R of the group' if self.baseline else 'R_i'}, whitened over all chosen tokens of the step"

    def advantages(self, batch: Batch) -> Tensor:
        credit_N = group_relative(batch.reward_N, batch.group_N, scale=False) if self.baseline else batch.reward_N
        return whiten(self.penalised(credit_N[batch.owner_C], batch))
