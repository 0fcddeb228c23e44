"""Environments that fork: no child trains, none answers in its parent's place, and afterwards no
process is left over.
"""

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tomli_w

from tests.chaos.forking import MOST, children
from tests.chaos.trainer import RECIPE, ROOT

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.skipif(
        not Path("/proc/self/environ").exists(), reason="processes are counted in /proc"
    ),
]
NAME = "tests.chaos.forking:Forking"
FORKED = 'the environment forked the process that plays it (os.fork); set isolation = "process"'
END = "the end; children: []"


class Sandbox:
    """Starts programs, and knows all that descends from them by a variable that they inherit."""

    def __init__(self, folder):
        self.folder = folder
        self.mark = f"FORK_TEST={secrets.token_hex(8)}"

    def start(self, *command, options=None):
        name, _, value = self.mark.partition("=")
        variables = {
            "OMP_NUM_THREADS": "1",
            "OMP_WAIT_POLICY": "PASSIVE",
            "PYTHONPATH": str(ROOT),
            name: value,
        }
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=ROOT,
            env=os.environ | variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        process.stdin.write(json.dumps(options))
        process.stdin.close()
        process.stdin = None
        return process

    def play(self, isolation, how, where="step", *, episodes=2, **settings):
        """What the program printed, a line for each episode and the end."""
        process = self.player(isolation, how, where, episodes=episodes, **settings)
        printed, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
        return printed.splitlines()

    def player(self, isolation, how, where="step", *, episodes=1, **settings):
        options = {"folder": str(self.folder), "how": how, "where": where}
        return self.start(
            "-m",
            "tests.chaos.forking",
            isolation,
            json.dumps(settings),
            str(episodes),
            options=options,
        )

    def train(self, how, where="step", **env):
        options = {"folder": str(self.folder), "how": how, "where": where}
        recipe = self.folder / "recipe.toml"
        changes = {
            "steps": 2,
            "env": {"name": NAME, "options": options, **env},
            "eval": {"tasks": 4},
            "horizon": {"kind": "fixed", "turns": 1},
        }
        kept = {name: table for name, table in RECIPE.items() if name != "warm_start"}
        recipe.write_text(tomli_w.dumps(kept | {"rollout": {"tasks": 2, "group": 2}} | changes))
        process = self.start(
            "-m", "palestra", "train", str(recipe), "--out", str(self.folder / "run")
        )
        printed, errors = process.communicate(timeout=100)
        return process.returncode, printed.splitlines(), errors.splitlines()

    def left(self):
        """Living processes with the mark. Dead ones have no environment."""
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if self.mark.encode() in path.read_bytes().split(b"\0"):
                    found.append(int(path.parent.name))
            except OSError:
                continue
        return found

    def is_empty(self, within_s=5.0):
        until = time.monotonic() + within_s
        while self.left() and time.monotonic() < until:
            time.sleep(0.05)
        return not self.left()

    @property
    def forks(self):
        """How many slots were taken."""
        return len(list(self.folder.glob("slot-*")))

    def clear(self):
        while left := self.left():
            for pid in left:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)


@pytest.fixture
def sandbox(tmp_path):
    sandbox = Sandbox(tmp_path)
    try:
        yield sandbox
    finally:
        sandbox.clear()


def happened(sandbox, where="step"):
    return (sandbox.folder / f"tried-{where}").exists()


# whole runs


@pytest.mark.short
def test_a_run_whose_environment_forks_in_the_training_process(sandbox, count):
    with count("an environment that forks, inline"):
        code, printed, errors = sandbox.train("comes_back")
        assert code == 0, (
            errors
            # some replies of a new model are cut, and so never reach the environment: not all
            # episodes
            # fault
        )
        assert sandbox.forks > 1
        assert children(sandbox.folder) == []  # they ended when they were born
        assert sum(line.startswith("run folder:") for line in printed) == 1
        assert (
            sum(line.startswith("learning curve:") for line in printed) == 1
        )  # nobody else came to the end
        assert FORKED in (sandbox.folder / "run" / "log.txt").read_text()
        assert sandbox.is_empty(within_s=0)


def test_a_run_whose_environment_forks_in_every_episode(sandbox):
    code, printed, errors = sandbox.train("comes_back", "reset")
    assert code == 2
    assert errors[-1].startswith(
        "palestra: every episode of the evaluation (raw) ended in a fault; the first "
        f"one: env_fault: {FORKED}"
    )
    assert sum(line.startswith("stopped;") for line in printed) == 1
    assert children(sandbox.folder) == []
    assert sandbox.is_empty(within_s=0)


@pytest.mark.short
def test_a_run_whose_environment_forks_in_a_worker(sandbox, count):
    with count("an environment that forks, in a process"):
        code, printed, errors = sandbox.train("comes_back", isolation="process", per_worker=4)
        assert code == 0, errors
        assert sandbox.forks == len(children(sandbox.folder)) > 1
        assert sum(line.startswith("run folder:") for line in printed) == 1
        steps = (sandbox.folder / "run" / "metrics.jsonl").read_text().splitlines()
        rows = [json.loads(line) for line in steps]
        assert [row["step"] for row in rows if "loss" in row or "success" in row] == [1, 2]
        assert all(row["faults"] == 0 for row in rows if "faults" in row)
        assert sandbox.is_empty()


