"""Ctrl-C and SIGTERM: a run is left soon, saved and with one line that says how to go on; what it
comes to is the same bit for bit.
"""

import signal
import time

import pytest

from palestra.learner import checkpoint
from tests.chaos.trainer import assert_same, ended, finish, start

pytestmark = pytest.mark.chaos

LEFT_S = 10.0

POINTS = {
    "the warm start": ("SIGINT:call:palestra.learner.learner:Learner._optimizer_step:3", None),
    "the first evaluation": ("SIGTERM:call:palestra.rollout.episode:rollout_episode:4", None),
    "play": ("SIGINT:call:palestra.training.data_sources:collect_groups:6", 5),
    "an update, half of its mini-batches done": (
        "SIGTERM:call:palestra.learner.learner:Learner._optimizer_step:16",
        5,
    ),
    "an evaluation between steps": ("SIGTERM:call:palestra.training.loop:measure:3", 3),
    "a save": ("SIGINT:call:palestra.learner.checkpoint:write_manifest:3", 4),
    "the last evaluation": ("SIGINT:call:palestra.training.loop:measure:6", 10),
}
"""Where a signal comes, and the step that is saved then.

The warm start has 6 mini-batches, and each step 2.
"""


@pytest.mark.parametrize(
    "where",
    [
        pytest.param(name, marks=pytest.mark.short) if n % 3 == 0 else name
        for n, name in enumerate(POINTS)
    ],
)
def test_left_and_gone_on_with(tmp_path, whole, count, where):
    with count("left by Ctrl-C or SIGTERM, then resumed"):
        folder, (point, step) = tmp_path / "run", POINTS[where]
        code, errors = ended(start(folder, points=[point]))
        name = point.split(":")[0]
        assert code == 128 + signal.Signals[name], errors
        kept = (
            "nothing was saved yet, begin again"
            if step is None
            else f"saved up to step {step}, resume"
        )
        assert errors == [
            f"palestra: stopped by {name}; {kept} with: palestra train --resume {folder}"
        ]
        found = checkpoint.newest(folder / "checkpoints")
        assert (None if found is None else checkpoint.step_of(found)) == step
        assert_same(finish(folder), whole)


def test_what_hangs_is_not_waited_for(tmp_path, whole, count):
    with count("left although an update does not end, then resumed"):
        folder = tmp_path / "run"
        process = start(
            folder, points=["stuck:call:palestra.learner.learner:Learner._optimizer_step:16"]
        )
        while checkpoint.newest(folder / "checkpoints") != folder / "checkpoints" / "step-000004":
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        time.sleep(1)
        process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        code, errors = ended(process)
        assert time.monotonic() - began < LEFT_S
        assert code == 143
        assert errors == [
            f"palestra: stopped; saved up to step 4, resume with: palestra train --resume {folder}"
        ]
        assert_same(finish(folder), whole)


def test_a_second_signal_does_not_wait(tmp_path, count):
    with count("left at once by a second Ctrl-C"):
        folder = tmp_path / "run"
        stuck = [
            "SIGINT:call:palestra.learner.learner:Learner._optimizer_step:16",
            "stuck:call:palestra.training.loop:_record:5",
        ]
        process = start(folder, points=["600:set:palestra.core.interrupts:UNDER_WAY_S", *stuck])
        while checkpoint.newest(folder / "checkpoints") != folder / "checkpoints" / "step-000004":
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        while (
            process.poll() is None
        ):  # the first of these that is not taken for the same as the one before
            time.sleep(1)
            process.send_signal(signal.SIGINT)
        assert process.returncode == 130


def test_signals_that_come_together_are_one(tmp_path, whole, count):
    with count("left by two signals at once, then resumed"):
        folder = tmp_path / "run"
        point = "call:palestra.learner.learner:Learner._optimizer_step:16"
        code, errors = ended(start(folder, points=[f"SIGTERM:{point}", f"SIGTERM:{point}"]))
        assert code == 143
        assert errors == [
            "palestra: stopped by SIGTERM; saved up to step 5, resume with: palestra "
            f"train --resume {folder}"
        ]
        assert_same(finish(folder), whole)
