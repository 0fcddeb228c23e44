"""The algorithm `remax`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from palestra.algos.advantages import against_baseline
from palestra.algos.batch import Batch
from palestra.algos.policy import CriticFree
from palestra.core.lazy import torch
from palestra.core.types import Group, Trajectory

if TYPE_CHECKING:
    from torch import Tensor


class ReMax(CriticFree):
    """ReMax (arXiv:2310.10505): the baseline is the reward of a greedy episode of the same task."""

    name: Literal["remax"] = "remax"

    @property
    def credit_formulas(self) -> list[str]:
        return ["A_i = R_i - baseline_i  # R of one more episode of the task, played greedily"]

    @property
    def needs_baseline(self) -> bool:
        return True

    @property
    def compares_within_groups(self) -> bool:
        return False

    def learnable(self, group: Group) -> list[Trajectory]:
        """No trajectory if a fault left the group without its baseline."""
        baseline = group.baseline
        if baseline is None or not super().learnable(Group(group.task, [baseline])):
            return []
        return super().learnable(group)

    def rewards_of(self, group: Group) -> Batch:
        batch = super().rewards_of(group)
        return batch.with_(baseline_N=torch.full_like(batch.reward_N, self.baseline_reward(group)))

    def turn_credit(self, batch: Batch) -> Tensor:
        assert batch.baseline_N is not None
        return against_baseline(batch.reward_N, batch.baseline_N)[batch.trajectory_U]
