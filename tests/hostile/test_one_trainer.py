"""One trainer for each run folder; a folder that is gone is not made again; and a configuration
that was edited is compared.
"""

import errno
import fcntl
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tomli_w

from palestra.config.config import build
from palestra.core.errors import ConfigError
from palestra.core.files import CannotWrite
from palestra.core.folder_lock import NAME, FolderInUse, FolderLock
from palestra.learner import checkpoint
from palestra.runs.run import Run
from palestra.training.display import Display
from palestra.training.loop import run_training
from palestra.view.answers import Answers
from tests.hostile.commands import Commands
from tests.support.training import ECHO, MIXTURE, records, trained

pytestmark = [pytest.mark.hostile, pytest.mark.timeout(240)]

ROOT = Path(__file__).parents[2]
GONE = "the run folder is gone: it was deleted or moved while the run was training"
ENDLESS = ECHO | {"steps": 100_000, "eval": {"tasks": 3}, "save": {"every": 1}}
LIMITS = (
    "import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_DATA, (6 << 30,) * 2); "
    "sys.argv[0] = 'palestra'; "
)
PROGRAM = LIMITS + "runpy.run_module('palestra', run_name='__main__')"


def start(*arguments, **options):
    """`palestra ...` in a process of its own, within limits."""
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "OMP_WAIT_POLICY": "PASSIVE",
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def ended(process, limit_s=120):
    try:
        out, errors = process.communicate(timeout=limit_s)
    finally:
        process.kill()
    return process.returncode, out, errors.splitlines()


def until(condition, process, limit_s=120):
    end = time.monotonic() + limit_s
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.05)


def steps_done(folder):
    newest = checkpoint.newest(folder / "checkpoints")
    return checkpoint.step_of(newest) if newest else -1


def listing(folder):
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in folder.rglob("*")}


@pytest.fixture
def endless(tmp_path):
    """A run that goes on until it is ended: its folder and its process."""
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(tomli_w.dumps(ENDLESS | {"save": {"every": 5, "keep": 50}}))
    folder = tmp_path / "runs" / "one"
    process = start("train", recipe, "--out", folder)
    until(lambda: steps_done(folder) >= 5, process)
    yield folder, process
    process.kill()
    process.communicate()


@pytest.fixture(scope="module")
def commands():
    running = Commands()
    yield running
    running.close()


@pytest.mark.short
def test_a_second_trainer_is_refused_and_writes_nothing(endless, tmp_path, commands):
    folder, process = endless
    code, _, errors = commands("eval", folder, "--limit", 2, "--json")
    assert code == 0, errors
    assert [run["name"] for run in Answers([folder]).runs()["runs"]] == ["one"]
    steps = steps_done(folder)
    until(lambda: steps_done(folder) > steps, process)  # it goes on meanwhile

    refusal = (
        f"palestra: {folder}: is being trained already, by process {process.pid} on host "
        f"{socket.gethostname()!r} since "
    )
    process.send_signal(signal.SIGSTOP)  # so that all that changes is the second one's doing
    before = listing(folder)
    code, out, errors = commands("train", "--resume", folder, "--steps", 5)
    assert (code, out, len(errors.splitlines())) == (2, "", 1)
    assert errors.startswith(refusal)
    with pytest.raises(FolderInUse, match=f"process {process.pid} on host"):
        run_training(Run.open(folder), Display())
    assert listing(folder) == before
    (folder / NAME).unlink()  # "it must be a stale lock"
    code, _, errors = commands("train", "--resume", folder)
    assert code == 2
    assert errors.startswith(f"palestra: {folder}: is being trained already, by ")
    process.kill()  # and with its holder the lock is gone, whatever is left in the file
    process.communicate()
    run = Run.open(folder, {"steps": steps_done(folder) + 1})
    run_training(run, Display())
    assert [row["step"] for row in run.metrics() if "reward" in row] == list(
        range(1, run.config.steps + 1)
    )


def test_a_checkpoint_that_is_replaced_while_it_is_evaluated(tmp_path, monkeypatch, capsys):
    from palestra.cli.main import main
    from palestra.training import setup as setups

    run = trained(tmp_path / "run", ENDLESS, **{"steps": 2, "save.keep": 3})
    left = [1]
    setup = setups.setup

    def set_up_late(config, **prepared):
        if left:
            left.clear()
            checkpoint.remove(run.checkpoint(2))
        return setup(config, **prepared)

    monkeypatch.setattr(setups, "setup", set_up_late)
    main(["eval", str(run.folder), "--limit", "2", "--json", "--keep", str(tmp_path / "kept")])
    assert json.loads(capsys.readouterr().out)["step"] == 1
    assert Run.open(tmp_path / "kept").config.model.path == str(run.checkpoint(1))


