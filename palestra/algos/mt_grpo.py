"""GRPO for many turns, unbiased: each turn is judged by what followed it, against the others of the group at the same turn.

Three things bias GRPO's gradient: a trajectory's own reward in the mean, the deviation, and the length in the denominator
(arXiv:2503.20783). Here the mean is over the others, nothing is divided by a deviation, and the denominator is a constant.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from palestra.algos.advantages import turn_relative
from palestra.algos.losses import Normalise
from palestra.algos.policy import PolicyGradient
from palestra.batch import Batch
from palestra.types import Group


class MultiTurnGRPO(PolicyGradient):
    name: Literal["mt_grpo"] = "mt_grpo"
    gamma: float = Field(default=1.0, gt=0, le=1)
    """Discount a turn: below 1, what comes later counts less for a turn."""
    normalise: Normalise = "constant"
    constant: PositiveInt | None = 256
    """The token budget of an episode: it sets the scale of the loss and nothing else."""

    @property
    def credit_formula(self) -> str:
        returns = f"G_u = sum over this turn and later ones of {self.gamma:g}^k r"
        return f"G_u - mean G of the others of the group at the same turn;  {returns}"

    def has_signal(self, group: Group) -> bool:
        members = self.learnable(group)
        one_group_N = torch.zeros(len(members), dtype=torch.long)
        return bool(members) and bool((turn_relative(*self.turns_of(members), one_group_N, gamma=self.gamma) != 0).any())

    def advantages(self, batch: Batch) -> Tensor:
        advantage_U = turn_relative(batch.reward_U, batch.owner_U, batch.group_N, gamma=self.gamma)
        return self.penalised(advantage_U[batch.turn_C], batch)
