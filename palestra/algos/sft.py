"""The algorithm `sft`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field, PositiveInt, model_validator

from palestra.algos.base import Algorithm, PolicyOutput
from palestra.algos.batch import Batch
from palestra.algos.losses import Stats, token_weights
from palestra.algos.selection import solved
from palestra.algos.sources import Offline, each_alone
from palestra.core.types import Group, Trajectory

if TYPE_CHECKING:
    from torch import Tensor


class Imitation(Algorithm):
    """The cross-entropy loss of all imitation; subclasses select the trajectories."""

    def temperature(self, sampling: float) -> float:
        """Imitation trains the model's own distribution, at any sampling temperature."""
        return 1.0

    def add_advantages(self, batch: Batch) -> Batch:
        return batch

    def weights(self, batch: Batch) -> Tensor:
        return token_weights(batch.trajectory_C, len(batch), normalize="token")

    def loss(self, policy: PolicyOutput, batch: Batch) -> tuple[Tensor, Stats]:
        return -policy.logp_C, {}

    def explain(self) -> list[str]:
        return ["maximize  mean_c(logp_c)"]


class SFT(Imitation):
    """Supervised fine-tuning on trajectories: the loss is over action tokens only."""

    name: Literal["sft"] = "sft"
    data: tuple[str, ...] = ()
    """Run folders and files: Palestra's trajectories, AgentGym's conversations, OpenAI chats.

    Default: episodes of the environment's expert.
    """
    min_reward: float = 0.5
    """Minimum reward of trajectories to train on. Conversations have no reward and are all used."""
    episodes: PositiveInt = 1000
    """Episodes of the environment's expert, if there is no `data`."""
    noise: float = Field(default=0.0, ge=0, le=1)
    """Probability that the expert takes a random valid action instead."""
    batch: PositiveInt = 32
    """Trajectories per training step."""

    @model_validator(mode="after")
    def _one_teacher(self) -> SFT:
        if self.data and (self.episodes, self.noise) != (1000, 0.0):
            raise ValueError(
                "episodes and noise are the expert's, who has no part where data is given"
            )
        if not self.data and self.min_reward != 0.5:
            raise ValueError(
                "min_reward chooses from data, and there is none: all that the expert "
                "solves is imitated"
            )
        return self

    def source(self) -> Offline:
        return Offline(
            self.batch,
            self._select,
            self.data,
            f"no trajectory has a reward of at least {self.min_reward:g}",
            0 if self.data else self.episodes,
            self.noise,
        )

    def _select(self, trajectories: list[Trajectory]) -> list[Group]:
        return each_alone(solved(trajectories, min_reward=self.min_reward))

    def explain(self) -> list[str]:
        if self.data:
            data = f"{', '.join(self.data)}; those with R_i >= {self.min_reward:g}"
        else:
            data = (
                f"{self.episodes} episodes of the environment's expert (noise {self.noise:g}), "
                "those that were solved"
            )
        return [*super().explain(), f"# over {self.batch} trajectories a step of: {data}"]
