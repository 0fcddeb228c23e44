"""Where an algorithm's trajectories come from, as data; training makes a data source of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from palestra.core.types import Group, Trajectory

Select = Callable[[list[Trajectory]], list[Group]]


@dataclass(frozen=True, slots=True)
class OnPolicy:
    """Episodes that the policy plays at every step."""


@dataclass(frozen=True, slots=True)
class Offline:
    """A fixed set of groups: from stored trajectories, from episodes of the environments' experts,
    or from both.
    """

    batch: int
    """Groups per training step."""
    select: Select
    """Which groups the stored trajectories make up."""
    data: tuple[str, ...] = ()
    """Run folders and files."""
    expected: str = "no trajectory can be learned from"
    """What is wrong with data that nothing can be selected from."""
    expert_episodes: int = 0
    expert_noise: float = 0.0
    """The share of the experts' actions that are any valid ones."""


@dataclass(frozen=True, slots=True)
class ExpertIteration:
    """Rounds: the policy explores, the best episodes join the set, and the base model is trained on
    all of the set.
    """

    base: Offline
    """The set of the first round, which may be empty."""
    round: int
    """Training steps of a round."""
    explores: Callable[[int], bool]
    """Whether a training step (from 1) begins with exploration."""
    keep: Callable[[Group], list[Trajectory]]
    """What an explored group adds to the set."""


Source = OnPolicy | Offline | ExpertIteration


def each_alone(trajectories: list[Trajectory]) -> list[Group]:
    """A group for each trajectory."""
    return [Group.of_one(trajectory) for trajectory in trajectories]
