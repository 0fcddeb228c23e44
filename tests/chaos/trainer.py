"""A small run as a process of its own, which can be killed, stopped and gone on with; and what it
must come to all the same.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import tomli_w
import torch

from palestra.config.config import build
from palestra.learner import checkpoint
from palestra.runs.run import Run
from palestra.training.display import Display
from palestra.training.loop import run_training
from tests.support.training import ECHO, records, weights

ROOT = Path(__file__).parents[2]

RECIPE = ECHO | {
    "steps": 10,
    "warm_start": {"episodes": 20, "updates": 6, "check_every": 3, "check_tasks": 8, "target": 0.9},
    "eval": {"tasks": 12, "every": 3, "interim_tasks": 6},
    "save": {"every": 2},
}
"""All that a run can be in the middle of: a warm start, play, updates, evaluations, checkpoints."""


def start(folder, *settings, points=(), prepare=None):
    """Begin the run, or go on with it. `points`: see `dying`."""
    if (folder / "config.toml").exists():
        where = ["--resume", str(folder)]
    else:
        recipe = folder.with_name("recipe.toml")
        recipe.write_text(tomli_w.dumps(RECIPE))
        where = [str(recipe), "--out", str(folder)]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.chaos.dying", *points, "--", "train", *where, *settings],
        cwd=ROOT,
        env=os.environ
        | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=prepare,
    )


def ended(process, timeout=300):
    """The exit code and the lines of the error stream."""
    try:
        _, errors = process.communicate(timeout=timeout)
    finally:
        process.kill()
    return process.returncode, errors.splitlines()


def finish(folder, **settings):
    """Go on to the end, or go through all of it, here: that is quicker."""
    run = (
        Run.open(folder, settings)
        if (folder / "config.toml").exists()
        else Run.create(folder, build(RECIPE))
    )
    run_training(run, Display())
    return run


def kill_after(process, folder, seconds):
    """SIGKILL, so long after the run folder came to be."""
    while not (folder / "config.toml").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    process.communicate()


def assert_same(run, whole):
    """Bit for bit: weights, moments, metrics, episodes and evaluations."""
    assert checkpoint.newest(run.checkpoints).name == checkpoint.newest(whole.checkpoints).name
    ours, theirs = weights(run), weights(whole)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(value, theirs[name]) for name, value in ours.items())
    assert records(run) == records(whole)
    assert evaluations(run) == evaluations(whole)


def evaluations(run):
    return {path.name: path.read_bytes() for path in (run.folder / "eval").iterdir()}
