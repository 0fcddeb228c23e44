"""AgentEvol (arXiv:2406.04151): explore, keep what succeeded, train the base model anew on all that
was kept; again.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from palestra.algos.rft import best_of
from palestra.algos.selection import solved
from palestra.algos.sft import Imitation
from palestra.algos.sources import ExpertIteration, Offline, each_alone
from palestra.core.types import Group, Trajectory


class AgentEvol(Imitation):
    name: Literal["evol"] = "evol"
    round: PositiveInt = 50
    """Training steps of a round.

    Each begins with exploration (`rollout.tasks` x `rollout.group` episodes) and the base model.
    """
    min_reward: float = 0.5
    """What an explored trajectory must reach to be kept."""
    best: PositiveInt = 1
    """Trajectories of a task that a round keeps at the most, by reward and then by fewer turns."""
    data: tuple[str, ...] = ()
    """The base set, kept in all rounds: run folders and files, as for `sft`.

    With a base set the first round does not explore.
    """
    episodes: NonNegativeInt = 0
    """Episodes of the environment's expert that join the base set."""
    noise: float = Field(default=0.0, ge=0, le=1)
    """The share of the expert's actions that are any valid ones."""
    batch: PositiveInt = 32
    """Trajectories per training step."""

    @model_validator(mode="after")
    def _no_idle_settings(self) -> AgentEvol:
        if self.noise and not self.episodes:
            raise ValueError("noise is the expert's, who has no part while episodes = 0")
        return self

    def source(self) -> ExpertIteration:
        base = Offline(
            self.batch,
            self._select,
            self.data,
            f"no trajectory has a reward of at least {self.min_reward:g}",
            self.episodes,
            self.noise,
        )
        return ExpertIteration(base, self.round, self.explores, self.kept)

    def _select(self, trajectories: list[Trajectory]) -> list[Group]:
        return each_alone(solved(trajectories, min_reward=self.min_reward))

    @property
    def has_base_set(self) -> bool:
        return bool(self.data or self.episodes)

    @property
    def keeps_reference(self) -> bool:
        return True

    def lr_progress(self, step: int, steps: int) -> tuple[int, int]:
        """Every round begins anew, and so does its learning rate."""
        return (step - 1) % self.round, self.round

    def kept(self, group: Group) -> list[Trajectory]:
        """What exploration adds to the set that is imitated."""
        return best_of(self.learnable(group), min_reward=self.min_reward, best=self.best)

    def explores(self, step: int) -> bool:
        """Whether training step `step` (from 1) begins with exploration."""
        return (step - 1) % self.round == 0 and (step > 1 or not self.has_base_set)

    def explain(self) -> list[str]:
        base = ", ".join(
            [*self.data, *([f"{self.episodes} episodes of the expert"] if self.episodes else [])]
        )
        return [
            *super().explain(),
            f"# over {self.batch} trajectories a step of all kept so "
            f"far{f', and of {base}' if base else ''}",
            f"# every {self.round} steps: explore, keep the best {self.best} of each task "
            f"with R_i >= {self.min_reward:g}, "
            "go back to the base model",
        ]
