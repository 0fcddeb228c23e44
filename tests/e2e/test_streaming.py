"""Asynchronous runs: they learn, nothing is too old, no task is lost or learned from twice, and
they end cleanly.
"""

import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import closing

import pytest
import torch

from palestra.algos.batch import pack
from palestra.config.config import build
from palestra.core.errors import ConfigError
from palestra.core.files import CannotWrite
from palestra.engines.base import EngineFailed
from palestra.learner.learner import Learner
from palestra.learner.logprobs import predict
from palestra.runs.group_queue import GroupQueue
from palestra.runs.run import Run
from palestra.training.display import Display
from palestra.training.guard import GuardTripped
from palestra.training.loop import begin, make_data_source, run_training, train
from palestra.training.setup import setup
from tests.chaos.trainer import ended, finish, start
from tests.support.environments import WearsOut
from tests.support.overlap import COUNT, PARTIAL, STREAM, UNEVEN, episodes, steps, turn_versions
from tests.support.training import ECHO, stopped_after, trained


def is_playing():
    return any(thread.name == "playing" for thread in threading.enumerate())


def drawn(run):
    """Which episodes each step learned from."""
    return {
        step: Counter((t.id, t.task.id, t.seed, t.horizon) for t in episodes(run, step))
        for step in steps(run)
    }


def test_it_learns(tmp_path):
    """Which weights play what is a matter of timing: most runs end at 100%,
    one in fifty below 80%.
    """
    run = trained(
        tmp_path / "run", **STREAM, **{"steps": 80, "rollout.tasks": 12, "optim.lr": 2e-3}
    )
    results = {row["phase"]: row["eval/success"] for row in run.metrics() if "eval/success" in row}
    assert results["raw"] < 0.1
    assert results["final"] > 0.5
    assert not is_playing()


@pytest.mark.parametrize("staleness", [1, 3])
def test_weights_change_between_turns_and_no_token_is_too_old(tmp_path, staleness):
    run = trained(
        tmp_path / "run",
        **COUNT
        | {"rollout.max_staleness": staleness, "steps": 8, "eval.every": 2, "engine.slots": 8},
    )
    everything = [(step, t) for step in steps(run) for t in episodes(run, step)]
    assert all(len(versions) == 1 for _, t in everything for versions in turn_versions(t))
    ages = {
        step - 1 - version
        for step, t in everything
        for versions in turn_versions(t)
        for version in versions
    }
    assert min(ages) >= 0
    assert 1 <= max(ages) <= staleness
    assert any(
        len(set.union(*turn_versions(t))) > 1 for _, t in everything
    )  # weights arrived in the middle of an episode
    for row in steps(run).values():
        assert row["staleness/max"] <= staleness
        assert row["queue/finished"] + row["queue/in_play"] <= 6 * (staleness + 1)
        assert 0 <= row["queue/waited"] <= 1
        assert (
            row.get("policy/mismatch", 0.0) < 1e-5
        )  # the learner's log-probs are those of the version that is named


def test_a_step_learns_from_the_episodes_that_it_would_learn_from_without(tmp_path):
    mixture = [
        {"name": "tests.support.environments:Echo", "weight": 2},
        {"name": "tests.support.environments:Count", "group": 4},
    ]
    tree = {name: table for name, table in ECHO.items() if name != "env"} | {"mixture": mixture}
    one, other = (
        trained(tmp_path / name, tree, **overrides)
        for name, overrides in (("one", STREAM), ("other", {}))
    )
    assert drawn(one) == drawn(other)


def test_slow_tasks_have_their_share(tmp_path):
    """Three epochs of 16 tasks, two of which are ten times as slow: in each of four steps in a row
    each task is learned from once.
    """
    run = trained(tmp_path / "run", **UNEVEN, **{"steps": 12})
    for epoch in range(3):
        counts = Counter(
            t.task.id for step in range(4 * epoch + 1, 4 * epoch + 5) for t in episodes(run, step)
        )
        assert counts == {f"train-{i}": 2 for i in range(16)}


def test_greedy_baselines_are_part_of_a_group(tmp_path):
    run = trained(tmp_path / "run", **STREAM, **{"algo.name": "remax", "rollout.group": 2})
    assert all(sum(t.is_baseline for t in episodes(run, step)) == 6 for step in steps(run))


