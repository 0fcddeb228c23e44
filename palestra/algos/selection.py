"""Which stored trajectories are learned from: solved ones, and pairs of a better and a worse."""

from __future__ import annotations

from collections.abc import Iterable

from palestra.core.types import Group, Task, Trajectory

ROUNDING = 1e-9
"""Rewards are sums: ten times 0.1 must count as 1."""


def solved(trajectories: Iterable[Trajectory], *, min_reward: float) -> list[Trajectory]:
    """Those that can be learned from and earned enough."""
    return [t for t in trajectories if is_learnable(t) and t.reward >= min_reward - ROUNDING]


def pairs(
    trajectories: Iterable[Trajectory], *, min_gap: float, min_reward: float, per_task: int
) -> list[Group]:
    """DPO pairs of one task: groups of exactly two trajectories [chosen, rejected], the largest
    gaps in reward first.

    A trajectory is chosen at most once and rejected at most once.
    """
    tasks: dict[Task, list[Trajectory]] = {}
    for trajectory in trajectories:
        if is_learnable(trajectory):
            tasks.setdefault(trajectory.task, []).append(trajectory)
    return [
        group
        for played in tasks.values()
        for group in _pairs_of_task(played, min_gap, min_reward)[:per_task]
    ]


def _pairs_of_task(played: list[Trajectory], min_gap: float, min_reward: float) -> list[Group]:
    candidates = [
        (a, b)
        for a in solved(played, min_reward=min_reward)
        for b in played
        if _is_better(a, b, min_gap)
    ]
    # Rounded, so that gaps which differ only in their last bit are in the order of their ids.
    candidates.sort(
        key=lambda pair: (-round(pair[0].reward - pair[1].reward, 9), pair[0].id, pair[1].id)
    )
    used: set[tuple[str, int]] = set()
    groups: list[Group] = []
    for chosen, rejected in candidates:
        roles = {
            ("chosen", id(chosen)),
            ("rejected", id(rejected)),
        }  # of the objects: two runs may use the same episode ids
        if not roles & used:
            used |= roles
            groups.append(Group(chosen.task, [chosen, rejected]))
    return groups


def _is_better(chosen: Trajectory, rejected: Trajectory, min_gap: float) -> bool:
    is_enough = chosen.reward - rejected.reward > max(min_gap - ROUNDING, 0.0)
    return is_enough and [s.ids for s in chosen.segments] != [s.ids for s in rejected.segments]


def is_learnable(trajectory: Trajectory) -> bool:
    return (
        not trajectory.stop.is_fault
        and not trajectory.is_baseline
        and trajectory.sampled_tokens > 0
    )
