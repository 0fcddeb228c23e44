"""How good is the agent: avg@k, pass@k and their 95% intervals, by category, at any horizon."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from palestra.rollout import Arena, Episode, play_all
from palestra.seeds import derive_seed
from palestra.types import Task, Trajectory

Z = 1.959963984540054
"""Of a two-sided interval of 95%."""

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Score:
    """Results over some tasks."""

    tasks: int
    episodes: int
    success: float
    """avg@k: the mean over tasks of the share of successful episodes."""
    success_interval: Interval
    pass_at_k: float
    """The share of tasks solved in at least one of k episodes."""
    pass_interval: Interval
    reward: float
    reward_interval: Interval | None
    """Of the mean over tasks: what counts where tasks can be done in part, as in SciWorld. None where nothing can be said of it."""
    turns: float
    tokens: float
    """Sampled, per episode."""


def wilson(successes: float, n: int) -> Interval:
    """Wilson's score interval of a proportion: sound for small n and near 0 and 1."""
    if n == 0:
        return (0.0, 1.0)
    p = successes / n
    centre = (p + Z * Z / (2 * n)) / (1 + Z * Z / n)
    half = Z / (1 + Z * Z / n) * math.sqrt(p * (1 - p) / n + Z * Z / (4 * n * n))
    return (max(0.0, centre - half), min(1.0, centre + half))


def clustered(means: Sequence[float]) -> Interval:
    """The interval of a share over tasks, each of them a mean over its own episodes (which are not independent)."""
    n = len(means)
    if n < 2:
        return (0.0, 1.0)
    if len(set(means)) == 1:  # all alike: that says little about the tasks not tried
        return wilson(sum(means), n)
    low, high = _of_mean(means)
    return (max(0.0, low), min(1.0, high))


def unbounded(means: Sequence[float]) -> Interval | None:
    """The same of what has no bounds, such as rewards. None of one task alone, and where all are alike: the others may be anything."""
    return _of_mean(means) if len(set(means)) > 1 else None


def _of_mean(values: Sequence[float]) -> Interval:
    n = len(values)
    mean = sum(values) / n
    half = Z * math.sqrt(sum((value - mean) ** 2 for value in values) / (n - 1) / n)
    return (mean - half, mean + half)


def score(trajectories: Sequence[Trajectory], *, horizon: int) -> Score:
    """As if episodes had been stopped after `horizon` turns: a success that took longer does not count."""
    by_task: dict[Task, list[Trajectory]] = defaultdict(list)
    for trajectory in trajectories:
        by_task[trajectory.task].append(trajectory)
    solved = {task: [bool(t.success) and len(t.turns) <= horizon for t in group] for task, group in by_task.items()}
    means = [sum(outcomes) / len(outcomes) for outcomes in solved.values()]
    passes = sum(any(outcomes) for outcomes in solved.values())
    earned = [[sum(turn.reward for turn in t.turns[:horizon]) for t in group] for group in by_task.values()]
    tasks, episodes = len(solved), len(trajectories)
    is_single = tasks == episodes
    return Score(
        tasks=tasks,
        episodes=episodes,
        success=sum(means) / max(tasks, 1),
        success_interval=wilson(sum(means), tasks) if is_single else clustered(means),
        pass_at_k=passes / max(tasks, 1),
        pass_interval=wilson(passes, tasks),
        reward=sum(map(sum, earned)) / max(episodes, 1),
        reward_interval=unbounded([sum(own) / len(own) for own in earned]),
        turns=sum(min(len(t.turns), horizon) for t in trajectories) / max(episodes, 1),
        tokens=sum(t.sampled_tokens for t in trajectories) / max(episodes, 1),
    )


def valid(trajectories: Sequence[Trajectory]) -> list[Trajectory]:
    """Without those that a fault ended."""
    return [t for t in trajectories if not t.stop.is_fault]


def summarise(trajectories: Sequence[Trajectory], *, k: int, horizons: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """The result of an evaluation as it is stored: all tasks together at the horizon they were played with, and each environment."""
    counted = valid(trajectories)
    return {
        "k": k,
        "faults": len(trajectories) - len(counted),
        "all": score(counted, horizon=max(max(own) for own in horizons.values())),
        "envs": {env: _by_horizon([t for t in counted if t.task.env == env], own) for env, own in horizons.items()},
    }


def _by_horizon(counted: Sequence[Trajectory], horizons: Sequence[int]) -> dict[str, Any]:
    """All tasks of an environment and each category, at each horizon."""
    categories = sorted({t.task.category for t in counted})
    return {
        str(horizon): {
            "all": score(counted, horizon=horizon),
            "categories": {c: score([t for t in counted if t.task.category == c], horizon=horizon) for c in categories},
        }
        for horizon in sorted(set(horizons))
    }


async def evaluate(
    arena: Arena,
    tasks: Sequence[Task],
    *,
    k: int,
    horizons: Mapping[str, int],
    seed: int,
    step: int = 0,
    phase: str = "",
    on_done: Callable[[Trajectory], None] | None = None,
) -> list[Trajectory]:
    """Play every task k times. The same seed gives the same noise, so that two models can be compared on it."""
    when = f"{step:06d}{phase and '-' + phase}"
    episodes = [
        Episode(f"eval-{when}-{n:05d}-{member}", task, horizons[task.env], derive_seed(seed, "eval", n, member), step)
        for n, task in enumerate(tasks)
        for member in range(k)
    ]
    played, _ = await play_all(arena, episodes, on_done=on_done)
    return played
