"""ReMax (arXiv:2310.10505): a trajectory is judged against the greedy one of its task."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from palestra.algos.advantages import against_baseline
from palestra.algos.policy import PolicyGradient
from palestra.batch import Batch
from palestra.types import Group, Trajectory


class ReMax(PolicyGradient):
    name: Literal["remax"] = "remax"

    @property
    def credit_formula(self) -> str:
        return "R_i - R of one more episode of the task, played greedily"

    @property
    def needs_baseline(self) -> bool:
        return True

    @property
    def compares_within_groups(self) -> bool:
        return False

    def learnable(self, group: Group) -> list[Trajectory]:
        """None where a fault left the group without its baseline."""
        baseline = group.baseline
        has_baseline = baseline is not None and super().learnable(Group(group.task, [baseline]))
        return super().learnable(group) if has_baseline else []

    def has_signal(self, group: Group) -> bool:
        members = self.learnable(group)
        return bool(members) and {sum(self.turn_rewards(t)) for t in members} != {sum(self.turn_rewards(_greedy(group)))}

    def advantages(self, batch: Batch) -> Tensor:
        assert batch.baseline_N is not None
        return self.penalised(against_baseline(batch.reward_N, batch.baseline_N)[batch.owner_C], batch)


def _greedy(group: Group) -> Trajectory:
    assert group.baseline is not None
    return group.baseline
