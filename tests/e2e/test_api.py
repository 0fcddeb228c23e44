"""`import palestra` trains, evaluates and reads runs: in a script, in an event loop, and again."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import urllib.request
from pathlib import Path

import pytest

import palestra
from palestra.core.interrupts import Interrupted
from tests.support.environments import Echo

SMALL = {
    "steps": 2,
    "seed": 1,
    "device": "cpu",
    "threads": 1,
    "model": palestra.TinyModel(width=16, layers=1, heads=2),
    "agent": {"format": "plain", "context_tokens": 128, "reply_tokens": 8},
    "rollout": {"tasks": 2, "group": 2},
    "warm_start": None,
    "eval": {"tasks": 2},
    "display": "none",
}


class Words(Echo):
    """An environment of this module, given as a class."""


def test_a_class_is_trained_evaluated_and_read(tmp_path):
    run = palestra.train(
        Words,
        out=tmp_path / "run",
        horizon=palestra.Stages(turns=[1, 2], every=1),
        algo=palestra.GRPO(clip_high=0.28),
        **SMALL,
    )
    assert run.is_complete
    assert [row["horizon"] for row in run.metrics("horizon")] == [1, 2]
    assert {result.phase for result in run.evaluations()} == {"raw", "final"}
    assert run.result.phase == "final"
    assert str(run.result.success).endswith("%]")
    assert run.config.algo.clip_high == 0.28

    episodes = list(run.episodes(step=2))
    assert len(episodes) == 4
    assert list(run.episodes(step=2, success=True)) == [e for e in episodes if e.success]
    assert run.episode(episodes[0].id) == episodes[0]
    text = episodes[0].transcript()
    assert text.startswith(f"episode {episodes[0].id}: words train task")
    assert "turn 1" in text
    assert len(list(run.episodes(phase="final"))) == 2

    result = run.evaluate(tasks=2, k=2, keep=tmp_path / "kept")
    assert (result.k, result.all.episodes) == (2, 4)
    assert len(list(palestra.load_run(tmp_path / "kept").episodes(phase="eval"))) == 4
    assert "step 2" in repr(palestra.load_run(tmp_path / "run"))


def test_the_newest_checkpoint_of_a_run_is_a_model_for_the_next(tmp_path):
    first = palestra.train(Words, out=tmp_path / "first", **SMALL)
    assert first.checkpoint.parent == first.folder / "checkpoints"
    settings = SMALL | {"model": first.checkpoint, "steps": 1, "save": {"every": 0}}
    second = palestra.train(Words, out=tmp_path / "second", **settings)
    assert second.config.model == palestra.PretrainedModel(path=str(first.checkpoint))
    # What is chosen for it is no more than it has positions for.
    chosen = palestra.configure(Words, model=first.checkpoint, agent={"format": "plain"})
    assert chosen.agent.context_tokens <= 128
    with pytest.raises(palestra.ConfigError, match="no checkpoint yet"):
        _ = second.checkpoint


def test_a_run_is_resumed_where_it_ended(tmp_path):
    run = palestra.train(Words, out=tmp_path / "run", **SMALL)
    longer = run.resume(steps=3, display="none")
    assert longer.folder == run.folder
    assert [row["step"] for row in longer.metrics("loss")] == [1, 2, 3]
    with pytest.raises(palestra.ConfigError, match="seed"):
        run.resume(seed=5, display="none")


def test_it_trains_in_a_running_event_loop_as_it_does_without(tmp_path):
    async def cell():
        return palestra.train(Words, out=tmp_path / "inside", **SMALL)

    inside = asyncio.run(cell())
    outside = palestra.train(Words, out=tmp_path / "outside", **SMALL)
    for one, other in zip(inside.metrics("loss"), outside.metrics("loss"), strict=True):
        timeless = {name for name in one if not name.startswith("time/")}
        assert {name: one[name] for name in timeless} == {name: other[name] for name in timeless}


def test_baselines_and_mixtures(tmp_path):
    result = palestra.evaluate(agent="expert", env="guess", tasks=3)
    assert result.success == 1.0
    assert (result.success.low, result.success.high) == result.all.success_interval
    mixture = [{"name": Words, "label": "one"}, {"name": Words, "label": "two", "weight": 2.0}]
    run = palestra.train(mixture, out=tmp_path / "run", **SMALL)
    assert set(run.result.envs) == {"one", "two"}
    assert {episode.task.env for episode in run.episodes(env="two")} <= {"two"}


SCRIPT = """
import palestra
from tests.support.environments import Echo

