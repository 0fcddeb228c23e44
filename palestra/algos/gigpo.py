"""GiGPO (arXiv:2505.10978): GRPO, and besides it each turn is judged against those that began at the same place."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field, NonNegativeFloat
from torch import Tensor

from palestra.algos.advantages import anchored, group_relative, returns_to_go
from palestra.algos.policy import PolicyGradient
from palestra.batch import Batch
from palestra.types import Group


class GiGPO(PolicyGradient):
    name: Literal["gigpo"] = "gigpo"
    scale: bool = True
    """Divide by the standard deviation, of the group and of the turns that share a place."""
    step_weight: NonNegativeFloat = 1.0
    """What the credit of turns counts for beside that of trajectories."""
    gamma: float = Field(default=0.95, gt=0, le=1)
    """Discount a turn."""

    @property
    def credit_formula(self) -> str:
        over = " / deviation" if self.scale else ""
        step = f"(G_u - mean G of the turns with the same observation in the group){over}"
        return f"(R_i - mean R of the group){over} + {self.step_weight:g} {step},  G_u = sum over later turns of {self.gamma:g}^k r"

    def has_signal(self, group: Group) -> bool:
        """Equal rewards teach as well, where one came sooner than another from the same place."""
        if super().has_signal(group):
            return True
        members = self.learnable(group)
        seen = [turn.observation for trajectory in members for turn in trajectory.turns]
        if not seen:
            return False
        places = {text: number for number, text in enumerate(dict.fromkeys(seen))}
        returns_U = returns_to_go(*self.turns_of(members), gamma=self.gamma)
        return bool((anchored(returns_U, torch.tensor([places[text] for text in seen]), scale=False) != 0).any())

    def advantages(self, batch: Batch) -> Tensor:
        episode_C = group_relative(batch.reward_N, batch.group_N, scale=self.scale)[batch.owner_C]
        returns_U = returns_to_go(batch.reward_U, batch.owner_U, gamma=self.gamma)
        step_C = anchored(returns_U, batch.anchor_U, scale=self.scale)[batch.turn_C]
        return self.penalised(episode_C + self.step_weight * step_C, batch)
