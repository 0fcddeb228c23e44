"""Ctrl-C while modules are being imported, and signals after the last evaluation."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tomli_w

from palestra.core.files import CannotWrite
from palestra.envs.guess.env import Guess
from palestra.runs.run import Run
from palestra.training.preflight import prepare
from tests.chaos.trainer import ended
from tests.support.training import ECHO

pytestmark = [pytest.mark.hostile, pytest.mark.timeout(240)]

ROOT = Path(__file__).parents[2]
AT_IMPORT = """
import os, signal, sys
left = [True]
def hook(event, arguments):
    if event == "import" and arguments[0] == os.environ["DIES_AT"] and left:
        left.clear()
        os.kill(os.getpid(), signal.SIGINT)
sys.addaudithook(hook)
"""
"""As `sitecustomize`, which Python runs before anything else: Ctrl-C when a module is about to be
imported.
"""
MODULES = [
    "palestra.cli",
    "typer",
    "tomllib",
    "pydantic",
    "numpy",
    "torch",
    "torch._C",
    "transformers",
    "palestra.launch",
]
"""In the order in which `palestra train` comes to them, as far as it does."""


def limited():
    import resource

    resource.setrlimit(resource.RLIMIT_DATA, (6 << 30, 6 << 30))


def recipe(tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text(tomli_w.dumps(ECHO | {"steps": 1, "eval": {"tasks": 3}}))
    return path


def start(tmp_path, *arguments, dies_at=""):
    (tmp_path / "sitecustomize.py").write_text(AT_IMPORT)
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": f"{tmp_path}:{ROOT}",
        "DIES_AT": dies_at,
    }
    command = [sys.executable, "-m", "palestra", *map(str, arguments)]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=limited,
    )


@pytest.mark.parametrize(
    "module",
    [
        pytest.param(name, marks=pytest.mark.short) if n in (0, 4) else name
        for n, name in enumerate(MODULES)
    ],
)
def test_ctrl_c_while_a_module_is_imported(tmp_path, module):
    process = start(tmp_path, "train", recipe(tmp_path), "--out", tmp_path / "run", dies_at=module)
    out, errors = process.communicate(timeout=100)
    if process.returncode == 0:
        pytest.skip(f"{module} is not imported by this command")
    assert (process.returncode, errors) == (130, "")
    assert "Traceback" not in out


@pytest.mark.parametrize("command", ["eval", "view", "plan"])
def test_and_in_other_commands(tmp_path, command):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").write_text("")
    more = {"eval": [recipe(tmp_path)], "view": [tmp_path], "plan": [recipe(tmp_path)]}[command]
    process = start(
        tmp_path, command, *more, dies_at="pydantic" if command != "view" else "aiohttp"
    )
    out, errors = process.communicate(timeout=100)
    assert (process.returncode, out, errors) == (130, "", "")


@pytest.mark.parametrize("after_s", [1.5, 5.0])
def test_ctrl_c_at_any_time_of_the_start(tmp_path, after_s):
    """Python itself takes its first tenths of a second before it comes to us."""
    process = start(
        tmp_path, "train", recipe(tmp_path), "--steps", 100_000, "--out", tmp_path / "run"
    )
    time.sleep(after_s)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=100)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert len(errors.splitlines()) <= 1


def test_who_is_told_to_ignore_ctrl_c_ignores_it(tmp_path):
    command = [sys.executable, "-m", "palestra", "env", "list"]
    (tmp_path / "sitecustomize.py").write_text(AT_IMPORT)
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{ROOT}", "DIES_AT": "argparse"}
    ignore = lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)  # noqa: E731  as a shell does for what it runs in the background
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        preexec_fn=ignore,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "textcraft" in done.stdout


def sleep_in_pieces():
    """Python may miss a signal that comes just before a system call, until that call is over."""
    for _ in range(3000):
        time.sleep(0.02)


class Slow(Guess):
    def __init__(self):
        print("constructing", flush=True)
        sleep_in_pieces()


class SlowToStep(Guess):
    def step(self, action):
        print("stepping", flush=True)
        sleep_in_pieces()


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        pytest.param(["env", "check"], Slow, marks=pytest.mark.short),
        (["doctor", "--env.name"], Slow),
        (["eval", "--agent", "expert", "--env"], Slow),
        (["eval", "--agent", "expert", "--env"], SlowToStep),
    ],
)
def test_ctrl_c_in_an_environment_is_the_persons_and_not_its_fault(tmp_path, command, kind):
    process = start(tmp_path, *command, f"tests.hostile.test_start_and_end:{kind.__name__}")
    assert process.stdout.readline() in ("constructing\n", "stepping\n")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=100)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert "KeyboardInterrupt" not in errors


# the end


AFTER = [
    pytest.param(
        "SIGTERM", "palestra.runs.plot:plot_run:1", marks=pytest.mark.short, id="the curve"
    ),
    pytest.param(
        "SIGINT", "palestra.training.setup:Components.close:1", id="the closing of environments"
    ),
]


def start_dying(tmp_path, point, *settings):
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "OMP_WAIT_POLICY": "PASSIVE",
        "PYTHONPATH": str(ROOT),
    }
    command = [
        sys.executable,
        "-m",
        "tests.chaos.dying",
        point,
        "--",
        "train",
        recipe(tmp_path),
        "--out",
        tmp_path / "run",
        *settings,
    ]
    return subprocess.Popen(
        list(map(str, command)),
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=limited,
    )


@pytest.mark.parametrize(("name", "where"), AFTER)
def test_a_signal_after_the_final_evaluation_says_that_the_run_is_over(tmp_path, name, where):
    code, errors = ended(start_dying(tmp_path, f"{name}:call:{where}"))
    assert errors == [
        f"palestra: stopped by {name} after the final evaluation; the run is over, and "
        f"all of it is in {tmp_path / 'run'}"
    ]
    assert code == 128 + signal.Signals[name]
    assert Run.open(tmp_path / "run").metrics()[-1]["phase"] == "final"


def test_a_signal_while_the_final_evaluation_is_recorded_does_not_cut_it_in_two(tmp_path):
    code, errors = ended(start_dying(tmp_path, "SIGTERM:call:palestra.runs.run:Run.write_eval:2"))
    assert code == 143
    assert "the run is over" in errors[0]
    run = Run.open(tmp_path / "run")
    assert run.metrics()[-1]["phase"] == "final"
    assert run.trajectory_file("eval-step-000001-final").is_file()


def test_a_signal_within_the_final_evaluation_says_how_to_go_on(tmp_path):
    _, errors = ended(start_dying(tmp_path, "SIGTERM:call:palestra.training.loop:measure:2"))
    assert errors == [
        "palestra: stopped by SIGTERM; saved up to step 1, resume with: palestra train "
        f"--resume {tmp_path / 'run'}"
    ]


def test_a_run_that_was_over_before_and_is_resumed_is_not_over(tmp_path):
    process = start(tmp_path, "train", recipe(tmp_path), "--out", tmp_path / "run")
    assert process.communicate(timeout=100)[1] == ""
    time.sleep(1)
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    points = ["SIGTERM:call:palestra.training.data_sources:collect_groups:1"]
    command = [
        sys.executable,
        "-m",
        "tests.chaos.dying",
        *points,
        "--",
        "train",
        "--resume",
        str(tmp_path / "run"),
        "--steps",
        "5",
    ]
    code, errors = ended(
        subprocess.Popen(command, cwd=ROOT, env=environment, stdout=-1, stderr=-1, text=True)
    )
    assert code == 143
    assert errors == [
        "palestra: stopped by SIGTERM; saved up to step 1, resume with: palestra train "
        f"--resume {tmp_path / 'run'}"
    ]


def test_where_the_folder_is_gone_nobody_is_told_to_go_on_there(tmp_path):
    from palestra.launch.worker import train_here

    run = Run.create(tmp_path / "run", Run.open(_short_run(tmp_path)).config)
    with run.locked():
        run.folder.rename(tmp_path / "moved")
        with pytest.raises(CannotWrite):
            train_here(run, display="json", prepared=prepare(run.config))
    assert not (tmp_path / "run").exists()


def _short_run(tmp_path):
    from tests.support.training import trained

    return trained(tmp_path / "other", steps=1).folder
