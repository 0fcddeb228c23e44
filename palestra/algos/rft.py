"""The algorithm `rft`."""

from __future__ import annotations

from typing import Literal

from pydantic import PositiveInt

from palestra.algos.selection import ROUNDING
from palestra.algos.sft import Imitation
from palestra.core.types import Group, Trajectory


def best_of(trajectories: list[Trajectory], *, min_reward: float, best: int) -> list[Trajectory]:
    """The `best` trajectories by reward, then by fewer turns; none with less than `min_reward`."""
    good = [t for t in trajectories if t.reward >= min_reward - ROUNDING]
    return sorted(good, key=lambda t: (-round(t.reward, 9), len(t.turns), t.id))[:best]


class RFT(Imitation):
    """Rejection-sampling fine-tuning (arXiv:2308.01825): sample, keep the best trajectories of each
    task, and fine-tune on them.
    """

    name: Literal["rft"] = "rft"
    min_reward: float = 0.5
    """Minimum reward; trajectories below it are rejected."""
    best: PositiveInt = 1
    """Maximum number of trajectories kept per task: the highest rewards, then the fewest turns."""

    @property
    def may_lack_signal(self) -> bool:
        """All trajectories of a group can be rejected."""
        return True

    def learnable(self, group: Group) -> list[Trajectory]:
        return best_of(super().learnable(group), min_reward=self.min_reward, best=self.best)

    def explain(self) -> list[str]:
        return [
            *super().explain(),
            f"# over the best {self.best} trajectories of each task, those with R_i >= "
            f"{self.min_reward:g}",
        ]
