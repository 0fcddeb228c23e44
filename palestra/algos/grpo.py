"""The algorithm `grpo`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from palestra.algos.advantages import group_relative
from palestra.algos.batch import Batch
from palestra.algos.policy import CriticFree

if TYPE_CHECKING:
    from torch import Tensor


class GroupRelative(CriticFree):
    """Group-relative advantages; subclasses differ in the defaults of their settings."""

    scale: bool = True
    """Divide by the group's standard deviation."""

    @property
    def weighs_rewards(self) -> bool:
        """Rewards divided by their own standard deviation have no scale."""
        return not self.scale

    @property
    def credit_formulas(self) -> list[str]:
        centered = "R_i - mean_group(R_i)"
        if not self.scale:
            return [f"A_i = {centered}"]
        return [
            f"A_i = ({centered}) / (std_group(R_i) + 1e-06)  # 0 where all R_i of the "
            "group are equal"
        ]

    def turn_credit(self, batch: Batch) -> Tensor:
        return group_relative(batch.reward_N, batch.group_N, scale=self.scale)[batch.trajectory_U]


class GRPO(GroupRelative):
    """GRPO (arXiv:2402.03300): advantages are rewards relative to the group."""

    name: Literal["grpo"] = "grpo"