def test_worker_processes(tmp_path):
    isolated = {
        "env.isolation": "process",
        "steps": 3,
        "rollout.tasks": 2,
        "rollout.group": 2,
        "rollout.concurrency": 4,
    }
    run = trained(tmp_path / "run", **STREAM, **isolated, **{"eval.tasks": 2, "eval.every": 1})
    assert len(steps(run)) == 3
    assert all(row["faults"] == 0 for row in steps(run).values())


def test_a_resumed_run_learns_from_what_was_played_and_plays_the_rest_anew(tmp_path):
    whole = trained(tmp_path / "whole", **COUNT)
    stopped = stopped_after(3, tmp_path / "halves", COUNT)
    queue = GroupQueue(stopped.queue)
    left = queue.entries()
    assert all(entry.step > 3 for entry in left)
    kept = {
        t.id: t
        for (step, place), finished in queue.read().items()
        for t in finished.episodes
        if max(finished.versions) <= 3
    }
    assert kept
    resumed = Run.open(stopped.folder)
    run_training(resumed, Display())
    assert drawn(resumed) == drawn(whole)
    after = {t.id: t for step in (4, 5, 6) for t in episodes(resumed, step)}
    assert all(after[id] == trajectory for id, trajectory in kept.items())
    assert not queue.entries()


def test_what_is_queued_is_not_trusted_blindly(tmp_path):
    """A damaged file, one of other settings and one that has become too old are played again."""
    stopped = stopped_after(3, tmp_path / "run", COUNT)
    GroupQueue(stopped.queue).rewind(3)
    paths = list(GroupQueue(stopped.queue).entries().values())
    paths[0].write_bytes(paths[0].read_bytes()[:-40])
    resumed = Run.open(stopped.folder, {"rollout.max_staleness": 1, "rollout.tasks": 5})
    run_training(resumed, Display())
    for step in (4, 5, 6):
        assert len({t.task.id for t in episodes(resumed, step)}) == 5
        assert {t.id for t in episodes(resumed, step)} == {
            f"{step:06d}-{n:04d}" for n in range(5 * 8)
        }
        assert step == 4 or steps(resumed)[step]["staleness/max"] <= 1


def test_the_queue_stays_small(tmp_path):
    sizes = []

    class MetricsListener(Display):
        def begin_step(self, step):
            sizes.append(len(GroupQueue(run.queue).entries()))

    run = Run.create(tmp_path / "run", build(ECHO, COUNT | {"steps": 20, "save.every": 50}))
    run_training(run, MetricsListener())
    assert (
        0 < max(sizes) <= 2 * 6 * 3
    )  # what is ahead of the learner, and what would be needed again after the last checkpoint
    assert not GroupQueue(run.queue).entries()


def test_carried_groups_must_be_learned_from_first(tmp_path):
    stopped = stopped_after(3, tmp_path / "run", PARTIAL)
    with pytest.raises(
        ConfigError, match=r"rollout.max_staleness = 2: 3 groups of rollout.partial are in flight"
    ):
        run_training(Run.open(stopped.folder, STREAM | {"rollout.partial": 0}), Display())


def test_it_can_be_given_up_and_taken_up_again(tmp_path):
    stopped = stopped_after(3, tmp_path / "run", STREAM)
    for overrides in (
        {"rollout.max_staleness": 0, "steps": 5},
        {"rollout.max_staleness": 2, "steps": 7},
    ):
        resumed = Run.open(stopped.folder, overrides)
        run_training(resumed, Display())
    assert {step: row.get("staleness/max", 0) for step, row in steps(resumed).items()}[5] == 0
    assert len({id for each in drawn(resumed).values() for id in each}) == 7 * 6 * 8


KILLED = (
    "import sys\n"
    "from pathlib import Path\n"
    "from palestra.config.config import build\n"
    "from palestra.training.display import Display\n"
    "from palestra.runs.run import Run\n"
    "from palestra.training.loop import run_training\n"
    "from tests.support.overlap import UNEVEN\n"
    "from tests.support.training import ECHO\n"
    "class Printer(Display):\n"
    "    def begin_step(self, step): print(step, flush=True)\n"
    "folder = Path(sys.argv[1])\n"
    "config = build(ECHO, UNEVEN | {'steps': 16, 'save.every': 3, 'env.options.seconds': "
    "0.01, 'env.options.tasks': 64})\n"
    "run = Run.open(folder) if (folder / 'config.toml').exists() else Run.create(folder, config)\n"
    "run_training(run, Printer())\n"
)


