"""Runs that nothing can be learned from say so: where every episode faults they end with an error,
where most are cut they warn.
"""

import pytest
import tomli_w

from palestra.cli.main import main
from palestra.config.agent import AgentSettings
from palestra.config.config import build
from palestra.core.types import Group, Stop, Task
from palestra.rollout.groups import AllEpisodesFailed, RolloutBatch
from palestra.runs.run import Run
from palestra.training.display import Display
from palestra.training.loop import _Budgets, run_training
from tests.e2e.test_training import Notes
from tests.support.batches import trajectory
from tests.support.environments import Echo, WearsOut
from tests.support.training import ECHO, trained


class Numbered(Echo):
    """Each fault has a number."""

    faults = 0

    def reset(self, task):
        Numbered.faults += 1
        raise RuntimeError(f"fault {Numbered.faults}.")


class NumberedInTraining(Echo):
    faults = 0

    def reset(self, task):
        if task.split == "test":
            return super().reset(task)
        NumberedInTraining.faults += 1
        raise RuntimeError(f"fault {NumberedInTraining.faults}.")


def cli(capsys, *arguments):
    """The exit code and the lines of the error stream."""
    with pytest.raises(SystemExit) as left:
        main([*map(str, arguments)])
    return left.value.code, capsys.readouterr().err.splitlines()


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text(tomli_w.dumps(ECHO | {"env": {"name": f"{__name__}:Numbered"}}))
    Numbered.faults = 0
    return path


def test_training_ends_with_the_first_fault(tmp_path, capsys, recipe):
    code, errors = cli(capsys, "train", recipe, "--out", tmp_path / "run")
    assert code == 2
    assert errors == [
        "palestra: every episode of the evaluation (raw) ended in a fault; the first one: "
        "env_fault: RuntimeError: fault 1."
    ]
    assert Run.open(tmp_path / "run").metrics() == []  # no row that says 0%


@pytest.mark.parametrize(
    "who", [["--agent", "expert"], ["--agent", "random"], []], ids=["expert", "random", "model"]
)
def test_an_evaluation_ends_with_the_first_fault(tmp_path, capsys, recipe, who):
    code, errors = cli(
        capsys, "eval", recipe, *who, "--limit", 3, "--out", tmp_path / "result.json"
    )
    assert code == 2
    assert (
        "palestra: every episode of an evaluation ended in a fault; the first one: "
        "env_fault: RuntimeError: fault 1." in errors
    )
    assert not (tmp_path / "result.json").exists()


def test_the_first_fault_of_a_step_is_that_of_an_attempt_before_a_retry(tmp_path):
    NumberedInTraining.faults = 0
    with pytest.raises(
        AllEpisodesFailed,
        match=r"every episode of this step ended in a fault; the first one: env_fault: "
        r"RuntimeError: fault 1\.",
    ):
        trained(tmp_path / "run", **{"env.name": f"{__name__}:NumberedInTraining"})
    assert NumberedInTraining.faults == 2 * 48


@pytest.mark.parametrize(
    ("episodes", "what"),
    [
        (30, "the expert of wearsout"),
        (30 + 20, "an evaluation"),
        (30 + 20 + 4, r"the evaluation \(warm-start\)"),
        (30 + 20 + 4 + 30, "this step"),
        (30 + 20 + 4 + 30 + 48 + 30, None),
    ],
)
def test_every_phase_of_a_run_notices(tmp_path, episodes, what):
    """30 held-out tasks, 20 demonstrations, a check with 4 episodes, 30 tasks again, a step of 48
    episodes, and 30 tasks at the end.
    """
    WearsOut.left = episodes
    demonstrations = {
        "episodes": 20,
        "updates": 1,
        "check_every": 1,
        "check_tasks": 4,
        "target": 1.0,
    }
    changes = {
        "env.name": "tests.support.environments:WearsOut",
        "steps": 1,
        "warm_start": demonstrations,
    }
    if what is None:
        trained(tmp_path / "run", **changes)
        assert WearsOut.left == 0
        return
    with pytest.raises(
        AllEpisodesFailed,
        match=f"every episode of {what} ended in a fault; the first one: env_fault: "
        "RuntimeError: worn out",
    ):
        trained(tmp_path / "run", **changes)


