"""The algorithm `evol`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from palestra.algos.rft import best_of
from palestra.algos.selection import solved
from palestra.algos.sft import Imitation
from palestra.algos.sources import ExpertIteration, Offline, each_alone
from palestra.core.types import Group, Trajectory


class AgentEvol(Imitation):
    """AgentEvol (arXiv:2406.04151): expert iteration. Each round explores, adds the successful
    trajectories to a set, and trains the base model on that set.
    """

    name: Literal["evol"] = "evol"
    round: PositiveInt = 50
    """Training steps per round.

    Each round starts with exploration (`rollout.tasks` x `rollout.group` episodes) and resets the
    weights to the base model.
    """
    min_reward: float = 0.5
    """Minimum reward of explored trajectories that are kept."""
    best: PositiveInt = 1
    """Maximum number of trajectories per task that a round keeps: the highest rewards, then the
    fewest turns.
    """
    data: tuple[str, ...] = ()
    """The base set, part of every round: run folders and files, as for `sft`.

    With a base set, the first round does not explore.
    """
    episodes: NonNegativeInt = 0
    """Episodes of the environment's expert to add to the base set."""
    noise: float = Field(default=0.0, ge=0, le=1)
    """Probability that the expert takes a random valid action instead."""
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
        """The learning-rate schedule restarts with every round."""
        return (step - 1) % self.round, self.round

    def kept(self, group: Group) -> list[Trajectory]:
        """The trajectories of an explored group that join the training set."""
        return best_of(self.learnable(group), min_reward=self.min_reward, best=self.best)

    def explores(self, step: int) -> bool:
        """Whether training step `step` (from 1) starts with exploration."""
        return (step - 1) % self.round == 0 and (step > 1 or not self.has_base_set)

    def explain(self) -> list[str]:
        parts = list(self.data)
        if self.episodes:
            parts.append(f"{self.episodes} episodes of the expert")
        base = f", and of {', '.join(parts)}" if parts else ""
        return [
            *super().explain(),
            f"# over {self.batch} trajectories a step of all kept so far{base}",
            f"# every {self.round} steps: explore, keep the best {self.best} of each task "
            f"with R_i >= {self.min_reward:g}, "
            "go back to the base model",
        ]