def killed_and_resumed(folder, chance, kills):
    """One epoch of 64 tasks in 16 steps, killed so many times: each time some moments after a step
    of its own choosing began.
    """
    for _ in range(kills):
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(folder)], stdout=subprocess.PIPE, text=True
        )
        begun = int(process.stdout.readline())
        last = min(begun + chance.randrange(6), 15)
        while begun < last:
            begun = int(process.stdout.readline())
        time.sleep(chance.random() * 0.3)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
    run = Run.open(folder)
    run_training(run, Display())
    return run


def check_one_epoch(run):
    assert sorted(steps(run)) == list(range(1, 17))
    learned = Counter(t.task.id for step in range(1, 17) for t in episodes(run, step))
    assert learned == {f"train-{i}": 2 for i in range(64)}  # once, by a group of two
    assert len({t.id for step in range(1, 17) for t in episodes(run, step)}) == 128
    assert all(row["staleness/max"] <= 2 for row in steps(run).values())


def test_after_a_kill_every_task_of_the_epoch_is_learned_from_once(tmp_path):
    check_one_epoch(killed_and_resumed(tmp_path / "run", random.Random(1), kills=2))


@pytest.mark.chaos
@pytest.mark.parametrize("seed", range(10))
def test_after_any_kill_every_task_of_the_epoch_is_learned_from_once(tmp_path, seed):
    check_one_epoch(killed_and_resumed(tmp_path / "run", random.Random(seed), kills=1 + seed % 3))


class Versions(Display):
    """Keeps the weights of every version."""

    def __init__(self, model):
        self.model, self.kept = model, {}

    def begin_step(self, step):
        self.kept[step - 1] = {
            name: value.clone() for name, value in self.model.state_dict().items()
        }


def test_200_updates_under_64_episodes(tmp_path):
    """Each turn is of one version, and its log-probs are those that the learner computes with that
    version's weights.
    """
    wide = {
        "steps": 200,
        "rollout.tasks": 4,
        "rollout.concurrency": 64,
        "engine.slots": 64,
        "optim.lr": 1e-3,
        "optim.minibatches": 1,
    }
    exact = {
        "dtype": "float64"
        # float32 makes up to 1e-5 of the same sum in batches of other sizes, more or less by
        # processor
    }
    run = Run.create(
        tmp_path / "run", build(ECHO, COUNT | wide | exact | {"save.every": 200, "eval.tasks": 1})
    )
    components = setup(run.config)
    model, display = components.learner.model, Versions(components.learner.model)
    try:
        state = begin(run, components, display)
        with closing(make_data_source(run, components, state)) as source:
            train(run, components, source, state, display)
    finally:
        components.close()
    everything = [t for step in range(1, 201) for t in episodes(run, step)]
    assert all(len(versions) == 1 for t in everything for versions in turn_versions(t))
    of_version = {
        version: [t for t in everything if {version} in turn_versions(t)]
        for version in display.kept
    }
    gaps, gaps_to_next = [], []
    for version, own in of_version.items():
        if own:
            batch = pack([own])
            is_own_C = batch.version_C == version
            rounding_C = batch.sampled_logp_C.abs() * 2**-22  # the engine draws in float32
            gaps.append(
                (
                    (logp(model, display.kept[version], batch) - batch.sampled_logp_C).abs()
                    - rounding_C
                )[is_own_C]
            )
            if version + 1 in display.kept:
                gaps_to_next.append(
                    (logp(model, display.kept[version + 1], batch) - batch.sampled_logp_C)
                    .abs()[is_own_C]
                    .max()
                )
    gap_C = torch.cat(gaps)
    assert len(gap_C) == sum(t.sampled_tokens for t in everything)
    assert gap_C.max() < 1e-6
    assert (
        sum(gap > 1e-4 for gap in gaps_to_next) > 100
    )  # so that the weights of another version would not have passed


@torch.no_grad()
def logp(model, weights, batch):
    model.load_state_dict(weights)
    return predict(model, batch, 1.0).logp_C


