"""Small runs that train within seconds."""

import json

import pytest
from safetensors.torch import load_file

from palestra.config.config import build
from palestra.learner import checkpoint
from palestra.runs.run import Run
from palestra.training.display import Display
from palestra.training.loop import run_training

ECHO = {
    "steps": 6,
    "device": "cpu",
    "threads": 1,
    "model": {"width": 32, "layers": 2, "heads": 2},
    "env": {"name": "tests.support.environments:Echo"},
    "agent": {"format": "plain", "context_tokens": 64, "reply_tokens": 4},
    "engine": {"slots": 16},
    "rollout": {"tasks": 6, "group": 8},
    "optim": {"lr": 3e-3, "minibatches": 2},
    "horizon": {"kind": "stages", "turns": [1, 2], "every": 2},
    "eval": {"tasks": 30},
    "save": {"every": 3},
}


OFFLINE = {"rollout": {}, "horizon": {"kind": "fixed", "turns": 2}}
"""For algorithms that play no episodes while they train."""


MIXTURE = [
    {"name": "tests.support.environments:Echo", "weight": 2,
     "horizon": {"kind": "fixed", "turns": 2}},
    {"name": "tests.support.environments:Count", "group": 4, "reward_scale": 0.5,
     "horizon": {"kind": "adaptive", "turns": [2, 4], "window": 2, "gate": 0.5, "fall": 0.1}},
]  # fmt: skip


def trained(folder, tree=ECHO, **overrides):
    run = Run.create(folder, build(tree, overrides))
    run_training(run, Display())
    return run


def records(run):
    """Metrics, trajectories and what was learned from them, without what a clock measured."""
    metrics = []
    for row in run.metrics():
        metrics.append({k: v for k, v in row.items() if not k.startswith("time/")})
    episodes = {}
    for path in sorted((run.folder / "trajectories").iterdir()):
        episodes[path.name] = [_timeless(line) for line in path.read_bytes().splitlines()]
    learned = {
        path.name: path.read_bytes() for path in sorted((run.folder / "token_stats").glob("*"))
    }
    return metrics, episodes, learned


def _timeless(line):
    episode = json.loads(line)
    del episode["timings"]
    return episode


def weights(run):
    folder = checkpoint.newest(run.checkpoints)
    tensors = {}
    for file in sorted(folder.glob("*.safetensors")):
        tensors |= load_file(file)
    return tensors


def stopped_after(steps, folder, overrides):
    """A run that is killed in the middle of the step after `steps`, when some of it is written and
    no checkpoint is.
    """

    class Killed(Exception):
        pass

    class Killer(Display):
        def end_step(self, row):
            if row["step"] == steps + 1:
                raise Killed

    run = Run.create(folder, build(ECHO, overrides))
    with pytest.raises(Killed):
        run_training(run, Killer())
    return run
