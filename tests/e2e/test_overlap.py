"""Runs that collect beside the learner or carry groups over the end of a step: they learn, repeat
themselves, resume and end cleanly.
"""

import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter

import pytest
import torch

from palestra.config.config import build
from palestra.core.errors import ConfigError
from palestra.core.types import Stop
from palestra.engines.base import EngineFailed
from palestra.learner import checkpoint
from palestra.learner.learner import Learner
from palestra.runs.run import Run
from palestra.runs.state import state_from_dict
from palestra.training.display import Display
from palestra.training.loop import run_training
from palestra.training.setup import setup
from tests.support.environments import WearsOut
from tests.support.overlap import PARTIAL, episodes, steps, turn_versions
from tests.support.training import ECHO, records, stopped_after, trained, weights

PREFETCH = {"rollout.prefetch": 1}


def learned_from(run, step):
    return {
        json.loads(line)["id"]
        for line in (run.folder / "token_stats" / f"step-{step:06d}.jsonl").read_text().splitlines()
    }


def is_playing():
    return any(thread.name == "collecting" for thread in threading.enumerate())


@pytest.mark.parametrize(
    "overlap",
    [
        {"rollout.prefetch": 1},
        {"rollout.partial": 4},
        {"rollout.prefetch": 1, "rollout.partial": 4},
    ],
)
def test_it_learns(tmp_path, overlap):
    warm = {"episodes": 100, "noise": 0.5, "updates": 40, "check_every": 2, "check_tasks": 60}
    run = trained(
        tmp_path / "run", **{"steps": 30, "rollout.tasks": 12, "warm_start": warm} | overlap
    )
    results = {row["phase"]: row["eval/success"] for row in run.metrics() if "eval/success" in row}
    assert results["warm start"] < 0.3
    assert results["final"] > 0.7


@pytest.mark.parametrize(
    "overlap", [PREFETCH, PARTIAL, PREFETCH | PARTIAL], ids=["prefetch", "partial", "both"]
)
def test_a_run_repeats_itself_bit_for_bit(tmp_path, overlap):
    one, other = (
        trained(tmp_path / name, **overlap, **{"eval.every": 2}) for name in ("one", "other")
    )
    assert records(one) == records(other)
    assert all(torch.equal(value, weights(other)[name]) for name, value in weights(one).items())


@pytest.mark.parametrize(
    "overrides",
    [
        {"threads": 2},
        {
            "eval.every": 2,
            "algo.recompute_logprobs": True,
            "algo.correction.cap": 2.0,
            "rollout.resample_rounds": 2,
        },
        {
            "horizon.kind": "adaptive",
            "horizon.turns": [1, 2, 3],
            "horizon.window": 1,
            "horizon.gate": 0.1,
            "horizon.fall": 0.05,
        },
        {"algo.name": "remax", "rollout.group": 2},
        {"env.name": "tests.support.environments:BreaksForRed"},
    ],
    ids=["plain", "resample_rounds and correction", "adaptive horizon", "remax", "faults"],
)
def test_with_ahead_six_steps_equal_three_and_three_more_bit_for_bit(tmp_path, overrides):
    whole = trained(tmp_path / "whole", **PREFETCH, **overrides)
    stopped = stopped_after(3, tmp_path / "halves", PREFETCH | overrides)
    assert (checkpoint.newest(stopped.checkpoints) / "prefetch.json").is_file()
    resumed = Run.open(stopped.folder)
    run_training(resumed, Display())
    assert records(resumed) == records(whole)
    assert all(torch.equal(value, weights(whole)[name]) for name, value in weights(resumed).items())


def test_ahead_plays_with_the_weights_of_one_update_before(tmp_path):
    run = trained(tmp_path / "run", **PREFETCH)
    for step, row in steps(run).items():
        age = int(step > 1)  # the first step has nothing to be played beside
        assert {
            v for t in episodes(run, step) for versions in turn_versions(t) for v in versions
        } == {step - 1 - age}
        assert (row["staleness/mean"], row["staleness/max"]) == (age, age)
        assert not age or "policy/mismatch" not in row  # which would be the age of the weights, too
        assert ("time/collect_hidden" in row) == (step < 6)
    assert not is_playing()


