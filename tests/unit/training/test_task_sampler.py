"""The draw of training tasks: shares of a mixture,
and tasks without a signal that are passed over.
"""

from collections import Counter
from dataclasses import replace
from statistics import mean

import pytest

from palestra.algos.grpo import GRPO
from palestra.config.config import build
from palestra.core.errors import ConfigError
from palestra.core.types import Group, Stop, Task
from palestra.rollout.groups import RolloutBatch
from palestra.runs.state import State
from palestra.training.data_sources import played as learned_from
from palestra.training.data_sources import with_outcome
from palestra.training.setup import setup
from palestra.training.task_sampler import TaskSampler, with_skippable
from tests.support.batches import trajectory
from tests.support.training import ECHO

DEAD = {f"train-{number}": 1.0 for number in range(40)}
"""Of echo's 60 tasks."""


@pytest.fixture
def draws():
    made = []

    def of(**overrides):
        components = setup(build(ECHO, overrides))
        made.append(components)
        return TaskSampler(components, seed=3)

    yield of
    for components in made:
        components.close()


def test_nothing_is_passed_over_unless_asked_for(draws):
    draw = draws().after(State(tasks_skippable={"echo": DEAD}))
    assert Counter(draw.next().id for _ in range(120)) == {
        f"train-{number}": 2 for number in range(60)
    }
    assert (draw.drawn, draw.skipped) == ({"echo": 120}, {})


def test_dead_tasks_come_as_often_as_asked_for_and_the_others_no_less(draws):
    draw = draws(**{"rollout.skip_solved": 0.75}).after(State(tasks_skippable={"echo": DEAD}))
    drawn = Counter(draw.next().id for _ in range(3000))
    epochs = draw.drawn["echo"] / 60
    assert draw.drawn["echo"] - draw.skipped["echo"] == 3000
    assert all(
        abs(drawn[f"train-{number}"] - epochs) <= 1 for number in range(40, 60)
    )  # once an epoch
    assert sum(drawn[task] for task in DEAD) == pytest.approx(0.25 * 40 * epochs, rel=0.1)


def test_what_comes_next_depends_on_the_state_alone(draws):
    tasks = draws(**{"rollout.skip_solved": 0.5})
    state = State(tasks_skippable={"echo": DEAD})
    whole = tasks.after(state)
    together = [whole.next() for _ in range(50)]
    first = tasks.after(state)
    apart = [first.next() for _ in range(20)]
    second = tasks.after(first.counted(state))
    assert [*apart, *(second.next() for _ in range(30))] == together
    assert second.counted(state) == whole.counted(state)


def test_shares_of_a_mixture_are_shares_of_what_is_played(draws):
    members = [
        {"name": "tests.support.environments:Echo"},
        {"name": "tests.support.environments:Count", "weight": 2.0},
    ]
    tasks = draws(**{"env": None, "mixture": members, "rollout.skip_solved": 0.9})
    draw = tasks.after(State(tasks_skippable={"count": DEAD}))
    played = Counter(draw.next().env for _ in range(300))
    assert played == {"echo": 100, "count": 200}
    assert draw.drawn["echo"] == 100 < 200 < draw.drawn["count"]


def test_a_task_is_dead_while_its_last_group_taught_nothing():
    def group(name, *episodes, stop=Stop.DONE):
        task = Task("e", "train", name)
        played = [
            replace(
                trajectory(("see", [1]), ("say", [2]), reward=reward, stop=stop),
                task=task,
                success=success,
            )
            for success, reward in episodes
        ]
        return Group(task, played)

    won, quick, lost, half = (True, 0.5), (True, 0.9), (False, 0.0), (False, 0.3)
    algo = GRPO()
    all_won, mixed, all_lost, nearly = (
        group("1", won, quick),
        group("2", won, lost),
        group("3", lost, lost),
        group("4", lost, half),
    )
    state = with_skippable(
        State(), RolloutBatch([all_won, mixed], dropped=[all_lost, nearly]), algo
    )
    assert state.tasks_skippable == {"e": {"1": 1.0, "3": 0.0}}
    state = with_skippable(state, RolloutBatch([group("1", won, lost), group("2", won, won)]), algo)
    assert state.tasks_skippable == {"e": {"3": 0.0, "2": 1.0}}
    broken = group("2", (None, 0.0), (None, 0.0), stop=Stop.ENV_FAULT)  # says nothing
    assert with_skippable(state, RolloutBatch([broken]), algo) == state
    assert with_skippable(State(), RolloutBatch([broken]), algo).tasks_skippable == {}


