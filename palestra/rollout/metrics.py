"""What one round of play amounts to, as numbers for the metrics file and the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from palestra.algos.base import Algorithm
from palestra.core.evaluation import EvalResult
from palestra.core.types import Group, Stop, Trajectory
from palestra.envs.serving.validation import is_cut
from palestra.rollout.groups import RolloutBatch


def mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def of_play(rollouts: RolloutBatch, algo: Algorithm, envs: list[str]) -> dict[str, float]:
    """Over all valid episodes, also those of groups that were dropped for want of a signal: leaving
    them out would flatter.

    Where the run has several environments, for each of them besides that had an episode in this
    step.
    """
    row = {
        **_of_groups(rollouts.played, algo),
        **_of_tokens(rollouts.trajectories),
        "groups/dropped": float(len(rollouts.dropped)),
        **({"groups/outdated": float(len(rollouts.outdated))} if rollouts.outdated else {}),
        "faults": float(
            sum(t.stop.is_fault and t.stop is not Stop.CANCELLED for t in rollouts.trajectories)
        ),
        **_of_trouble(rollouts.trajectories),
    }
    for env in envs if len(envs) > 1 else ():
        own = [group for group in rollouts.played if group.task.env == env]
        if any(group.valid for group in own):
            row |= {f"env/{env}/{name}": value for name, value in _of_groups(own, algo).items()}
            of_env = [t for t in rollouts.trajectories if t.task.env == env]
            row |= {f"env/{env}/{name}": value for name, value in _of_tokens(of_env).items()}
    return row


def _of_trouble(played: list[Trajectory]) -> dict[str, float]:
    """What is rare, and has a row only where it is there."""
    collateral = sum(t.is_collateral for t in played)
    cut = sum(is_cut(text) for t in played for text in texts_of(t))
    return ({"faults/collateral": float(collateral)} if collateral else {}) | (
        {"env/cut_texts": float(cut)} if cut else {}
    )


def texts_of(trajectory: Trajectory) -> Iterator[str]:
    """All that the environment said, and what was said of it."""
    for turn in trajectory.turns:
        yield turn.observation
        yield from (text for text in turn.info.values() if isinstance(text, str))
    yield trajectory.final_observation
    yield trajectory.fault


def of_staleness(rollouts: RolloutBatch, *, version: int) -> dict[str, float]:
    """By how many updates the weights that sampled a token are behind those that learn from it,
    over all sampled tokens.
    """
    segments = [segment for group in rollouts.groups for t in group.valid for segment in t.segments]
    ages = [
        float(version - own)
        for s in segments
        for own, chosen in zip(s.versions, s.mask, strict=True)
        if chosen
    ]
    return {"staleness/mean": mean(ages), "staleness/max": max(ages, default=0.0)}


def _of_tokens(played: list[Trajectory]) -> dict[str, float]:
    """Of all that was played: greedy baselines, attempts that a fault ended and resampled groups
    were paid for, too.
    """
    return {
        "tokens/sampled": float(sum(t.sampled_tokens for t in played)),
        "tokens/all": float(sum(t.tokens for t in played)),
    }


def _of_groups(groups: list[Group], algo: Algorithm) -> dict[str, float]:
    trajectories = [t for group in groups for t in group.trajectories]
    valid = [t for t in trajectories if not t.stop.is_fault]
    turns = [turn for t in valid for turn in t.turns]
    stops = Counter(t.stop for t in trajectories)
    baselines = [
        group.baseline.reward
        for group in groups
        if group.baseline is not None and not group.baseline.stop.is_fault
    ]
    return {
        "horizon": max(t.horizon for t in trajectories),
        "stage": max(t.stage for t in trajectories),
        "reward": mean([t.reward for t in valid]),
        "success": success_rate(valid),
        "turns": mean([float(len(t.turns)) for t in valid]),
        "invalid_actions": mean([float(turn.invalid) for turn in turns]),
        "groups/zero_advantage": mean([float(not algo.has_signal(group)) for group in groups]),
        **({"reward/greedy": mean(baselines)} if baselines else {}),
        **{f"stop/{stop}": stops[stop] / max(len(trajectories), 1) for stop in Stop if stops[stop]},
    }


def of_eval(result: EvalResult) -> dict[str, float]:
    """The figures of an evaluation at the full horizon, of all tasks and of each environment where
    there are several.
    """
    named = {"eval": result.all}
    if len(result.envs) > 1:
        for env, scores in result.at_full_horizon().items():
            named[f"eval/{env}"] = scores.all
    row: dict[str, float] = {}
    for name, score in named.items():
        low, high = score.success_interval
        row |= {
            f"{name}/success": score.success,
            f"{name}/low": low,
            f"{name}/high": high,
            f"{name}/reward": score.reward,
        }
        row |= {f"{name}/turns": score.turns, f"{name}/tasks": score.tasks}
    return row


def success_rate(trajectories: list[Trajectory]) -> float:
    return mean([float(bool(t.success)) for t in trajectories])