def test_the_final_evaluation_is_no_success_of_zero(tmp_path):
    class Breaker(Display):
        def begin_eval(self, phase, episodes):
            WearsOut.left = 0 if phase == "final" else 10_000

    run = Run.create(
        tmp_path / "run",
        build(ECHO, {"env.name": "tests.support.environments:WearsOut", "steps": 1}),
    )
    with pytest.raises(AllEpisodesFailed, match=r"the evaluation \(final\)"):
        run_training(run, Breaker())
    assert [row["phase"] for row in run.metrics() if "phase" in row] == ["raw"]
    WearsOut.left = 10_000
    again = Run.open(run.folder)
    run_training(again, Display())  # the step is saved, and the evaluation is made up for
    assert [row["phase"] for row in again.metrics() if "phase" in row] == ["raw", "final"]


def test_one_episode_that_is_sound_is_enough(tmp_path):
    WearsOut.left = 31
    with pytest.raises(
        AllEpisodesFailed, match="this step"
    ):  # of the first step's episodes only one was sound; of the second's none
        trained(tmp_path / "run", **{"env.name": "tests.support.environments:WearsOut", "steps": 2})
    assert WearsOut.left < -48


# token budgets


def rollouts(*stops):
    trajectories = [trajectory(("see", [5]), ("say", [6]), stop=stop) for stop in stops]
    return RolloutBatch([Group(Task("env", "train", "t"), trajectories)])


def told(*steps):
    """What was said, by step."""
    display = Notes()
    budgets = _Budgets(AgentSettings(context_tokens=512, reply_tokens=64), display)
    for step, stops in enumerate(steps, 1):
        budgets.check(step, None if stops is None else rollouts(*stops))
    return display.notes


CONTEXT, LENGTH, DONE, FAULT = Stop.CONTEXT, Stop.LENGTH, Stop.DONE, Stop.ENV_FAULT


def test_most_episodes_that_are_cut_are_worth_one_line():
    (line,) = told(
        [CONTEXT, CONTEXT, LENGTH, DONE, DONE, FAULT, FAULT]
    )  # 2 + 1 of 5 that are valid
    assert line == (
        "step 1: 60% of the episodes were cut off by a token budget: "
        "40% by agent.context_tokens = 512 (raise it, or shorten what the environment says), "
        "20% by agent.reply_tokens = 64 (raise it, or ask for shorter replies)"
    )


@pytest.mark.parametrize(
    "stops",
    [
        [DONE],
        [CONTEXT, DONE],
        [LENGTH, CONTEXT, DONE, DONE],
        [FAULT],
        [],
        None,
        [Stop.HORIZON, Stop.TRUNCATED, LENGTH],
    ],
)
def test_half_of_them_are_not(stops):
    assert told(stops) == []


def test_it_is_said_again_only_when_it_was_over_in_between():
    cut, fine = [LENGTH, LENGTH, DONE], [LENGTH, DONE, DONE]
    lines = told(cut, cut, [FAULT], cut, fine, fine, cut)
    assert [line.split(":")[0] for line in lines] == ["step 1", "step 7"]
    assert all("agent.reply_tokens = 64" in line and "context_tokens" not in line for line in lines)


def test_a_run_says_it_on_the_terminal_and_in_its_log(tmp_path, caplog):
    """A model that has learned nothing seldom ends a reply of one token: the end is one of nine
    words.
    """
    run, display = (
        Run.create(
            tmp_path / "run", build(ECHO, {"steps": 2, "agent.reply_tokens": 1, "optim.lr": 1e-9})
        ),
        Notes(),
    )
    run_training(run, display)
    rows = [row for row in run.metrics() if "stop/length" in row]
    assert [row["stop/length"] > 0.5 for row in rows] == [True, True]
    (line,) = [note for note in display.notes if "token budget" in note]
    assert line.startswith(
        f"step 1: {rows[0]['stop/length'] + rows[0].get('stop/context', 0):.0%} of the "
        "episodes were cut off"
    )
    assert "agent.reply_tokens = 1 " in line
    assert line in caplog.messages