def test_of_two_that_resume_at_once_one_goes_on(tmp_path):
    run = trained(tmp_path / "run", ENDLESS, steps=1)
    both = [start("train", "--resume", run.folder, "--steps", 40) for _ in range(2)]
    outcomes = [ended(process) for process in both]
    codes = sorted(code for code, _, _ in outcomes)
    if codes == [0, 0]:
        pytest.skip("the second began when the first was done")
    assert codes == [0, 2]
    assert next(errors for code, _, errors in outcomes if code)[0].startswith(
        f"palestra: {run.folder}: is being trained already"
    )
    assert [row["step"] for row in run.metrics() if "reward" in row] == list(range(1, 41))


def test_of_two_that_begin_at_once_one_does(tmp_path):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(tomli_w.dumps(ENDLESS | {"steps": 40}))
    both = [start("train", recipe, "--out", tmp_path / "run", "--seed", seed) for seed in (0, 1)]
    outcomes = [ended(process) for process in both]
    assert sorted(code for code, _, _ in outcomes) == [0, 2]
    loser = next(errors for code, _, errors in outcomes if code)
    assert any(
        reason in loser[0]
        for reason in ("is being trained already", "there is a run in this folder already")
    )
    assert [row["step"] for row in Run.open(tmp_path / "run").metrics() if "reward" in row] == list(
        range(1, 41)
    )


def test_the_ranks_of_one_run_have_one_lock(tmp_path):
    run = trained(tmp_path / "run", ENDLESS, **{"steps": 1})
    several = ["--launch.workers", 2, "--launch.restarts", 0]
    first = start("train", "--resume", run.folder, "--steps", 100_000, *several)
    until(lambda: steps_done(run.folder) >= 3, first)
    code, _, errors = ended(start("train", "--resume", run.folder, *several))
    assert code == 2
    assert errors[0].startswith(
        f"palestra: {run.folder}: is being trained already, by process {first.pid} on host "
    )
    first.kill()  # its workers leave when they notice; until then one of them may still write
    first.communicate()
    code, _, errors = ended(
        start("train", "--resume", run.folder, "--steps", steps_done(run.folder) + 30, *several),
        200,
    )
    assert code == 0, errors
    steps = [row["step"] for row in run.metrics() if "reward" in row]
    assert steps == list(range(1, len(steps) + 1))


def test_a_launched_run_whose_folder_is_gone_is_not_restarted(tmp_path):
    run = trained(tmp_path / "run", ENDLESS, **{"steps": 1})
    process = start("train", "--resume", run.folder, "--steps", 100_000, "--launch.workers", 2)
    until(lambda: steps_done(run.folder) >= 3, process)
    run.folder.rename(tmp_path / "moved")
    code, _, errors = ended(process)
    assert code == 2
    assert errors[-1] == f"palestra: {run.folder}: {GONE}"
    assert not any("Traceback" in line or "restart" in line for line in errors)
    assert not run.folder.exists()


# the folder


def test_a_folder_that_was_moved_ends_the_run_and_is_not_made_again(endless, tmp_path):
    folder, process = endless
    moved = tmp_path / "moved"
    folder.rename(moved)
    code, _, errors = ended(process)
    assert code == 2
    assert errors == [f"palestra: {folder}: {GONE}"]
    assert list(folder.parent.iterdir()) == []
    run = Run.open(moved, {"steps": steps_done(moved) + 1})  # and it goes on where it is now
    run_training(run, Display())
    assert steps_done(moved) == run.config.steps


class Hindered(Display):
    """Does something at a point of the training."""

    def __init__(self, point, do):
        self.point, self.do = point, do

    def _at(self, point):
        if self.point == point:
            self.point = None
            self.do()

    def begin_step(self, step):
        self._at(f"before step {step}")

    def end_step(self, row):
        self._at(f"after step {row['step']}")

    def begin_eval(self, phase, count):
        self._at(f"{phase} evaluation")

    def end_eval(self, phase, result):
        self._at(f"after {phase}")

    def phase(self, text):
        self._at(text)


POINTS = [
    "raw evaluation",
    "after raw",
    "before step 1",
    "after step 1",
    "after step 2",
    "before step 3",
    "final evaluation",
]


@pytest.mark.parametrize(
    "how", ["deleted", pytest.param("replaced", marks=pytest.mark.short), "linked elsewhere"]
)
@pytest.mark.parametrize("point", POINTS)
def test_a_folder_that_is_gone(tmp_path, point, how):
    """Whatever is written next, it is not written elsewhere."""
    other = trained(tmp_path / "other", steps=1).folder
    run = Run.create(tmp_path / "run", build(ENDLESS, {"steps": 3, "algo.kl": 0.1}))

    def vanish():
        shutil.rmtree(run.folder)
        if how == "replaced":
            other.rename(run.folder)
        if how == "linked elsewhere":
            run.folder.symlink_to(other)

    before = listing(other)
    with pytest.raises(CannotWrite) as said:
        run_training(run, Hindered(point, vanish))
    assert str(said.value) == f"{run.folder}: {GONE}"
    if how == "deleted":
        assert not run.folder.exists()
    else:
        assert listing(run.folder) == before