@pytest.mark.parametrize("skip", [0.5, 0.9])
def test_success_is_that_of_the_tasks_as_they_are_drawn(draws, skip):
    """Of 60 tasks 48 succeed always, and from step 200 on 36 of them; the others never do: 0.8,
    then 0.6, however often what is solved is skipped.

    At skip_solved = 0.9 what is played succeeds in 0.1 * 48 / (0.1 * 48 + 12) = 28.6% once all 48
    are known to be solved.
    """
    tasks = draws(**{"rollout.skip_solved": skip})
    config = build(ECHO, {"rollout.skip_solved": skip})
    state, rows, plain = State(), [], []
    for step in range(600):
        draw = tasks.after(state)
        groups = []
        for task in [draw.next() for _ in range(16)]:
            is_solved = int(task.id.removeprefix("train-")) < (48 if step < 200 else 36)
            # those that are not solved have a signal: they are never dead
            rewards = [1.0, 1.0] if is_solved else [0.0, 0.5]
            episodes = [trajectory(("see", [1]), ("say", [2]), reward=reward) for reward in rewards]
            groups.append(Group(task, [replace(t, task=task, success=is_solved) for t in episodes]))
        rollouts = RolloutBatch(groups)
        state = with_outcome(draw.counted(state), rollouts, config, draw)
        rows.append(learned_from(config, rollouts, state).figures["success"])
        plain.append(sum(t.success for group in groups for t in group.trajectories) / 32)
    assert (
        list(state.success["echo"]) == rows
    )  # what the schedule looks at is what the guard looks at
    assert mean(plain[20:200]) == pytest.approx((1 - skip) * 48 / ((1 - skip) * 48 + 12), abs=0.02)
    assert mean(rows[20:200]) == pytest.approx(0.8, abs=0.015)
    assert mean(rows[200:]) == pytest.approx(0.6, abs=0.015)


def test_a_sudden_change_is_seen_at_once_and_without_bias(draws):
    """All 48 solved tasks are known as such, and 12 of them succeed no longer: 36 of 60 are 0.6.

    With the last success of the skipped ones alone, 0.77 would be read: 0.9 x 48 + 0.1 x 36 of 60
    tasks is 0.78.
    """
    skip, steps = 0.9, 400
    tasks = draws(**{"rollout.skip_solved": skip})
    known = {f"train-{number}": 1.0 for number in range(48)}
    found, uncorrected = [], []
    for step in range(steps):
        # Another epoch each time: other tasks are drawn, and others of them are skipped.
        draw = tasks.after(State(tasks_drawn={"echo": 600 * step}, tasks_skippable={"echo": known}))
        groups = []
        for task in [draw.next() for _ in range(16)]:
            is_solved = int(task.id.removeprefix("train-")) < 36
            episode = trajectory(("see", [1]), ("say", [2]))
            groups.append(Group(task, [replace(episode, task=task, success=is_solved)]))
        found.append(draw.success(groups, "echo"))
        rates = [*draw.expected["echo"], *(float(g.trajectories[0].success) for g in groups)]
        uncorrected.append(mean(rates))
    assert mean(uncorrected) == pytest.approx(0.78, abs=0.02)
    # One step is off by 0.19 (standard deviation), so the mean of 400 by 0.01.
    assert mean(found) == pytest.approx(0.6, abs=0.03)


def test_environments_keep_their_shares_of_success(draws):
    """Ten draws of one environment, all solved, nine of them skipped; one draw of the other, which
    failed: half of what was played.
    """
    members = [
        {"name": "tests.support.environments:Echo"},
        {"name": "tests.support.environments:Count"},
    ]
    settings = {"env": None, "mixture": members, "rollout.skip_solved": 0.9, "algo.scale": False}
    draw, config = (
        draws(**settings).after(State(tasks_skippable={"echo": DEAD})),
        build(ECHO, settings),
    )
    draw.expected["echo"] = [1.0] * 9
    groups = []
    for env, number, success in (("echo", 1, True), ("count", 1, False)):
        task = Task(env, "train", f"train-{number}")
        groups.append(
            Group(
                task, [replace(trajectory(("see", [1]), ("say", [2])), task=task, success=success)]
            )
        )
    rollouts = RolloutBatch(groups)
    figures = learned_from(config, rollouts, with_outcome(State(), rollouts, config, draw)).figures
    assert (figures["success"], figures["env/echo/success"], figures["env/count/success"]) == (
        0.5,
        1.0,
        0.0,
    )


def test_asynchronous_runs_draw_all_tasks_alike():
    with pytest.raises(ConfigError, match=r"skip_solved \(0.5\) and max_staleness \(2\)"):
        build(
            ECHO,
            {"rollout.max_staleness": 2, "rollout.skip_solved": 0.5, "engine.deterministic": False},
        )
