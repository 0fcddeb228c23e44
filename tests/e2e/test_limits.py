"""Runs that end before their last step: by tokens, by the clock, and how they go on."""

import pytest

from palestra.config.config import build
from palestra.launch.worker import resume_hint
from palestra.learner import checkpoint
from palestra.runs.run import Run
from palestra.runs.state import State
from palestra.runs.trajectories import read_trajectories
from palestra.training import limits
from palestra.training.display import Display
from palestra.training.loop import run_training
from tests.support.environments import BreaksIfToldSo
from tests.support.overlap import STREAM
from tests.support.training import ECHO, trained, weights

LONG = {"steps": 40, "save.every": 50}


def rows(run):
    return [row for row in run.metrics() if "loss" in row]


def tokens(run):
    return [
        sum(
            len(s.ids)
            for t in read_trajectories(run.trajectory_file(f"step-{row['step']:06d}"))
            for s in t.segments
        )
        for row in rows(run)
    ]


def is_complete(run):
    return run.metrics()[-1]["phase"] == "final" and run.checkpoint(rows(run)[-1]["step"]).is_dir()


def test_a_budget_of_tokens_ends_training_with_the_step_that_uses_it_up(tmp_path):
    run = trained(tmp_path / "run", **LONG, **{"limit.tokens": 4000})
    assert sum(tokens(run)[:-1]) < 4000 <= sum(tokens(run))
    assert 1 < len(rows(run)) < 40
    assert is_complete(run)


class CountedBreakage(BreaksIfToldSo):
    begun = 0
    """Episodes of the training tasks, whatever became of them."""

    def reset(self, task):
        CountedBreakage.begun += task.split == "train"
        return super().reset(task)


def test_all_that_was_played_counts(tmp_path):
    """Greedy baselines, attempts that a fault ended, and groups that were resampled."""
    CountedBreakage.begun = 0
    run = trained(
        tmp_path / "run",
        **{
            "steps": 3,
            "env.name": f"{__name__}:CountedBreakage",
            "algo.name": "remax",
            "rollout.group": 2,
            "rollout.resample_rounds": 1,
        },
    )
    played = [
        t
        for row in rows(run)
        for t in read_trajectories(run.trajectory_file(f"step-{row['step']:06d}"))
    ]
    assert len(played) == CountedBreakage.begun
    assert any(t.is_baseline and not t.stop.is_fault for t in played)
    assert any(t.stop.is_fault and t.attempt == 0 for t in played)
    assert sum(row["groups/dropped"] for row in rows(run)) > 0
    assert [row["tokens/all"] for row in rows(run)] == tokens(run)
    assert sum(row["tokens/sampled"] for row in rows(run)) == sum(
        sum(segment.mask) for t in played for segment in t.segments
    )
    state = checkpoint.read_state(checkpoint.newest(run.checkpoints))
    assert state["tokens"] == sum(tokens(run))  # what limit.tokens is held against


def test_what_was_used_counts_after_a_resumption(tmp_path):
    whole = trained(tmp_path / "whole", **LONG, **{"limit.tokens": 4000})
    trained(tmp_path / "halves", **LONG, **{"limit.tokens": 2000})
    resumed = Run.open(tmp_path / "halves", {"limit.tokens": 4000})
    run_training(resumed, Display())
    assert [row["step"] for row in rows(resumed)] == [row["step"] for row in rows(whole)]
    assert all((weights(resumed)[name] == value).all() for name, value in weights(whole).items())


@pytest.mark.parametrize(
    "overlap", [{}, {"rollout.prefetch": 1}, STREAM], ids=["plain", "ahead", "stale"]
)
def test_minutes_end_it_too_and_a_resumed_run_has_as_many_again(tmp_path, overlap):
    run = trained(tmp_path / "run", **LONG, **overlap, **{"limit.minutes": 1e-9})
    assert rows(run) == []
    assert run.metrics()[-1]["phase"] == "final"
    again = Run.open(run.folder, {"limit.minutes": 60, "steps": 3})
    run_training(again, Display())
    assert len(rows(again)) == 3
    assert is_complete(again)


@pytest.mark.parametrize(
    "overlap", [{}, {"rollout.prefetch": 1}, STREAM], ids=["plain", "ahead", "stale"]
)
def test_a_run_without_checkpoints_trains_the_same(tmp_path, overlap):
    kept = trained(tmp_path / "kept", **LONG | {"steps": 4}, **overlap)
    run = trained(tmp_path / "run", **LONG | {"steps": 4, "save.every": 0}, **overlap)
    assert [row["loss"] for row in rows(run)] == [
        row["loss"] for row in rows(kept)
    ] or overlap == STREAM  # which depends on timing
    assert len(rows(run)) == 4
    assert run.metrics()[-1]["phase"] == "final"
    assert list(run.checkpoints.glob("*")) == []
    assert resume_hint(run) == f"the run is over, and all of it is in {run.folder}"
    again = Run.open(run.folder)  # which has done nothing yet
    assert (
        resume_hint(again)
        == "nothing is saved (save.every = 0), begin again with: palestra train --resume "
        f"{run.folder}"
    )


def test_a_run_without_checkpoints_is_begun_again(tmp_path):
    run = trained(tmp_path / "run", **LONG | {"steps": 2, "save.every": 0})
    again = Run.open(run.folder, {"steps": 3})
    run_training(again, Display())
    assert [row["step"] for row in rows(again)] == [1, 2, 3]


def test_it_says_why_it_ended(tmp_path):
    said = []

    class Notes(Display):
        def note(self, text):
            said.append(text)

    run_training(Run.create(tmp_path / "run", build(ECHO, {**LONG, "limit.tokens": 1})), Notes())
    assert said[-1:] == ["the limit ended training after step 1 of 40"]


def test_the_learning_rate_falls_with_the_tokens_where_they_are_the_nearer_end():
    falling = {"optim.schedule": "linear", "limit.tokens": 1000, "steps": 100}
    config = build(ECHO, falling)
    assert limits.expected_steps(config, State(step=1, tokens=100)) == 10
    assert limits.expected_steps(config, State(step=10, tokens=990)) == 10
    assert limits.expected_steps(config, State(step=10, tokens=1100)) == 10
    assert limits.expected_steps(config, State(step=50, tokens=100)) == 100
    assert limits.expected_steps(build(ECHO, {"steps": 7}), State(step=1, tokens=100)) == 7


def test_it_falls_to_its_end_in_a_run(tmp_path):
    run = trained(tmp_path / "run", **LONG, **{"limit.tokens": 4000, "optim.schedule": "linear"})
    rates = [row["lr"] for row in rows(run)]
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] < 0.3 * rates[0]