def test_groups_that_are_played_beside_the_learner_are_not_written_elsewhere(tmp_path):
    stale = {
        "rollout.max_staleness": 2,
        "engine.deterministic": False,
        "algo.recompute_logprobs": True,
        "algo.correction.cap": 2.0,
    }
    run = Run.create(tmp_path / "run", build(ENDLESS, {"steps": 50, **stale}))
    other = trained(tmp_path / "other", steps=1).folder
    before = listing(other)

    def vanish():
        shutil.rmtree(run.folder, ignore_errors=True)
        while run.folder.exists():
            shutil.rmtree(run.folder, ignore_errors=True)
        other.rename(run.folder)

    with pytest.raises(CannotWrite, match=GONE):
        run_training(run, Hindered("after step 3", vanish))
    assert listing(run.folder) == before


# the lock itself


def test_a_lock_by_itself(tmp_path, caplog):
    one, other = FolderLock(tmp_path, NAME), FolderLock(tmp_path, NAME)
    one.take()
    assert json.loads((tmp_path / NAME).read_text())["pid"] == os.getpid()
    with pytest.raises(FolderInUse, match=f"process {os.getpid()} on host"):
        other.take()
    (tmp_path / NAME).write_text("[" * 100_000)
    with pytest.raises(FolderInUse, match="by another process"):
        other.take(timeout_s=0.3)
    one.release()
    other.take()
    other.release()
    assert caplog.text == ""


def test_a_process_that_was_forked_does_not_keep_it(tmp_path):
    lock = FolderLock(tmp_path, NAME)
    lock.take()
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    try:
        lock.release()
        FolderLock(tmp_path, NAME).take(timeout_s=20)  # the child needs a moment to come to it
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_where_there_are_no_locks_it_says_so_and_goes_on(tmp_path, monkeypatch, caplog):
    """No file system here is without: the system's answer on an NFS without them is given in its
    place.
    """

    def no_locks(descriptor, operation):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    run = trained(tmp_path / "run", steps=1)
    assert (
        "this file system has no locks (No locks available): nothing would notice a "
        "second trainer in this folder" in caplog.text
    )
    assert steps_done(run.folder) == 1


@pytest.mark.parametrize("what", ["link", "pipe", "directory"])
def test_what_is_no_lock_is_not_written_to(tmp_path, what):
    target = tmp_path / "precious"
    target.write_text("precious")
    run = trained(tmp_path / "run", steps=1)
    path = run.folder / NAME
    path.unlink()
    {
        "link": lambda: path.symlink_to(target),
        "pipe": lambda: os.mkfifo(path),
        "directory": path.mkdir,
    }[what]()
    with pytest.raises(CannotWrite, match=r"\.lock: cannot be written"):
        run_training(Run.open(run.folder), Display())
    assert target.read_text() == "precious"


# the configuration


ALGO = r"\[algo\][^\[]*\[optim\]"


def edit(folder, old, new):
    path = folder / "config.toml"
    text = path.read_text()
    pattern = old if old == ALGO else re.escape(old)
    assert len(re.findall(pattern, text)) == 1, text
    path.write_text(re.sub(pattern, new, text))


class Notes(Display):
    def __init__(self):
        self.notes = []

    def note(self, text):
        self.notes.append(text)


@pytest.mark.short
def test_what_may_change_is_applied_and_logged(tmp_path):
    whole = trained(tmp_path / "whole", steps=6)
    run = trained(tmp_path / "run", steps=3)
    edit(run.folder, "steps = 3\n", "steps = 6\n")
    edit(run.folder, "[save]\nevery = 3", "[save]\nevery = 2")
    display = Notes()
    resumed = Run.open(run.folder, {"eval.tasks": 7})
    run_training(resumed, display)
    changed = (
        "changed since step 3: steps = 6 (was 3); eval.tasks = 7 (was 30); save.every = 2 (was 3)"
    )
    assert display.notes == [changed, "resumed after step 3"]
    assert (
        changed in (run.folder / "log.txt").read_text()
        if (run.folder / "log.txt").exists()
        else True
    )
    assert {path.name for path in resumed.checkpoints.iterdir()} == {"step-000004", "step-000006"}
    ours, theirs = ([row for row in records(one)[0] if "reward" in row] for one in (resumed, whole))
    assert ours == theirs
    display = Notes()
    run_training(Run.open(run.folder), display)
    assert display.notes == ["resumed after step 6"]  # nothing was changed since


