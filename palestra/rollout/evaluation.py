"""How good is the agent: avg@k, pass@k and their 95% intervals, by category, at any horizon."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from palestra.core.intervals import Interval, clustered, unbounded, wilson
from palestra.core.seeds import derive_seed
from palestra.core.types import Task, Trajectory
from palestra.rollout.episode import EpisodeSpec, RolloutContext
from palestra.rollout.groups import raise_if_all_failed, rollout_episodes


@dataclass(frozen=True, slots=True)
class Score:
    """Results over some tasks."""

    tasks: int
    episodes: int
    success: float
    """avg@k: the mean over tasks of the share of successful episodes."""
    success_interval: Interval
    pass_at_k: float
    """The share of tasks solved in at least one of k episodes, of those tasks that have k: faults
    leave others with fewer.
    """
    pass_interval: Interval
    reward: float
    """The mean over tasks of their episodes' mean reward."""
    reward_interval: Interval | None
    """Of the mean over tasks: what counts where tasks can be done in part, as in SciWorld.

    None where nothing can be said of it.
    """
    turns: float
    tokens: float
    """Sampled up to the horizon, per episode."""


def score(trajectories: Sequence[Trajectory], *, horizon: int, k: int = 1) -> Score:
    """As if episodes had been stopped after `horizon` turns: a success that took longer does not
    count.
    """
    by_task: dict[Task, list[Trajectory]] = defaultdict(list)
    for trajectory in trajectories:
        by_task[trajectory.task].append(trajectory)
    shares, rewards, passes = [], [], []
    for group in by_task.values():
        solved = [bool(t.success) and len(t.turns) <= horizon for t in group]
        earned = [sum(turn.reward for turn in t.turns[:horizon]) for t in group]
        shares.append(sum(solved) / len(group))
        rewards.append(sum(earned) / len(group))
        if len(group) >= k:
            passes.append(any(solved))
    tasks, episodes = len(by_task), len(trajectories)
    return Score(
        tasks=tasks,
        episodes=episodes,
        success=sum(shares) / max(tasks, 1),
        success_interval=wilson(sum(shares), tasks) if tasks == episodes else clustered(shares),
        pass_at_k=sum(passes) / max(len(passes), 1),
        pass_interval=wilson(sum(passes), len(passes)),
        reward=sum(rewards) / max(tasks, 1),
        reward_interval=unbounded(rewards),
        turns=sum(min(len(t.turns), horizon) for t in trajectories) / max(episodes, 1),
        tokens=sum(_sampled_by(t, horizon) for t in trajectories) / max(episodes, 1),
    )


def _sampled_by(trajectory: Trajectory, horizon: int) -> int:
    """The tokens that an episode sampled in its first `horizon` turns."""
    total = 0
    for turn in trajectory.turns[:horizon]:
        start, end = turn.span
        total += sum(trajectory.segments[turn.segment].mask[start:end])
    return total


def valid(trajectories: Sequence[Trajectory]) -> list[Trajectory]:
    """Without those that a fault ended."""
    return [t for t in trajectories if not t.stop.is_fault]


def summarize(
    trajectories: Sequence[Trajectory], *, k: int, horizons: Mapping[str, Sequence[int]]
) -> dict[str, Any]:
    """The result of an evaluation as it is stored: all tasks together at the horizon they were
    played with, and each environment.
    """
    counted = valid(trajectories)
    return {
        "k": k,
        "faults": len(trajectories) - len(counted),
        "all": score(counted, horizon=max(max(own) for own in horizons.values()), k=k),
        "envs": {
            env: _by_horizon([t for t in counted if t.task.env == env], own, k)
            for env, own in horizons.items()
        },
    }


def _by_horizon(counted: Sequence[Trajectory], horizons: Sequence[int], k: int) -> dict[str, Any]:
    """All tasks of an environment and each category, at each horizon."""
    categories = sorted({t.task.category for t in counted})
    return {
        str(horizon): {
            "all": score(counted, horizon=horizon, k=k),
            "categories": {
                c: score([t for t in counted if t.task.category == c], horizon=horizon, k=k)
                for c in categories
            },
        }
        for horizon in sorted(set(horizons))
    }


async def evaluate(
    context: RolloutContext,
    tasks: Sequence[Task],
    *,
    k: int,
    horizons: Mapping[str, int],
    seed: int,
    step: int = 0,
    phase: str = "",
    on_done: Callable[[Trajectory], None] | None = None,
) -> list[Trajectory]:
    """Play every task k times. The same seed gives the same noise, so that two models can be
    compared on it.

    Raises `AllBroke` where nothing could be played: that is no success rate of 0.
    """
    when = f"{step:06d}{phase and '-' + phase}"
    episodes = [
        EpisodeSpec(
            f"eval-{when}-{n:05d}-{member}",
            task,
            horizons[task.env],
            derive_seed(seed, "eval", n, member),
            step,
        )
        for n, task in enumerate(tasks)
        for member in range(k)
    ]
    played, faulted = await rollout_episodes(context, episodes, on_done=on_done)
    raise_if_all_failed(f"the evaluation ({phase})" if phase else "an evaluation", played, faulted)
    return played
