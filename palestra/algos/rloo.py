"""RLOO (arXiv:2402.14740): a trajectory is judged against the mean of the others of its task."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from palestra.algos.advantages import leave_one_out
from palestra.algos.policy import PolicyGradient
from palestra.batch import Batch


class RLOO(PolicyGradient):
    name: Literal["rloo"] = "rloo"

    @property
    def credit_formula(self) -> str:
        return "R_i - mean R of the others in the group"

    def advantages(self, batch: Batch) -> Tensor:
        return self.penalised(leave_one_out(batch.reward_N, batch.group_N)[batch.owner_C], batch)
