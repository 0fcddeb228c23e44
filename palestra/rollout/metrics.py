"""Metrics of rollouts and evaluations, for the metrics file and the terminal."""

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
    """The metrics of a step's rollouts.

    They are over all valid episodes, including those of groups that were dropped for lack of a
    signal: without them the success rate would be biased. A run with several environments also has
    the metrics of each one that had a valid episode in this step.
    """
    trajectories = rollouts.trajectories
    row = _of_groups(rollouts.played, algo)
    row |= _of_tokens(trajectories)
    row["groups/dropped"] = float(len(rollouts.dropped))
    if rollouts.outdated:
        row["groups/outdated"] = float(len(rollouts.outdated))
    faults = [t for t in trajectories if t.stop.is_fault and t.stop is not Stop.CANCELLED]
    row["faults"] = float(len(faults))
    row |= _of_rare_events(trajectories)
    if len(envs) > 1:
        for env in envs:
            own = [group for group in rollouts.played if group.task.env == env]
            if any(group.valid for group in own):
                of_env = _of_groups(own, algo)
                of_env |= _of_tokens([t for t in trajectories if t.task.env == env])
                row |= {f"env/{env}/{name}": value for name, value in of_env.items()}
    return row


def _of_rare_events(played: list[Trajectory]) -> dict[str, float]:
    """Counts that are reported only if they are not 0."""
    collateral = sum(t.is_collateral for t in played)
    cut = 0
    for trajectory in played:
        cut += sum(is_cut(text) for text in texts_of(trajectory))
    row: dict[str, float] = {}
    if collateral:
        row["faults/collateral"] = float(collateral)
    if cut:
        row["env/cut_texts"] = float(cut)
    return row


def texts_of(trajectory: Trajectory) -> Iterator[str]:
    """All texts of the environment, and the message of its fault."""
    for turn in trajectory.turns:
        yield turn.observation
        yield from (text for text in turn.info.values() if isinstance(text, str))
    yield trajectory.final_observation
    yield trajectory.fault


def of_staleness(rollouts: RolloutBatch, *, version: int) -> dict[str, float]:
    """The staleness of all sampled tokens: how many updates the weights that sampled them are
    behind the learner's.
    """
    ages: list[float] = []
    for group in rollouts.groups:
        for trajectory in group.valid:
            for segment in trajectory.segments:
                for own, is_action in zip(segment.versions, segment.mask, strict=True):
                    if is_action:
                        ages.append(float(version - own))
    return {"staleness/mean": mean(ages), "staleness/max": max(ages, default=0.0)}


def _of_tokens(played: list[Trajectory]) -> dict[str, float]:
    """Token counts of all episodes: greedy baselines, faulted attempts and dropped groups have
    their cost, too.
    """
    return {
        "tokens/sampled": float(sum(t.sampled_tokens for t in played)),
        "tokens/all": float(sum(t.tokens for t in played)),
    }


def _of_groups(groups: list[Group], algo: Algorithm) -> dict[str, float]:
    trajectories: list[Trajectory] = []
    for group in groups:
        trajectories += group.trajectories
    valid = [t for t in trajectories if not t.stop.is_fault]
    invalid_actions: list[float] = []
    for trajectory in valid:
        invalid_actions += [float(turn.invalid) for turn in trajectory.turns]
    row: dict[str, float] = {
        "horizon": max(t.horizon for t in trajectories),
        "stage": max(t.stage for t in trajectories),
        "reward": mean([t.reward for t in valid]),
        "success": success_rate(valid),
        "turns": mean([float(len(t.turns)) for t in valid]),
        "invalid_actions": mean(invalid_actions),
        "groups/zero_advantage": mean([float(not algo.has_signal(group)) for group in groups]),
    }
    baselines = [group.baseline for group in groups if group.baseline is not None]
    greedy = [baseline.reward for baseline in baselines if not baseline.stop.is_fault]
    if greedy:
        row["reward/greedy"] = mean(greedy)
    stops = Counter(t.stop for t in trajectories)
    for stop in Stop:
        if stops[stop]:
            row[f"stop/{stop}"] = stops[stop] / len(trajectories)
    return row


def of_eval(result: EvalResult) -> dict[str, float]:
    """The metrics of an evaluation at the full horizon: over all tasks, and for each environment if
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
            f"{name}/turns": score.turns,
            f"{name}/tasks": score.tasks,
        }
    return row


def success_rate(trajectories: list[Trajectory]) -> float:
    return mean([float(bool(t.success)) for t in trajectories])
