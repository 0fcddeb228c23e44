"""Several workers on one host, started by the real command line."""

import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from palestra.config.config import build, dump
from palestra.core.errors import ConfigError
from palestra.learner import checkpoint
from palestra.runs.run import Run
from palestra.training.display import Display
from palestra.training.loop import run_training
from tests.support.training import ECHO, trained


def train(*arguments, **options):
    """`palestra train` in a process of its own."""
    command = [sys.executable, "-m", "palestra", "train", *map(str, arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


def finished(process, limit_s=100):
    out, errors = process.communicate(timeout=limit_s)
    return process.returncode, out, errors


def recipe(folder, **overrides):
    path = folder / "echo.toml"
    path.write_text(dump(build(ECHO, {"save.every": 1, "launch.workers": 2, **overrides})))
    return path


def until(condition, limit_s=60):
    end = time.monotonic() + limit_s
    while not (found := condition()):
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.02)
    return found


def workers_of(process):
    """The training workers, by their rank."""
    found = {}
    for child in psutil.Process(process.pid).children():
        if "palestra.launch" in child.cmdline():
            found[int(child.environ()["RANK"])] = child
    return found


def steps_done(folder):
    newest = checkpoint.newest(folder / "checkpoints")
    return int(newest.name[5:]) if newest else -1


def test_two_workers_train_a_run(tmp_path):
    code, out, errors = finished(
        train(recipe(tmp_path, steps=2), "--out", tmp_path / "run", "--json")
    )
    assert (code, errors) == (0, "")
    result = json.loads(out)["result"]
    assert (result["phase"], result["step"]) == ("final", 2)
    run = Run.open(tmp_path / "run")
    assert [row["step"] for row in run.metrics() if "reward" in row] == [
        1,
        2,
    ]  # each step once, not once for each worker
    assert not (run.folder / ".failure.json").exists()

    alone = Run.open(run.folder, {"steps": 3, "launch.workers": 1})
    run_training(alone, Display())
    assert [row["step"] for row in alone.metrics() if "reward" in row] == [1, 2, 3]


def test_a_killed_worker_is_made_good(tmp_path):
    process = train(recipe(tmp_path, steps=8), "--out", tmp_path / "run")
    until(lambda: steps_done(tmp_path / "run") >= 1)
    first = workers_of(process)
    first[1].kill()
    code, out, errors = finished(process)
    assert code == 0, errors
    assert errors.startswith(
        "worker 1 was lost (killed by SIGKILL); all workers continue from step-"
    )
    assert errors.endswith("(restart 1 of 3)\n")
    assert errors.count("\n") == 1  # no traceback
    assert "resumed after step" in out
    assert [row["step"] for row in Run.open(tmp_path / "run").metrics() if "reward" in row] == list(
        range(1, 9)
    )
    assert not any(worker.is_running() for worker in first.values())


@pytest.mark.chaos
def test_restarts_come_to_an_end(tmp_path):
    process = train(recipe(tmp_path, steps=50, **{"launch.restarts": 0}), "--out", tmp_path / "run")
    until(lambda: steps_done(tmp_path / "run") >= 1)
    os.kill(workers_of(process)[0].pid, signal.SIGKILL)
    code, _, errors = finished(process)
    assert code == 2
    assert errors.startswith(
        "palestra: worker 0 was lost (killed by SIGKILL); the run was restarted 0 times, "
        "saved up to step "
    )


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGTERM, marks=pytest.mark.chaos), signal.SIGINT]
)
def test_a_signal_ends_all_workers(tmp_path, number):
    process = train(recipe(tmp_path, steps=500), "--out", tmp_path / "run")
    until(lambda: steps_done(tmp_path / "run") >= 1)
    workers = workers_of(process)
    process.send_signal(number)
    code, _, errors = finished(process)
    assert code == 128 + number
    assert errors.startswith(f"palestra: stopped by {number.name}; saved up to step ")
    assert errors.count("\n") == 1
    assert not any(worker.is_running() for worker in workers.values())
    assert steps_done(tmp_path / "run") < 500


@pytest.mark.chaos
def test_workers_leave_with_a_launcher_that_was_killed(tmp_path):
    process = train(recipe(tmp_path, steps=500), "--out", tmp_path / "run")
    until(lambda: steps_done(tmp_path / "run") >= 1)
    workers = workers_of(process)
    process.kill()
    psutil.wait_procs(workers.values(), timeout=20)
    assert not any(worker.is_running() for worker in workers.values())
    process.communicate()


def test_a_workers_error_is_one_line(tmp_path):
    """One that only the workers find."""
    trained(tmp_path / "run", steps=1, **{"launch.workers": 2})
    code, _, errors = finished(train("--resume", tmp_path / "run", "--steps", 2, "--algo.kl", 0.1))
    assert code == 2
    assert (
        errors == "palestra: algo: the run was begun without a reference model, so one cannot be "
        "asked for when it is resumed\n"
    )


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            {"launch.address": "ray://host:10001"},
            "launch.address = 'ray://host:10001': has no effect with kind = 'local'; did "
            "you mean 'ray'?",
        ),
        (
            {"launch.env_servers": 2},
            "launch.env_servers = 2: has no effect with kind = 'local'; did you mean 'ray'?",
        ),
        (
            {"launch.restarts": 1},
            "launch.restarts = 1: has no effect with one local worker, there is nobody to "
            "notice its loss",
        ),
        ({"launch.workers": 0}, "launch.workers = 0: expected a value greater than 0"),
        (
            {"launch.kind": "slurm"},
            "launch.kind = 'slurm': expected one of local, ray; there are: local, ray",
        ),
    ],
)
def test_settings_without_effect_are_errors(overrides, message):
    with pytest.raises(ConfigError) as error:
        build({}, overrides)
    assert str(error.value) == message
