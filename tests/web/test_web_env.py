"""The environment `web` on a small site of our own."""

import pytest

from palestra.core.types import Task
from palestra.envs.check import NONSENSE
from tests.web.pages import Small


@pytest.fixture
def env(site):
    env = Small(site)
    yield env
    env.close()


def all_tasks(env):
    return [task for split in env.splits for task in env.tasks(split)]


def test_experts_solve_all_tasks(env):
    for task in all_tasks(env):
        env.reset(task)
        steps = []
        while (action := env.expert()) is not None:
            steps.append(env.step(action))
        assert steps[-1].success, (task, steps[-1], env._expert.lost)
        assert steps[-1].reward == 1.0
        assert env.step("click [1]").reward == 0.0  # after the end


@pytest.mark.parametrize("answer", ["stop []", "stop [wrong]", "stop [6]"])
def test_an_agent_that_does_nothing_or_answers_wrongly_fails(env, answer):
    for task in all_tasks(env):
        env.reset(task)
        step = env.step(answer)
        assert (step.success, step.reward, step.terminated) == (False, 0.0, True)


def test_the_expert_gives_up_when_something_else_is_done(env):
    env.reset(Task("small", "train", "small-price/0"))
    assert env.expert() == env.expert()
    env.step("scroll [down]")
    assert env.expert() is None


def test_what_a_form_does(env):
    seen = env.play("/form").observation
    number = {
        line.split('"')[1]: line.split("]")[0].strip(" [")
        for line in seen.splitlines()
        if '"' in line and "]" in line
    }
    for action in (
        f"type [{number['Name:']}] [Ann] [0]",
        f"select [{number['Size']}] [large]",
        f"check [{number['Agree']}]",
    ):
        assert not env.step(action).invalid
    assert not env.step(f"type [{number['Day']}] [2026-03-01] [0]").invalid
    assert "sent Ann Large true 2026-03-01" in env.step(f"click [{number['Send']}]").observation
    assert (
        'textbox "Note" value="one two"'
        in env.step(f"type [{number['Note']}] [one\\ntwo] [0]").observation
    )
    assert (
        'textbox "Rich" value="words"'
        in env.step(f"type [{number['Rich']}] [words] [0]").observation
    )
    assert (
        'value="other"' in env.step(f"type [{number['Rich']}] [other] [0]").observation
    )  # replaced, not added
    assert '"hovered"' in env.step(f"hover [{number['Point here']}]").observation
    assert '"pushed"' in env.step(f"click [{number['In the frame']}]").observation
    assert 'checkbox "Agree" unchecked' in env.step(f"uncheck [{number['Agree']}]").observation


def test_what_cannot_be_done_is_said(env):
    seen = env.play("/form").observation
    number = {
        line.split('"')[1]: line.split("]")[0].strip(" [")
        for line in seen.splitlines()
        if '"' in line and "]" in line
    }
    for action, words in (
        ("click [999]", "no element [999]"),
        (f"select [{number['Size']}] [Huge]", "there are: Small, Large"),
        (f"select [{number['Name:']}] [x]", "not a list"),
        (f"type [{number['Send']}] [x]", "not a field"),
        (f"type [{number['Locked']}] [x]", "cannot be written"),
        (f"check [{number['Send']}]", "cannot be ticked"),
        ("press [NoSuchKey]", "Expected keys"),
        ("tab_focus [4]", "no tab 4"),
        ("accept", "No dialog"),
        ("goto [http://elsewhere.test/]", "cannot be gone to"),
        ("goto [file:///etc/passwd]", "cannot be gone to"),
        ("goto [javascript:alert(1)]", "cannot be gone to"),
    ):
        step = env.step(action)
        assert step.invalid, action
        assert words in step.observation, action
        assert "Title: Form" in step.observation


def test_nonsense(env):
    env.reset(all_tasks(env)[0])
    for action in NONSENSE:
        step = env.step(action)
        assert step.invalid
        assert step.observation.startswith("Expected")


def test_numbers_last_as_long_as_the_document(env):
    first = env.play("/form").observation
    env.step("scroll [down]")
    again = env.step("scroll [up]").observation
    assert first == again
    assert "[1] link" in env.step("click [1]").observation  # another document, counted from 1


def test_tabs(env):
    env.play("/plain")
    host = env.host
    opened = env.step("new_tab").observation
    assert "Tabs: 0: http://" in opened
    assert "1: about:blank (this one)" in opened
    assert "Title: Shelf" in env.step(f"goto [http://{host}/shelf]").observation
    assert "Title: Plain" in env.step("tab_focus [0]").observation
    left = env.step("close_tab").observation
    assert "Title: Shelf" in left
    assert "Tabs" not in left
    assert "about:blank" in env.step("close_tab").observation


def test_back_and_forward(env):
    env.play("/plain")
    assert "Title: Form" in env.step("click [1]").observation
    assert "Title: Plain" in env.step("go_back").observation
    assert "Title: Form" in env.step("go_forward").observation


def test_scenes_are_screenshots(env):
    env.play("/plain")
    scene = env.scene()
    assert scene["kind"] == "page"
    assert scene["image"].startswith("/9j/")  # JPEG
    assert env.scene() is scene
    env.step("click [1]")
    assert env.scene() != scene
