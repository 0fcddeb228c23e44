"""Which stored trajectories to train on: solved ones, and preference pairs."""

from __future__ import annotations

from collections.abc import Iterable

from palestra.core.types import Group, Task, Trajectory

ROUNDING = 1e-9
"""Tolerance on rewards, which are sums of floats: ten times 0.1 must count as 1."""


def solved(trajectories: Iterable[Trajectory], *, min_reward: float) -> list[Trajectory]:
    """The trainable trajectories with at least `min_reward`."""
    return [t for t in trajectories if is_learnable(t) and t.reward >= min_reward - ROUNDING]


def pairs(
    trajectories: Iterable[Trajectory], *, min_gap: float, min_reward: float, per_task: int
) -> list[Group]:
    """DPO pairs: groups of exactly two trajectories of one task, [chosen, rejected]; of each task
    the `per_task` pairs with the largest differences in reward.

    A trajectory is chosen at most once and rejected at most once.
    """
    tasks: dict[Task, list[Trajectory]] = {}
    for trajectory in trajectories:
        if is_learnable(trajectory):
            tasks.setdefault(trajectory.task, []).append(trajectory)
    groups: list[Group] = []
    for played in tasks.values():
        groups += _pairs_of_task(played, min_gap, min_reward)[:per_task]
    return groups


def _pairs_of_task(played: list[Trajectory], min_gap: float, min_reward: float) -> list[Group]:
    candidates: list[tuple[Trajectory, Trajectory]] = []
    for chosen in solved(played, min_reward=min_reward):
        for rejected in played:
            if _is_better(chosen, rejected, min_gap):
                candidates.append((chosen, rejected))
    candidates.sort(key=_by_gap)
    used: set[tuple[str, int]] = set()
    groups: list[Group] = []
    for chosen, rejected in candidates:
        # Identity of the objects, not their ids: two runs may use the same episode ids.
        roles = {("chosen", id(chosen)), ("rejected", id(rejected))}
        if not roles & used:
            used |= roles
            groups.append(Group(chosen.task, [chosen, rejected]))
    return groups


def _by_gap(pair: tuple[Trajectory, Trajectory]) -> tuple[float, str, str]:
    """A sort key: the largest gap in reward first."""
    chosen, rejected = pair
    # Rounded, so that gaps which differ only in their last bit are ordered by episode ids.
    return -round(chosen.reward - rejected.reward, 9), chosen.id, rejected.id


def _is_better(chosen: Trajectory, rejected: Trajectory, min_gap: float) -> bool:
    is_enough = chosen.reward - rejected.reward > max(min_gap - ROUNDING, 0.0)
    return is_enough and [s.ids for s in chosen.segments] != [s.ids for s in rejected.segments]


def is_learnable(trajectory: Trajectory) -> bool:
    return (
        not trajectory.stop.is_fault
        and not trajectory.is_baseline
        and trajectory.sampled_tokens > 0
    )