def test_an_environment_that_breaks_for_good_ends_the_run(tmp_path):
    WearsOut.left = 30 + 3 * 48  # an evaluation and three steps
    with pytest.raises(RuntimeError, match="every episode of this step ended in a fault.*worn out"):
        trained(tmp_path / "run", **STREAM, **{"env.name": "tests.support.environments:WearsOut"})
    assert not is_playing()


def test_an_engine_that_fails_ends_the_run(tmp_path, monkeypatch):
    def fail(*_):
        raise RuntimeError("out of memory")

    class Breaker(Display):
        def end_step(self, row):
            monkeypatch.setattr("palestra.engines.torch.engine.TorchEngine._prefill", fail)

    with pytest.raises(EngineFailed, match="out of memory"):
        run_training(Run.create(tmp_path / "run", build(ECHO, COUNT)), Breaker())
    assert not is_playing()


def test_a_group_that_cannot_be_written_ends_the_run(tmp_path, monkeypatch):
    """Also where it is one of a later step, and at once."""
    put = GroupQueue.put

    def full(self, step, place, finished):
        if step == 3:
            raise CannotWrite("the disk is full")
        put(self, step, place, finished)

    monkeypatch.setattr(GroupQueue, "put", full)
    run = Run.create(tmp_path / "run", build(ECHO, COUNT))
    with pytest.raises(CannotWrite, match="the disk is full"):
        run_training(run, Display())
    assert max(steps(run), default=0) < 3
    assert not is_playing()


def test_a_learner_that_fails_ends_the_play_beside_it(tmp_path, monkeypatch):
    def update(*_, **__):
        raise RuntimeError("the learner broke")

    monkeypatch.setattr(Learner, "update", update)
    before = time.monotonic()
    slow = {
        "env.name": "tests.support.environments:Slow",
        "env.options.seconds": 0.05,
        "eval.tasks": 1,
    }
    with pytest.raises(RuntimeError, match="the learner broke"):
        run_training(Run.create(tmp_path / "run", build(ECHO, STREAM | slow)), Display())
    assert not is_playing()
    assert time.monotonic() - before < 30


@pytest.mark.parametrize("moment", ["begin", "end"])
def test_an_interrupt_ends_a_run(tmp_path, moment):
    """While it waits for groups, or while it learns."""
    code = KILLED.replace(
        "'steps': 16, 'save.every': 3", "'steps': 10000, 'save.every': 0"
    ).replace("def begin_step(self, step): print(step", f"def {moment}_step(self, step): print('x'")
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "run")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        for _ in range(3):
            assert process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode != 0
    assert errors.strip().splitlines()[-1] == "KeyboardInterrupt"


def test_going_back_begins_with_other_noise(tmp_path):
    """What was played for the steps that are done again is not learned from."""
    played = []

    class MetricsListener(Display):
        def episode_done(self, trajectory):
            if trajectory.step == 1:
                played.append(trajectory)

    guard = {"window": 2, "zero_advantage_above": 0.01, "action": "rollback", "rollbacks": 1}
    run = Run.create(
        tmp_path / "run", build(ECHO, STREAM | {"steps": 4, "save.every": 2, "guard": guard})
    )
    with pytest.raises(GuardTripped, match="went back 1 times"):
        run_training(run, MetricsListener())
    first, second = played[:48], played[48:]
    assert Counter(t.task.id for t in first) == Counter(t.task.id for t in second)
    assert {t.seed for t in first}.isdisjoint(t.seed for t in second)
    assert not is_playing()


@pytest.mark.parametrize(
    "where",
    [
        "palestra.training.async_source:AsyncSource.next_batch:4",
        "palestra.learner.learner:Learner._optimizer_step:16",
    ],
)
def test_a_run_that_is_told_to_leave_is_saved_and_gone_on_with(tmp_path, where):
    flags = [f"--{name}={str(value).lower()}" for name, value in STREAM.items()]
    code, errors = ended(
        start(tmp_path / "run", *flags, "--eval.every=0", points=[f"SIGTERM:call:{where}"])
    )
    assert code == 143
    assert len(errors) == 1
    assert "palestra: stopped by SIGTERM; saved up to step" in errors[0]
    run = finish(tmp_path / "run")
    assert sorted(steps(run)) == list(range(1, 11))
    assert (
        sum(map(len, drawn(run).values()))
        == len({id for each in drawn(run).values() for id in each})
        == 10 * 6 * 8
    )
