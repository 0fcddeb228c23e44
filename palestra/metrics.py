"""What one round of play amounts to, as numbers for the metrics file and the terminal."""

from __future__ import annotations

from collections import Counter

from palestra.algos.base import Algorithm
from palestra.rollout import Collected
from palestra.types import Stop, Trajectory


def mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def of_play(collected: Collected, algo: Algorithm) -> dict[str, float]:
    """Over all valid episodes, also those of groups that were dropped for want of a signal: leaving them out would flatter."""
    trajectories = [t for group in collected.played for t in group.trajectories]
    valid = [t for t in trajectories if not t.stop.is_fault]
    turns = [turn for t in valid for turn in t.turns]
    stops = Counter(t.stop for t in trajectories)
    return {
        "reward": mean([t.reward for t in valid]),
        "success": success_rate(valid),
        "turns": mean([float(len(t.turns)) for t in valid]),
        "invalid_actions": mean([float(turn.invalid) for turn in turns]),
        "tokens/sampled": float(sum(t.sampled_tokens for t in valid)),
        "tokens/all": float(sum(len(s.ids) for t in valid for s in t.segments)),
        "groups/dead": mean([float(not algo.has_signal(group)) for group in collected.played]),
        "groups/dropped": float(len(collected.dropped)),
        "faults": float(len(trajectories) - len(valid) + len(collected.faulted)),
        **{f"stop/{stop}": stops[stop] / max(len(trajectories), 1) for stop in Stop if stops[stop]},
    }


def success_rate(trajectories: list[Trajectory]) -> float:
    return mean([float(bool(t.success)) for t in trajectories])
