"""Runs that play while they learn."""

from palestra.runs.trajectories import read_trajectories

PARTIAL = {
    "rollout.partial": 3,
    "env.name": "tests.support.environments:Count",
    "horizon.kind": "fixed",
    "horizon.turns": 4,
}
"""Episodes of up to four turns, which end at different times."""


def steps(run):
    return {row["step"]: row for row in run.metrics() if "reward" in row}


def episodes(run, step):
    return list(read_trajectories(run.trajectory_file(f"step-{step:06d}")))


def turn_versions(trajectory):
    """The versions of the weights that sampled each turn."""
    (segment,) = trajectory.segments
    return [set(segment.versions[slice(*turn.span)]) for turn in trajectory.turns]


STREAM = {
    "rollout.max_staleness": 2,
    "engine.deterministic": False,
    "algo.recompute_logprobs": True,
    "algo.correction.cap": 2.0,
}


COUNT = STREAM | {
    "env.name": "tests.support.environments:Count",
    "horizon.kind": "fixed",
    "horizon.turns": 4,
}
"""Episodes of up to four turns, so that weights change in the middle of them."""


UNEVEN = COUNT | {
    "env.name": "tests.support.environments:Uneven",
    "env.options.seconds": 0.002,
    "rollout.tasks": 4,
    "rollout.group": 2,
    "eval.tasks": 1,
}