class Words(Echo):
    pass

settings = {settings!r}
{program}
"""


def run_script(folder, program, *, check=True, **more):
    """A program of a user's: its class is in `__main__`."""
    plain = {name: value for name, value in SMALL.items() if name != "model"}
    plain["model"] = {"width": 16, "layers": 1, "heads": 2}
    path = folder / "script.py"
    path.write_text(SCRIPT.format(settings=plain | more, program=textwrap.dedent(program)))
    root = Path(__file__).parents[2]
    return subprocess.run(
        [sys.executable, str(path)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=110,
        check=check,
    )


def test_a_class_of_a_script_trains_and_resumes_there(tmp_path):
    done = run_script(
        tmp_path,
        """
        run = palestra.train(Words, out="run", **settings)
        again = palestra.train(Words, out="run", resume=True, steps=3, display="none")
        print(run.config.env.name, len(again.metrics("loss")))
        """,
    )
    assert done.stdout.split() == ["__main__:Words", "3"]
    with pytest.raises(palestra.UserError, match="defined in a script or notebook"):
        palestra.train(out=tmp_path / "run", resume=True, display="none")


@pytest.mark.parametrize(
    ("more", "phrase"),
    [
        ({"env": {"isolation": "process"}}, "isolation = 'process'"),
        ({"launch": {"workers": 2}}, "launch.workers = 2"),
    ],
)
def test_what_another_process_would_have_to_import_is_refused(tmp_path, more, phrase):
    env = "{'name': Words} | " + repr(more.pop("env", {}))
    done = run_script(
        tmp_path, f"palestra.train({env}, out='run', **settings)", check=False, **more
    )
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert phrase in last
    assert "__main__:Words" in last
    assert "move it to a module" in last
    assert not (tmp_path / "run").exists()


def test_ctrl_c_saves_and_raises(tmp_path):
    """As in a cell: the program goes on after it, and so can the run."""

    class Interrupting(Words):
        calls = 0

        def reset(self, task):
            Interrupting.calls += 1
            if Interrupting.calls == 12:
                os.kill(os.getpid(), signal.SIGINT)
            return super().reset(task)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt) as caught:
        palestra.train(Interrupting, out=tmp_path / "run", **SMALL | {"steps": 50})
    assert isinstance(caught.value, Interrupted)
    assert signal.getsignal(signal.SIGINT) is before
    run = palestra.load_run(tmp_path / "run")
    saved = [path.name for path in (run.folder / "checkpoints").iterdir()]
    assert saved
    assert not run.is_complete
    steps = max(row["step"] for row in run.metrics())
    again = palestra.train(
        Interrupting, out=run.folder, resume=True, steps=steps + 1, display="none"
    )
    assert again.is_complete


def test_a_run_is_viewed_in_the_background(tmp_path, monkeypatch):
    run = palestra.train(Words, out=tmp_path / "run", **SMALL)
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    viewer = run.view(open_browser=False)
    try:
        with urllib.request.urlopen(f"{viewer.url}api/runs.json", timeout=10) as answer:
            assert [found["name"] for found in json.load(answer)["runs"]] == ["run"]
    finally:
        viewer.close()
    assert "viewer" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize(
    ("arguments", "phrase"),
    [
        ({}, "expected an environment or a recipe"),
        ({"env": "guess", "resume": True}, "expected out"),
        ({"env": "guess", "recipe": "no-such"}, "no such recipe"),
        ({"env": "guess", "display": "loud"}, "display = 'loud'"),
    ],
)
def test_mistakes_are_one_line(arguments, phrase):
    with pytest.raises(palestra.UserError, match=phrase) as caught:
        palestra.train(**arguments)
    assert "\n" not in str(caught.value)
