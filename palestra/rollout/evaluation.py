"""Evaluations: avg@k, pass@k and their 95% confidence intervals, by category, at any horizon."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from palestra.core.evaluation import EvalResult, HorizonScores, Score
from palestra.core.intervals import clustered, unbounded, wilson
from palestra.core.seeds import derive_seed
from palestra.core.types import Task, Trajectory
from palestra.rollout.episode import EpisodeSpec, RolloutContext
from palestra.rollout.groups import raise_if_all_failed, rollout_episodes


def score(trajectories: Sequence[Trajectory], *, horizon: int, k: int = 1) -> Score:
    """The scores of trajectories, as if each had been truncated after `horizon` turns."""
    by_task: dict[Task, list[Trajectory]] = defaultdict(list)
    for trajectory in trajectories:
        by_task[trajectory.task].append(trajectory)
    shares, rewards, passes = [], [], []
    for group in by_task.values():
        solved = [bool(t.success) and len(t.turns) <= horizon for t in group]
        earned = [_reward_by(t, horizon) for t in group]
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


def _reward_by(trajectory: Trajectory, horizon: int) -> float:
    """The reward of an episode's first `horizon` turns."""
    return sum(turn.reward for turn in trajectory.turns[:horizon])


def _sampled_by(trajectory: Trajectory, horizon: int) -> int:
    """The number of tokens sampled in an episode's first `horizon` turns."""
    total = 0
    for turn in trajectory.turns[:horizon]:
        start, end = turn.span
        total += sum(trajectory.segments[turn.segment].mask[start:end])
    return total


def valid(trajectories: Sequence[Trajectory]) -> list[Trajectory]:
    """The trajectories that did not end in a fault."""
    return [t for t in trajectories if not t.stop.is_fault]


def summarize(
    trajectories: Sequence[Trajectory],
    *,
    phase: str,
    step: int,
    split: str,
    k: int,
    horizons: Mapping[str, Sequence[int]],
) -> EvalResult:
    """The result of an evaluation: each environment at the given horizons, and all tasks together
    at the longest.
    """
    counted = valid(trajectories)
    envs = {}
    for env, own in horizons.items():
        played = [t for t in counted if t.task.env == env]
        envs[env] = {str(horizon): _scores(played, horizon, k) for horizon in sorted(set(own))}
    return EvalResult(
        phase=phase,
        step=step,
        split=split,
        k=k,
        faults=len(trajectories) - len(counted),
        all=score(counted, horizon=max(max(own) for own in horizons.values()), k=k),
        envs=envs,
    )


def _scores(played: Sequence[Trajectory], horizon: int, k: int) -> HorizonScores:
    categories = {}
    for category in sorted({t.task.category for t in played}):
        own = [t for t in played if t.task.category == category]
        categories[category] = score(own, horizon=horizon, k=k)
    return HorizonScores(score(played, horizon=horizon, k=k), categories)


def held_out(tasks: Sequence[Task], count: int) -> list[Task]:
    """A fixed sample of a split, the same in every run, so that runs can be compared."""
    return list(tasks) if count >= len(tasks) else random.Random(0).sample(list(tasks), count)


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
    """Run k episodes of every task. The same seed gives the same sampling noise, so that models can
    be compared on it.

    Raises `AllEpisodesFailed` if every episode ended in a fault: that is not a success rate of 0.
    """
    when = f"{step:06d}-{phase}" if phase else f"{step:06d}"
    episodes: list[EpisodeSpec] = []
    for n, task in enumerate(tasks):
        for member in range(k):
            id = f"eval-{when}-{n:05d}-{member}"
            own_seed = derive_seed(seed, "eval", n, member)
            episodes.append(EpisodeSpec(id, task, horizons[task.env], own_seed, step))
    played, faulted = await rollout_episodes(context, episodes, on_done=on_done)
    raise_if_all_failed(f"the evaluation ({phase})" if phase else "an evaluation", played, faulted)
    return played
