"""The algorithm `gigpo`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field, NonNegativeFloat

from palestra.algos.advantages import anchored, group_relative, returns_to_go
from palestra.algos.batch import Batch
from palestra.algos.policy import CriticFree

if TYPE_CHECKING:
    from torch import Tensor


class GiGPO(CriticFree):
    """GiGPO (arXiv:2505.10978): GRPO plus a step advantage relative to turns that start from the
    same state.
    """

    name: Literal["gigpo"] = "gigpo"
    scale: bool = True
    """Divide by the standard deviation, of the group and of the turns with the same start state."""
    step_weight: NonNegativeFloat = 1.0
    """Weight of the step advantage relative to the episode advantage."""
    gamma: float = Field(default=0.95, gt=0, le=1)
    """Discount factor per turn."""

    @property
    def weighs_rewards(self) -> bool:
        """Rewards divided by their own standard deviation have no scale."""
        return not self.scale

    @property
    def credit_formulas(self) -> list[str]:
        episode, step = "R_i - mean_group(R_i)", "return_u - mean_same_observation(return_u)"
        if self.scale:
            episode = f"({episode}) / (std_group(R_i) + 1e-06)"
            step = f"({step}) / (std_same_observation(return_u) + 1e-06)"
        return [
            "A_u = episode_i + step_u",
            f"episode_i = {episode}",
            f"step_u = {self.step_weight:.10g} * ({step})  # turns of the group that "
            "began with the same observation",
            f"return_u = to_go_turns(reward_u, {self.gamma:.10g})",
        ]

    def turn_credit(self, batch: Batch) -> Tensor:
        """A group of equal rewards can have a signal too: one trajectory may reach the reward
        sooner than another from the same state.
        """
        episode_N = group_relative(batch.reward_N, batch.group_N, scale=self.scale)
        returns_U = returns_to_go(batch.reward_U, batch.trajectory_U, gamma=self.gamma)
        step_U = anchored(returns_U, batch.anchor_U, scale=self.scale)
        return episode_N[batch.trajectory_U] + self.step_weight * step_U
