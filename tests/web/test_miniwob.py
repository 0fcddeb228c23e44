"""MiniWoB++ in the browser."""

import pytest

from palestra.core.types import Task
from palestra.envs.check import NONSENSE, check_environment
from palestra.envs.web.miniwob import MiniWob, pages_folder
from palestra.envs.web.miniwob_experts import SOLUTIONS
from palestra.envs.web.miniwob_tasks import LEFT_OUT, TASKS


@pytest.fixture(scope="module")
def env():
    env = MiniWob()
    yield env
    env.close()


def test_all_pages_of_the_package_are_sorted():
    pages = {path.stem for path in (pages_folder() / "miniwob").glob("*.html")}
    assert {*TASKS} | {*LEFT_OUT} == pages
    assert not {*TASKS} & {*LEFT_OUT}


def test_splits_share_no_seed():
    env = MiniWob(tasks=["click-button", "click-link"], train_seeds=3, test_seeds=2)
    ids = {split: {task.id for task in env.tasks(split)} for split in env.splits}
    assert len(ids["train"]) == 6
    assert len(ids["test"]) == 4
    assert not ids["train"] & ids["test"]
    assert {task.category for task in env.tasks("test")} == {"click-button", "click-link"}


@pytest.mark.parametrize("name", sorted(SOLUTIONS))
def test_scripts_solve_what_they_are_for(env, name):
    for seed in (0, 1_000_000):
        env.reset(Task("miniwob", "train", f"{name}/{seed}"))
        step = None
        while (action := env.expert()) is not None:
            step = env.step(action)
        assert step is not None, env._expert.lost
        assert step.success, env._expert.lost
        assert step.reward == step.info["raw_reward"] > 0


def test_tasks_begin_the_same_each_time(env):
    """In a context that others have played in, and in a fresh one."""
    other = MiniWob()
    for name in sorted(TASKS)[::5]:
        task = Task("miniwob", "train", f"{name}/3")
        first = env.reset(task)
        assert first.startswith("Task: ")
        assert "[1]" in first, name
        assert other.reset(task) == first, name
    other.close()


def test_a_wrong_click_ends_the_episode(env):
    seen = env.reset(Task("miniwob", "train", "click-test-2/1"))
    assert seen == 'Task: Click button ONE.\n[1] button "ONE"\n[2] button "TWO"'
    step = env.step("click [2]")
    assert (step.terminated, step.success, step.reward, step.info) == (
        True,
        False,
        0.0,
        {"raw_reward": -1.0},
    )
    assert env.step("click [1]").reward == 0.0
    raw = MiniWob(reward="raw")
    raw.reset(Task("miniwob", "train", "click-test-2/1"))
    assert raw.step("click [2]").reward == -1.0
    raw.close()


def test_nonsense(env):
    env.reset(Task("miniwob", "train", "click-test-2/1"))
    for action in (
        *NONSENSE,
        "goto [http://miniwob.test/core/core.js]",
        "new_tab",
        "stop [x]",
        "click [77]",
    ):
        step = env.step(action)
        assert step.invalid
        assert step.observation.endswith('[2] button "TWO"')


def test_a_page_that_no_longer_says_how_its_task_stands_is_a_fault(env):
    env.reset(Task("miniwob", "train", "click-button-sequence/1"))
    env._browsing.run(env._browsing.session.evaluate("delete window.core; core = undefined"))
    with pytest.raises(RuntimeError, match="does not say how its task stands"):
        env.step("scroll [down]")
    assert env.reset(Task("miniwob", "train", "click-button-sequence/1")).startswith(
        "Task: Click button ONE"
    )


def test_a_slider_is_moved_by_keys(env):
    env.reset(
        Task("miniwob", "train", "use-slider/8")
    )  # Select 104 with the slider, which stands at 101
    env.step("click [1]")
    for _ in range(3):
        seen = env.step("press [ArrowRight]").observation
    assert "] 104\n" in seen
    assert env.step("click [3]").success


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tasks": ["click-buton"]}, "click-button"),
        ({"tasks": ["drag-box"]}, "miniwob has no 'drag-box'"),
        ({"tasks": "click-button"}, "must be a list"),
        ({"categories": ["clik"]}, "click"),
        ({"reward": "negative"}, "reward = 'negative'"),
        ({"train_seeds": 0}, "train_seeds = 0"),
    ],
)
def test_options_that_make_no_sense(options, words):
    with pytest.raises(ValueError, match=words):
        MiniWob(**options)


@pytest.mark.timeout(300)
def test_the_contract():
    options = {"tasks": ["click-button", "login-user"], "train_seeds": 3, "test_seeds": 3}
    assert [check for check in check_environment("miniwob", options, tasks=2) if not check.ok] == []
