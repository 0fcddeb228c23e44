"""GRPO (arXiv:2402.03300): a trajectory is judged against the others of its task."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from palestra.algos.advantages import group_relative
from palestra.algos.policy import PolicyGradient
from palestra.batch import Batch


class GroupRelative(PolicyGradient):
    """Credit by comparison within the group; what is made of it is up to the subclasses' defaults."""

    scale: bool = True
    """Divide by the group's standard deviation."""

    @property
    def credit_formula(self) -> str:
        centred = "R_i - mean R of the group"
        return f"({centred}) / (deviation of R in the group + 1e-6)" if self.scale else centred

    def advantages(self, batch: Batch) -> Tensor:
        return self.penalised(group_relative(batch.reward_N, batch.group_N, scale=self.scale)[batch.owner_C], batch)


class GRPO(GroupRelative):
    name: Literal["grpo"] = "grpo"