def test_carried_groups_are_played_on_by_newer_weights_and_counted_once(tmp_path):
    """Slots for a third of the episodes: those held up must not keep the evaluations in between
    from theirs.
    """
    run = trained(tmp_path / "run", **PARTIAL, **{"eval.every": 1, "engine.slots": 16})
    played = {step: episodes(run, step) for step in steps(run)}
    assert [len({t.task.id for t in each}) for each in played.values()] == [6] * 6
    assert all(
        size == 8 for each in played.values() for size in Counter(t.task.id for t in each).values()
    )  # whole groups
    everything = [t for each in played.values() for t in each]
    assert len({t.id for t in everything}) == len(everything) == 6 * 6 * 8
    assert all(
        len(versions) == 1 for t in everything for versions in turn_versions(t)
    )  # a turn is of one version
    mixed = [t for t in everything if len(set.union(*turn_versions(t))) > 1]
    assert mixed  # and an episode of several
    assert all(
        versions == sorted(versions)
        for t in mixed
        for versions in [[min(v) for v in turn_versions(t)]]
    )
    assert any(t.step < step for step, each in played.items() for t in each)
    assert state_of(run).in_flight == ()
    for step, each in played.items():
        ages = [
            step - 1 - version
            for t in each
            for version, chosen in zip(*lists(t), strict=True)
            if chosen
        ]
        assert steps(run)[step]["staleness/mean"] == pytest.approx(sum(ages) / len(ages))
        assert steps(run)[step]["staleness/max"] == max(ages)


def lists(trajectory):
    (segment,) = trajectory.segments
    return segment.versions, segment.mask


def state_of(run):
    return state_from_dict(checkpoint.read_state(checkpoint.newest(run.checkpoints)))


def test_groups_that_are_too_old_are_dropped_and_counted(tmp_path):
    """A third of the tasks take 100 turns, and a step is over when the quick ones are: they would
    be carried for a long time.

    There are 16 slots for 48 episodes: those held up must leave theirs to those who have to finish
    a turn.
    """
    lingering = {
        "env.name": "tests.support.environments:Lingers",
        "horizon.kind": "fixed",
        "horizon.turns": 100,
        "agent.context_tokens": 800,
    }
    speaks = {
        "warm_start": {
            "episodes": 60,
            "updates": 90,
            "check_every": 10,
            "check_tasks": 30,
            "target": 0.9,
        }
    }
    run = trained(
        tmp_path / "run",
        **lingering,
        **speaks,
        **{
            "rollout.tasks": 3,
            "rollout.partial": 9,
            "rollout.max_age": 2,
            "steps": 9,
            "rollout.group": 4,
        },
    )
    dropped = []
    for step, row in steps(run).items():
        played = episodes(run, step)
        outdated = [t for t in played if step - t.step > 2]
        assert {t.step for t in outdated} <= {step - 3}
        assert row.get("groups/outdated", 0) == len({t.task.id for t in outdated})
        assert len({t.task.id for t in played}) - row.get("groups/outdated", 0) == 3
        assert not {t.id for t in outdated} & learned_from(run, step)
        assert row["tokens/all"] == sum(
            len(segment.ids) for t in played for segment in t.segments
        )  # they were paid for
        assert row["faults"] == 0
        dropped += [t for t in outdated if t.stop is Stop.CANCELLED]
    assert len(dropped) >= 4
    assert all(t.task.category == "red" for t in dropped)
    assert sum(t.sampled_tokens for t in dropped) > 0
    assert sum(row["tokens/all"] for row in steps(run).values()) == state_of(run).tokens


def test_an_age_without_carried_groups_is_refused():
    with pytest.raises(ConfigError, match=r"rollout.max_age = 2: has no effect while partial = 0"):
        build(ECHO, {"rollout.max_age": 2})


@pytest.mark.parametrize("ahead", [0, 1])
def test_a_resumed_run_loses_no_carried_group_and_draws_none_twice(tmp_path, ahead):
    overlap = PARTIAL | {"rollout.prefetch": ahead}
    whole = trained(tmp_path / "whole", **overlap)
    stopped = stopped_after(3, tmp_path / "halves", overlap)
    assert len(state_of(stopped).in_flight) == 3
    resumed = Run.open(stopped.folder)
    run_training(resumed, Display())
    drawn = [
        Counter((t.id, t.task.id, t.seed) for step in steps(run) for t in episodes(run, step))
        for run in (whole, resumed)
    ]
    assert drawn[0] == drawn[1]
    assert set(drawn[0].values()) == {1}


def test_carrying_can_be_given_up_when_a_run_is_resumed(tmp_path):
    stopped = stopped_after(3, tmp_path / "run", PARTIAL)
    left = {f"{begun.step:06d}-{begun.first:04d}" for begun in state_of(stopped).in_flight}
    resumed = Run.open(stopped.folder, {"rollout.partial": 0})
    run_training(resumed, Display())
    assert left <= {t.id for t in episodes(resumed, 4)}
    assert {t.step for t in episodes(resumed, 5)} == {5}


