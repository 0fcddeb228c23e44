"""The algorithm `rloo`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from palestra.algos.advantages import leave_one_out, mean_of_others
from palestra.algos.batch import Batch
from palestra.algos.policy import CriticFree
from palestra.core.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor


class RLOO(CriticFree):
    """RLOO (arXiv:2402.14740): the baseline is the mean reward of the group's other episodes."""

    name: Literal["rloo"] = "rloo"

    @property
    def credit_formulas(self) -> list[str]:
        return [
            "A_i = R_i - mean_others(R_i)  # the others of its group; in a group of one A_i = 0"
        ]

    def explain_credit(self) -> list[str]:
        formula, *rest = super().explain_credit()
        if not self.kl or self.kl_in == "loss":
            return [formula, *rest]
        return [f"{formula} + mean_others(sum_tokens({self.kl:.10g} * KL_c))", *rest]

    def turn_credit(self, batch: Batch) -> Tensor:
        return leave_one_out(batch.reward_N, batch.group_N)[batch.trajectory_U]

    def kl_to_go(self, batch: Batch) -> Tensor:
        """The baseline includes the KL penalty: the mean over the others' whole trajectories."""
        kl_C = self.kl_in_reward(batch)
        kl_N = torch.zeros_like(batch.reward_N, dtype=kl_C.dtype)
        kl_N.index_add_(0, batch.trajectory_C, kl_C)
        return super().kl_to_go(batch) - mean_of_others(kl_N, batch.group_N)[batch.trajectory_C]
