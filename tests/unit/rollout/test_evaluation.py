import itertools

import pytest

from palestra.config.config import build
from palestra.core.intervals import Z, clustered, t_interval, unbounded, wilson
from palestra.core.types import Segment, Stop, Task, Trajectory, Turn
from palestra.rollout.evaluation import score, summarize
from palestra.training.evaluation import playing
from palestra.training.preflight import prepare
from tests.support.training import ECHO


def episode(task, success, turns=1, stop=Stop.DONE, category="c"):
    """Each turn is shown one token and samples two."""
    segment = Segment([0] * 3 * turns, [0, 1, 1] * turns, [0.0] * 3 * turns, [0] * 3 * turns)
    played = [Turn("", "", "", 0.5, (3 * number + 1, 3 * number + 3)) for number in range(turns)]
    return Trajectory(
        "e", Task("env", "test", task, category), [segment], played, stop, success, 9, 0
    )


def test_wilson():
    # 8 of 10: center (.8 + 1.9207/10) / (1 + 3.8415/10) = .71674, half 1.96/1.38415 * sqrt(.016 +
    # .009604) = .22657
    assert wilson(8, 10) == pytest.approx((0.49016, 0.94331), abs=1e-4)
    assert wilson(0, 20) == pytest.approx((0.0, 0.16113), abs=1e-4)
    assert wilson(0, 0) == (0.0, 1.0)


def test_clustered():
    # means 0, .5, 1: sd .5, t of 2 degrees of freedom 4.303, half 4.303 * .5 / sqrt(3) = 1.2422
    assert clustered([0.0, 0.5, 1.0]) == (0.0, 1.0)
    # means .4, .5, .6: sd .1, half 4.303 * .1 / sqrt(3) = .24843
    assert clustered([0.4, 0.5, 0.6]) == pytest.approx((0.25157, 0.74843), abs=1e-4)


def test_an_interval_over_five_tasks_covers_what_it_says():
    """All 4^5 outcomes of five tasks whose means are 0, 1/3, 2/3 or 1 alike: how often is the true
    mean, 1/2, in the interval?
    """
    with_t, with_z, counted = 0, 0, 0
    for means in itertools.product([0.0, 1 / 3, 2 / 3, 1.0], repeat=5):
        if len(set(means)) == 1:
            continue
        low, high = t_interval(means)
        center, half = (low + high) / 2, (high - low) / 2 / 2.776 * Z  # t of 4 degrees of freedom
        counted += 1
        with_t += low - 1e-12 <= 0.5 <= high + 1e-12
        with_z += center - half <= 0.5 <= center + half
    assert with_t / counted > 0.93
    assert with_z / counted < 0.90


def test_all_alike_is_not_certain():
    # 100 tasks, never solved: not [0, 0] but Wilson's [0, z^2 / (n + z^2)] = 3.8415 / 103.8415
    assert clustered([0.0] * 100) == pytest.approx((0.0, 0.036993), abs=1e-5)
    assert clustered([1.0] * 100)[0] < 0.97


def test_rewards_have_no_bounds():
    # means -1, 0, 1: sd 1, half 4.30265 / sqrt(3) = 2.48414
    assert unbounded([-1.0, 0.0, 1.0]) == pytest.approx((-2.48414, 2.48414), abs=1e-4)
    assert unbounded([0.5]) is None
    assert unbounded([0.0, 0.0]) is None
    assert unbounded([]) is None


def test_the_interval_of_rewards_is_over_tasks():
    # .5 a turn: task a 1 turn and 3 turns -> mean 1, task b 5 turns twice -> 2.5; mean 1.75, sd
    # 1.06066,
    # t of 1 degree of freedom 12.7062, half 12.7062 * .75 = 9.52965
    episodes = [
        episode("a", True, turns=1),
        episode("a", True, turns=3),
        *[episode("b", True, turns=5)] * 2,
    ]
    result = score(episodes, horizon=9)
    assert result.reward == pytest.approx(1.75)
    assert result.reward_interval == pytest.approx((1.75 - 9.52965, 1.75 + 9.52965), abs=1e-4)


def test_the_mean_reward_is_over_tasks_like_its_interval():
    # a fault left task a with one episode of 1 turn (.5); task b has two of 5 turns (2.5): (.5 +
    # 2.5) / 2, not (.5 + 2.5 + 2.5) / 3
    episodes = [episode("a", True, turns=1), *[episode("b", True, turns=5)] * 2]
    assert score(episodes, horizon=9, k=2).reward == pytest.approx(1.5)


def test_a_task_that_a_fault_left_with_fewer_episodes_has_no_pass_at_k():
    # b has but one episode: of a and c, which have two, one was solved
    outcomes = [("a", True), ("a", False), ("b", False), ("c", False), ("c", False)]
    result = score([episode(task, success) for task, success in outcomes], horizon=9, k=2)
    assert result.pass_at_k == 0.5
    assert result.pass_interval == wilson(1, 2)
    assert result.success == pytest.approx((0.5 + 0 + 0) / 3)
    nothing = score([episode("b", True)], horizon=9, k=2)
    assert (nothing.pass_at_k, nothing.pass_interval) == (0.0, (0.0, 1.0))


def test_avg_and_pass_at_k():
    # task a: 1 of 2, task b: 0 of 2, task c: 2 of 2 -> avg (.5 + 0 + 1) / 3 = .5, pass 2 of 3
    outcomes = [("a", True), ("a", False), ("b", False), ("b", False), ("c", True), ("c", True)]
    result = score([episode(task, success) for task, success in outcomes], horizon=9)
    assert (result.tasks, result.episodes) == (3, 6)
    assert result.success == pytest.approx(0.5)
    assert result.pass_at_k == pytest.approx(2 / 3)


def test_a_success_beyond_the_horizon_does_not_count():
    episodes = [episode("a", True, turns=3), episode("b", True, turns=6)]
    assert score(episodes, horizon=5).success == 0.5
    assert score(episodes, horizon=6).success == 1.0
    # rewards of .5 a turn: 3 turns and 5 turns count -> (1.5 + 2.5) / 2
    assert score(episodes, horizon=5).reward == 2.0
    assert score(episodes, horizon=5).turns == 4.0
    # two tokens a turn: 3 and 5 turns, not 3 and 6
    assert score(episodes, horizon=5).tokens == 8.0
    assert score(episodes, horizon=6).tokens == 9.0


def test_faults_are_counted_apart_and_categories_split():
    episodes = [
        episode("a", True, category="x"),
        episode("b", False, category="y"),
        episode("c", None, stop=Stop.ENV_FAULT),
    ]
    result = summarize(
        episodes, phase="final", step=7, split="test", k=1, horizons={"env": [3, 5, 5]}
    )
    assert (result.name, result.split) == ("step-000007-final", "test")
    assert result.faults == 1
    assert result.all.success == 0.5
    assert list(result.envs["env"]) == ["3", "5"]
    assert result.envs["env"]["5"].all.success == 0.5
    assert result.envs["env"]["5"].categories["x"].success == 1.0


@pytest.mark.parametrize("agent", ["expert", "random", None])
def test_everyone_plays_as_many_at_once_as_the_settings_say(agent):
    config = build(ECHO, {"rollout.concurrency": 3, "rollout.retries": 5})
    with playing(config, agent, prepare(config)) as (context, _):
        assert (context.concurrency, context.retries) == (3, 5)