@pytest.mark.parametrize("where", ["make", "tasks"])
def test_a_run_whose_environment_forks_before_it_is_played(sandbox, where):
    code, _, errors = sandbox.train("comes_back", where)
    assert code == 2
    assert FORKED in errors[-1]
    assert happened(sandbox, where)
    assert children(sandbox.folder) == []
    assert sandbox.is_empty()


@pytest.mark.parametrize("where", ["make", "tasks", "vocabulary", "close"])
def test_a_worker_may_fork_where_the_training_process_asks_too(sandbox, where):
    """The training process makes one environment to ask it for tasks: its children come back to
    nobody.
    """
    code, printed, errors = sandbox.train("comes_back", where, isolation="process")
    assert code == 0, errors
    assert sum(line.startswith("learning curve:") for line in printed) == 1
    assert sandbox.forks > 0
    assert sandbox.is_empty()


# in the training process


@pytest.mark.short
@pytest.mark.parametrize(
    "how", ["comes_back", "raises", "leaves", "stays", "bursts", "fills", "becomes_a_daemon"]
)
def test_a_fork_in_the_training_process_is_a_fault(sandbox, how):
    fault = f"env_fault: {FORKED}, which gives it one of its own"
    assert sandbox.play("inline", how, episodes=1) == [fault, END]
    assert sandbox.forks == (MOST if how in ("bursts", "fills") else 1)
    assert children(sandbox.folder) == []
    assert sandbox.is_empty(within_s=0)


@pytest.mark.short
@pytest.mark.parametrize("where", ["make", "reset", "actions", "expert"])
def test_wherever_it_forks(sandbox, where):
    assert sandbox.play("inline", "comes_back", where, episodes=1) == [
        f"env_fault: {FORKED}, which gives it one of its own",
        END,
    ]
    assert happened(sandbox, where)
    assert children(sandbox.folder) == []


def test_a_fork_while_it_is_closed(sandbox):
    assert sandbox.play("inline", "comes_back", "close") == ["right", "right", END]
    assert happened(sandbox, "close")
    assert children(sandbox.folder) == []
    assert sandbox.is_empty(within_s=0)


@pytest.mark.short
@pytest.mark.parametrize(
    "how", ["starts_a_program", "starts_a_program_prepared", "asks_a_process", "ends_a_process"]
)
def test_processes_that_run_something_else_are_nobodys_fault(sandbox, how):
    assert sandbox.play("inline", how) == ["right", "right", END]
    assert sandbox.forks == 2
    assert sandbox.is_empty(within_s=0)


def test_a_fork_that_python_does_not_know_of(sandbox):
    printed = sandbox.play("inline", "forks_in_c")
    assert printed[:2] == ["right", "right"]
    assert len(printed) == 3
    assert len(children(sandbox.folder)) == 2
    assert sandbox.is_empty(within_s=0)


# in a worker


@pytest.mark.short
@pytest.mark.parametrize(
    "how",
    [
        "comes_back",
        "raises",
        "leaves",
        "stays",
        "becomes_a_daemon",
        "starts_a_daemon",
        "asks_a_process",
        "ends_a_process",
    ],
)
def test_a_child_of_a_worker_answers_nobody_and_ends_with_it(sandbox, how):
    assert sandbox.play("process", how, episodes=3) == ["right"] * 3 + [END]
    assert sandbox.forks >= 3
    assert sandbox.is_empty(within_s=0)


@pytest.mark.short
def test_a_worker_may_not_have_more_processes_than_it_is_allowed(sandbox, count):
    with count("a worker that starts too many processes"):
        first, end = sandbox.play("process", "fills", episodes=1, max_processes=6)
        assert (
            first == "env_fault: the worker was killed: it and what it had started were more "
            "processes than max_processes = 6"
        )
        assert end == END
        assert sandbox.is_empty(within_s=0)


def test_a_worker_that_has_as_many_as_it_is_allowed_goes_on(sandbox):
    """Itself and three children that stay: `stays` makes one in each episode."""
    assert sandbox.play("process", "stays", episodes=3, max_processes=4) == ["right"] * 3 + [END]
    assert sandbox.is_empty(within_s=0)


@pytest.mark.short
@pytest.mark.parametrize("how", ["stays", "becomes_a_daemon", "starts_a_daemon"])
def test_nothing_is_left_when_the_training_process_is_killed(sandbox, how, count):
    with count("a training process that is killed, with what its workers had started"):
        process = sandbox.player("process", how, episodes=1000)
        until = time.monotonic() + 30
        while sandbox.forks < 4 and time.monotonic() < until:
            time.sleep(0.02)
        assert sandbox.forks >= 4
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert sandbox.is_empty()
