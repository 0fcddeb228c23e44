"""Where an algorithm's trajectories come from, as plain data; `training` builds the data source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from palestra.core.types import Group, Trajectory

Select = Callable[[list[Trajectory]], list[Group]]


@dataclass(frozen=True, slots=True)
class OnPolicy:
    """New rollouts of the policy at every step."""


@dataclass(frozen=True, slots=True)
class Offline:
    """A fixed dataset of groups: from stored trajectories, from episodes of the environments'
    experts, or from both.
    """

    batch: int
    """Groups per training step."""
    select: Select
    """Forms groups from the stored trajectories."""
    data: tuple[str, ...] = ()
    """Run folders and files."""
    expected: str = "no trajectory can be learned from"
    """The error if nothing can be selected from the data."""
    expert_episodes: int = 0
    expert_noise: float = 0.0
    """Probability that an expert takes a random valid action instead."""


@dataclass(frozen=True, slots=True)
class ExpertIteration:
    """Rounds of exploration and training: the best explored episodes join a dataset, and the base
    model is trained on all of it.
    """

    base: Offline
    """The dataset of the first round, which may be empty."""
    round: int
    """Training steps per round."""
    explores: Callable[[int], bool]
    """Whether a training step (from 1) starts with exploration."""
    keep: Callable[[Group], list[Trajectory]]
    """The trajectories of an explored group that join the dataset."""


Source = OnPolicy | Offline | ExpertIteration


def each_alone(trajectories: list[Trajectory]) -> list[Group]:
    """A group for each trajectory."""
    return [Group.of_one(trajectory) for trajectory in trajectories]