def test_faults_beside_the_learner_are_faults(tmp_path):
    run = trained(
        tmp_path / "run",
        **PREFETCH,
        **{"env.name": "tests.support.environments:BreaksForRed", "steps": 3},
    )
    assert all(row["faults"] > 0 and "loss" in row for row in steps(run).values())


@pytest.mark.parametrize("overlap", [{"rollout.prefetch": 1}, {"rollout.partial": 2}])
def test_worker_processes(tmp_path, overlap):
    isolated = {
        "env.isolation": "process",
        "engine.deterministic": False,
        "steps": 3,
        "rollout.tasks": 2,
        "rollout.group": 2,
    }
    run = trained(
        tmp_path / "run",
        **overlap,
        **isolated,
        **{"rollout.concurrency": 4, "eval.tasks": 2, "eval.every": 1},
    )
    assert len(steps(run)) == 3
    assert all(row["faults"] == 0 for row in steps(run).values())


def test_an_environment_that_breaks_for_good_beside_the_learner_ends_the_run(tmp_path):
    WearsOut.left = 30 + 3 * 48  # an evaluation and three steps
    with pytest.raises(RuntimeError, match="every episode of this step ended in a fault.*worn out"):
        trained(tmp_path / "run", **PREFETCH, **{"env.name": "tests.support.environments:WearsOut"})
    assert not is_playing()


@pytest.mark.parametrize("overlap", [{"rollout.partial": 3}, {"rollout.prefetch": 1}])
def test_an_engine_that_fails_ends_the_run(tmp_path, monkeypatch, overlap):
    def fail(*_):
        raise RuntimeError("out of memory")

    class Breaker(Display):
        def end_step(self, row):
            monkeypatch.setattr("palestra.engines.torch.engine.TorchEngine._prefill", fail)

    with pytest.raises(
        (EngineFailed, ExceptionGroup)
    ) as raised:  # alone, or with those of the other episodes
        run_training(
            Run.create(tmp_path / "run", build(ECHO, {**PARTIAL, "rollout.partial": 0} | overlap)),
            Breaker(),
        )
    errors = raised.value.exceptions if isinstance(raised.value, ExceptionGroup) else [raised.value]
    assert "out of memory" in str(errors[0])
    assert not is_playing()


def test_a_learner_that_fails_ends_the_play_beside_it(tmp_path, monkeypatch):
    began = threading.Event()

    def update(*_, **__):
        assert began.wait(10)
        raise RuntimeError("the learner broke")

    class MetricsListener(Display):
        def episode_done(self, trajectory):
            if threading.current_thread() is not threading.main_thread():
                began.set()

    monkeypatch.setattr(Learner, "update", update)
    patient = {"env.name": "tests.support.environments:Slow", "env.options.seconds": 0.05}
    before = time.monotonic()
    with pytest.raises(RuntimeError, match="the learner broke"):
        run_training(
            Run.create(tmp_path / "run", build(ECHO, {**PREFETCH, **patient, "eval.tasks": 1})),
            MetricsListener(),
        )
    assert not is_playing()
    assert time.monotonic() - before < 10


def test_an_interrupt_ends_a_run_that_plays_ahead(tmp_path):
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from palestra.config.config import build\n"
        "from palestra.training.display import Display\n"
        "from palestra.runs.run import Run\n"
        "from palestra.training.loop import run_training\n"
        "from tests.support.training import ECHO\n"
        "class Printer(Display):\n"
        "    def end_step(self, row): print(row['step'], flush=True)\n"
        "config = build(ECHO, {'steps': 10000, 'rollout.prefetch': 1, 'eval.tasks': 1, "
        "'save.every': 10000})\n"
        "run_training(Run.create(Path(sys.argv[1]), config), Printer())\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "run")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        while process.stdout.readline().strip() != "3":
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode != 0
    assert errors.strip().splitlines()[-1] == "KeyboardInterrupt"


def test_the_engine_beside_the_learner_has_weights_of_its_own():
    components = setup(build(ECHO, PREFETCH))
    try:
        own, learners = (
            list(components.engine.model.parameters()),
            list(components.learner.model.parameters()),
        )
        with torch.no_grad():
            learners[0].add_(1)
        assert not torch.equal(own[0], learners[0])
        components.loop.run(components.engine.sync_weights(version=1))
        assert all(torch.equal(one, other) for one, other in zip(own, learners, strict=True))
    finally:
        components.close()
