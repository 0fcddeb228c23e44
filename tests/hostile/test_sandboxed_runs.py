"""Runs and servers whose environments are played in a sandbox: nothing of them is imported outside,
and they play as they do elsewhere.
"""

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import palestra
from palestra.cli.main import main
from palestra.envs import envs
from palestra.envs.serving.sandbox import objection
from palestra.envs.serving.sandboxed import make_sandboxed
from palestra.envs.serving.worker_pool import Workers, WorkerSettings
from tests.support.served import command as served

pytestmark = pytest.mark.hostile
REPOSITORY = Path(palestra.__file__).parents[1]
without = objection()
needs_bwrap = pytest.mark.skipif(without is not None, reason=without or "")


# outside of it, none of its code runs


IMPORTED = """
import sys
from palestra.core.types import Step, Task
from palestra.envs import Environment
from pathlib import Path

try:
    with (Path(__file__).parent / "imported").open("a") as file:
        file.write("imported\\n")
except OSError:
    pass


class Doubtful(Environment):
    name = "doubtful"
    per_process = 3

    def tasks(self, split):
        return [Task(self.name, split, str(n)) for n in range(8)]

    def reset(self, task):
        return "say red"

    def vocabulary(self):
        return ["say", "red", "right"]

    def step(self, action):
        return Step("right", reward=1.0, terminated=True, success=True)
"""


def palestra_command(*arguments, cwd, **environment):
    code = "from palestra.cli.main import main; main()"
    variables = {**os.environ, "PYTHONPATH": str(REPOSITORY), **environment}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=110,
        cwd=cwd,
        env=variables,
        check=False,
    )


TRAIN = [
    "train",
    str(REPOSITORY / "palestra" / "recipes" / "quickstart.toml"),
    "--env.name",
    "doubtful:Doubtful",
    "--steps",
    "1",
    "--eval.tasks",
    "2",
]
TRAIN += [
    "--agent.format",
    "plain",
    "--env.isolation",
    "process",
    "--rollout.tasks",
    "2",
    "--rollout.group",
    "2",
]


@pytest.fixture
def doubtful(tmp_path):
    folder = tmp_path / "doubtful"
    folder.mkdir()
    (folder / "doubtful.py").write_text(IMPORTED)
    return folder


@needs_bwrap
def test_a_run_imports_nothing_of_it(doubtful):
    trained = palestra_command(*TRAIN, "--env.sandbox", "bwrap", cwd=doubtful)
    assert trained.returncode == 0, trained.stderr
    assert not (doubtful / "imported").exists()
    assert list(doubtful.glob("runs/*/checkpoints/step-*"))


@needs_bwrap
def test_it_is_imported_without_a_sandbox(doubtful, monkeypatch):
    monkeypatch.chdir(doubtful)
    monkeypatch.syspath_prepend(str(doubtful))
    asyncio.run(_opened("doubtful:Doubtful"))
    assert (doubtful / "imported").exists()


async def _opened(name):
    pool = Workers(name, {}, WorkerSettings(workers=1, per_worker=1))
    await (await pool.open()).close()
    await pool.close()


@needs_bwrap
def test_a_server_imports_nothing_of_it(doubtful, monkeypatch):
    monkeypatch.chdir(doubtful)
    arguments = ("doubtful:Doubtful", "--port", "0", "--sandbox", "bwrap")
    with served(*arguments, PYTHONPATH=os.pathsep.join([str(REPOSITORY), str(doubtful)])) as child:
        env = envs[child.at.url("doubtful")]()
        assert env.reset(env.tasks("train")[3]) == "say red"
        assert env.step("red").success
        env.close()
    assert not (doubtful / "imported").exists()


@needs_bwrap
def test_what_is_asked_besides_playing():
    settings = WorkerSettings(sandbox="bwrap")
    env = make_sandboxed("tests.hostile.escaping:Importing", {}, settings)
    try:
        assert (env.name, env.per_process, [task.id for task in env.tasks("test")]) == (
            "importing",
            3,
            ["0"],
        )
        with pytest.raises(ValueError, match="^no task 7$"):
            env.task("7")
        env.close()
        assert env.vocabulary() is None  # asked again, there is another worker
    finally:
        env.close()
    with pytest.raises(
        ValueError, match=r"NoOptions, in its sandbox: RuntimeError: constructed by"
    ):
        make_sandboxed("tests.hostile.escaping:NoOptions", {}, settings)


# what means no harm plays as it does elsewhere


async def _episodes(name, kind, count):
    pool = Workers(
        name, {}, WorkerSettings(workers=1, sandbox=kind, deadline_s=100.0, boot_s=100.0)
    )
    env, told = envs[name](), []
    try:
        for task in env.tasks("train")[:count]:
            seat = await pool.open()
            told.append(await seat.reset(task))
            for _ in range(6):
                step = await seat.step(await seat.expert() or "look around")
                told.append(step)
                if step.terminated:
                    break
            await seat.close()
        return told
    finally:
        await pool.close()
        env.close()


@needs_bwrap
@pytest.mark.parametrize(("name", "count"), [
    ("guess", 5),
    ("textcraft", 3),
    ("babyai", 3),
    pytest.param("sciworld", 1, marks=pytest.mark.skipif(shutil.which("java") is None,
    reason="there is no Java")),
])  # fmt: skip
def test_trajectories_are_the_same(name, count):
    if name == "sciworld":
        pytest.importorskip("scienceworld")
    inside, outside = (asyncio.run(_episodes(name, kind, count)) for kind in ("bwrap", "none"))
    assert inside == outside
    assert len(inside) >= 2 * count


# where there is none


def test_a_missing_bwrap_is_one_line_before_a_run_begins(doubtful, tmp_path):
    (tmp_path / "bin").mkdir()
    trained = palestra_command(
        *TRAIN, "--env.sandbox", "bwrap", cwd=doubtful, PATH=str(tmp_path / "bin")
    )
    assert trained.returncode == 2
    assert "Traceback" not in trained.stderr
    (line,) = [line for line in trained.stderr.splitlines() if line.startswith("palestra: ")]
    assert (
        "doubtful: sandbox = 'bwrap': there is no bwrap on the PATH; install Debian's "
        "package bubblewrap" in line
    )
    assert not (doubtful / "runs").exists()
    assert not (doubtful / "imported").exists()


@pytest.mark.short
@pytest.mark.parametrize(("arguments", "phrase"), [
    (["guess", "--sandbox", "bwrap", "--isolation", "inline"],
    "--sandbox = 'bwrap': has no effect with isolation = 'inline'"),
    (["guess", "--sandbox-read", "x"],
    "--sandbox_read = ['x']: has no effect with sandbox = 'none'"),
    (["agentgym", "--sandbox", "bwrap"], "agentgym needs the network"),
])  # fmt: skip
def test_a_server_says_what_has_no_effect(arguments, phrase, capsys):
    with pytest.raises(SystemExit) as end:
        main(["env", "serve", *arguments])
    assert end.value.code == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert phrase in line
