"""The collapse guard in whole runs: it warns, stops, or goes back, and a run that went back is
resumed bit for bit.
"""

import signal

import pytest
import torch

from palestra.config.config import build
from palestra.core.interrupts import Interrupted
from palestra.learner import checkpoint
from palestra.runs.run import Run
from palestra.runs.trajectories import read_trajectories
from palestra.training.display import Display
from palestra.training.guard import GuardTripped
from palestra.training.loop import run_training
from tests.e2e.test_training import Notes
from tests.support.training import ECHO, records, trained, weights

ALWAYS = {"window": 2, "entropy_below": 100.0}


def steps(run):
    return [row for row in run.metrics() if "reward" in row]


def test_a_warning_is_given_once(tmp_path):
    run, display = Run.create(tmp_path / "run", build(ECHO, {"steps": 4, "guard": ALWAYS})), Notes()
    run_training(run, display)
    (line,) = [note for note in display.notes if "token budget" not in note]
    assert line.startswith("step 2: policy/entropy was ")
    assert line.endswith("over 2 steps, below 100 (guard.entropy_below)")
    assert [row["guard/entropy_below"] for row in steps(run)] == [0, 1, 1, 1]


def test_it_changes_nothing_until_it_acts(tmp_path):
    guarded, free = trained(tmp_path / "guarded", guard=ALWAYS), trained(tmp_path / "free")
    assert all(torch.equal(value, weights(free)[name]) for name, value in weights(guarded).items())


def test_a_run_is_stopped_and_can_go_on_all_the_same(tmp_path):
    run = Run.create(
        tmp_path / "run", build(ECHO, {"steps": 4, "guard": ALWAYS | {"action": "stop"}})
    )
    with pytest.raises(GuardTripped, match="step 2: .*; to continue anyway: --guard.action warn"):
        run_training(run, Display())
    resumed = Run.open(run.folder, {"guard.action": "warn"})
    run_training(resumed, Display())
    assert [row["step"] for row in steps(resumed)] == [1, 2, 3, 4]


def test_going_back_samples_differently_and_is_not_tried_for_ever(tmp_path):
    guard = {"window": 2, "zero_advantage_above": 0.01, "action": "rollback", "rollbacks": 2}
    played = []

    class MetricsListener(Notes):
        def episode_done(self, trajectory):
            if trajectory.step == 1:
                played.append(trajectory)

    run, display = (
        Run.create(tmp_path / "run", build(ECHO, {"steps": 4, "save.every": 2, "guard": guard})),
        MetricsListener(),
    )
    with pytest.raises(
        GuardTripped, match="went back 2 times .guard.rollbacks., and that did not help"
    ):
        run_training(run, display)
    ways = [note.rpartition("; ")[2] for note in display.notes if "token budget" not in note]
    assert ways == ["back to step 0 (1 of 2 times)", "back to step 0 (2 of 2 times)"]
    size = 6 * 8
    branches = [played[start : start + size] for start in (0, size, 2 * size)]
    assert [len(branch) for branch in branches] == [size] * 3
    first, second, third = (
        [sorted((t.task.id, *t.segments[0].ids) for t in branch)] for branch in branches
    )
    assert first != second != third != first
    assert [t.task.id for t in branches[0]].sort() == [t.task.id for t in branches[1]].sort()
    assert [row["guard/rollbacks"] for row in steps(run)] == [2, 2]  # each step is recorded once


@pytest.mark.parametrize(
    ("bound", "overlap"), [(0.25, {}), (0.21, {"rollout.prefetch": 1})], ids=["plain", "ahead"]
)
def test_a_run_that_went_back_is_resumed_bit_for_bit(tmp_path, bound, overlap):
    overrides = {
        "guard": {"window": 2, "grad_norm_above": bound, "action": "rollback"},
        "save.every": 2,
        **overlap,
    }
    whole = trained(tmp_path / "whole", **overrides)
    assert steps(whole)[-1]["guard/rollbacks"] > 0
    assert [row["step"] for row in steps(whole)] == [1, 2, 3, 4, 5, 6]

    class Killed(Exception):
        pass

    class Killer(Display):
        def __init__(self, left):
            self.left = left

        def end_step(self, row):
            self.left -= 1
            if not self.left:
                raise Killed

    for left in (2, 5, 7):  # before it went back, just after, and long after
        run = Run.create(tmp_path / str(left), build(ECHO, overrides))
        with pytest.raises(Killed):
            run_training(run, Killer(left))
        resumed = Run.open(run.folder)
        run_training(resumed, Display())
        assert records(resumed) == records(whole)
        assert all(
            torch.equal(value, weights(whole)[name]) for name, value in weights(resumed).items()
        )


@pytest.mark.parametrize("where", ["remove", "restore", "save"])
def test_going_back_can_be_interrupted_anywhere(tmp_path, monkeypatch, where):
    overrides = {
        "guard": {"window": 1, "grad_norm_above": 0.25, "action": "rollback", "rollbacks": 9},
        "save.every": 1,
        "save.keep": 3,
    }
    whole = trained(tmp_path / "whole", **overrides)
    assert steps(whole)[-1]["guard/rollbacks"] >= 1

    class Killed(BaseException):
        pass

    run = Run.create(tmp_path / "run", build(ECHO, overrides))
    with monkeypatch.context() as patched:

        class Breaker(Display):
            def note(self, text):
                if "back to step" in text:
                    patched.setattr(checkpoint, where, killed)

        def killed(*_, **__):
            raise Killed

        with pytest.raises(Killed):
            run_training(run, Breaker())
    resumed = Run.open(run.folder)
    run_training(resumed, Display())
    assert records(resumed) == records(whole)
    assert all(torch.equal(value, weights(whole)[name]) for name, value in weights(resumed).items())
    assert next(read_trajectories(resumed.trajectory_file("step-000006"))).step == 6


def test_where_it_goes_back_to_does_not_depend_on_where_a_run_was_left(tmp_path):
    """An interrupted run has one more checkpoint, of a step in between."""
    overrides = {
        "guard": {"window": 1, "grad_norm_above": 0.22, "action": "rollback", "rollbacks": 9},
        "save.every": 2,
    }
    whole = trained(tmp_path / "whole", **overrides)
    assert steps(whole)[-1]["guard/rollbacks"] >= 2

    class Leaver(Display):
        def __init__(self, step):
            self.step = step

        def begin_step(self, step):
            if step == self.step:
                raise Interrupted(signal.SIGINT)

    for step in (2, 4, 6):
        run = Run.create(tmp_path / str(step), build(ECHO, overrides))
        with pytest.raises(Interrupted):
            run_training(run, Leaver(step))
        assert checkpoint.newest(run.checkpoints) == run.checkpoint(step - 1)
        resumed = Run.open(run.folder)
        run_training(resumed, Display())
        assert records(resumed) == records(whole)
        assert all(
            torch.equal(value, weights(whole)[name]) for name, value in weights(resumed).items()
        )
        assert [path.name for path in checkpoint.all_in(run.checkpoints)] == [
            path.name for path in checkpoint.all_in(whole.checkpoints)
        ]