EDITS = {
    "seed": (
        "seed = 0\n",
        "seed = 5\n",
        "seed = 5: a run's seed cannot be changed when it is resumed; it was begun with 0",
    ),
    "width": (
        "width = 32\n",
        "width = 64\n",
        "model.width = 64: a run's model cannot be changed when it is resumed; it was "
        "begun with 32",
    ),
    "dtype": (
        'dtype = "float32"\n',
        'dtype = "float64"\n',
        "dtype = 'float64': a run's model cannot be changed",
    ),
    "environment": (
        '"tests.support.environments:Echo"',
        '"tests.support.environments:Count"',
        "env.name = 'tests.support.environments:Count': a run's environment cannot be",
    ),
    "option": (
        "[env.options]\n",
        "[env.options]\nrounds = 2\n",
        "env.options.rounds = 2: a run's environment cannot be changed",
    ),
    "format": (
        'format = "plain"',
        'format = "tags"',
        "agent.format = 'tags': a run's format cannot be changed",
    ),
    "algorithm": (
        ALGO,
        '[algo]\nname = "rloo"\n\n[optim]',
        "algo.name = 'rloo': a run's algorithm cannot be changed",
    ),
}


@pytest.mark.parametrize(
    "what",
    [pytest.param(name, marks=pytest.mark.short) if name == "width" else name for name in EDITS],
)
def test_what_may_not_change_is_refused_by_name(tmp_path, what, capsys):
    from palestra.cli.main import main

    run = trained(tmp_path / "run", steps=1)
    old, new, says = EDITS[what]
    edit(run.folder, old, new)
    before = listing(run.folder)
    with pytest.raises(ConfigError) as refused:
        run_training(Run.open(run.folder, {"steps": 2}), Display())
    assert str(refused.value).startswith(says)
    with pytest.raises(SystemExit) as stopped:
        main(["train", "--resume", str(run.folder), "--steps", "2"])
    line = capsys.readouterr().err.splitlines()[-1]
    assert (stopped.value.code, line.startswith(f"palestra: {says}"), "layers." in line) == (
        2,
        True,
        False,
    )
    after = listing(run.folder)
    assert {name: time for name, time in after.items() if name != NAME} == {
        name: time for name, time in before.items() if name != NAME
    }


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"seed": 5}, "seed = 5: a run's seed"),
        ({"env.options": {"rounds": 2}}, "env.options.rounds = 2: a run's environment"),
        (
            {"warm_start.updates": 3},
            "warm_start = {.*: a run's warm start cannot be changed .* begun with none",
        ),
        (
            {"mixture": MIXTURE, "env": None, "algo.scale": False},
            "env.name = .*: a run's environment",
        ),
    ],
)
def test_flags_of_a_resume_follow_the_same_rule(tmp_path, changed, says):
    run = trained(tmp_path / "run", steps=1)
    with pytest.raises(ConfigError, match=says):
        Run.open(run.folder, {"steps": 2, **changed})


def test_of_a_mixture_weights_may_change_and_members_may_not(tmp_path):
    run = trained(
        tmp_path / "run",
        ECHO | {"env": None, "mixture": MIXTURE},
        **{"algo.scale": False, "steps": 1},
    )
    heavier = [MIXTURE[0] | {"weight": 5}, MIXTURE[1]]
    assert Run.open(run.folder, {"mixture": heavier}).config.mixture[0].weight == 5
    for other in (
        MIXTURE[:1],
        [MIXTURE[0] | {"options": {"rounds": 2}}, MIXTURE[1]],
        MIXTURE[::-1],
    ):
        with pytest.raises(ConfigError, match=r"mixture.*a run's environment cannot be changed"):
            Run.open(run.folder, {"mixture": other})


def test_weights_of_another_model_are_refused_in_one_short_line(tmp_path):
    """Checkpoints of older versions do not know what they were begun with."""
    run = trained(tmp_path / "run", steps=1)
    for folder in checkpoint.all_in(run.checkpoints):
        state, _ = checkpoint.read_description(folder)
        del state["config"]
        (folder / checkpoint.STATE).unlink()
        checkpoint.write_manifest(folder, state)
    edit(run.folder, "width = 32\n", "width = 64\n")
    with pytest.raises(checkpoint.BadCheckpoint) as refused:
        run_training(Run.open(run.folder, {"steps": 2}), Display())
    said = str(refused.value)
    assert said.startswith(
        f"{run.checkpoint(1)}: its weights are not those of the model in config.toml: "
    )
    assert "layers" not in said
    assert len(said) < 400


def test_a_run_without_a_checkpoint_begins_again_with_what_it_is_told_now(tmp_path):
    run = Run.create(tmp_path / "run", build(ECHO, {"steps": 1}))
    edit(run.folder, "seed = 0\n", "seed = 5\n")
    again = Run.open(run.folder)
    run_training(again, Display())
    assert again.config.seed == 5
