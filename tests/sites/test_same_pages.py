"""On the code host, an episode of a task shows what every other episode of it shows, where the same
is done.
"""

import random

import pytest

from palestra.core.types import Task
from palestra_web.env import Web

WRITTEN = ("code-new-ticket", "code-remark", "code-forum-thread", "code-wiki-edit")
"""Templates whose solutions write something that is shown afterwards."""


@pytest.fixture(scope="module")
def env(sites):
    env = Web()
    yield env
    env.close()


def solution(env, task):
    """All that is seen, up to the page that shows what was written."""
    seen = [env.reset(task)]
    while (action := env.expert()) is not None and not action.startswith("stop"):
        seen.append(env.step(action).observation)
    seen.append(env.step("scroll [down]").observation)
    return seen


def walk(env, task, chance):
    seen = [env.reset(task)]
    for _ in range(12):
        seen.append(
            env.step(
                chance.choice([action for action in env.actions() if not action.startswith("stop")])
            ).observation
        )
    return seen


def task_of(env, template):
    return next(
        task for split in env.splits for task in env.tasks(split) if task.category == template
    )


@pytest.mark.timeout(240)
@pytest.mark.parametrize("template", WRITTEN)
def test_what_is_written_looks_the_same_in_every_episode(env, template):
    task = task_of(env, template)
    assert solution(env, task) == solution(env, task)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("seed", range(4))
def test_a_walk_through_the_code_host_looks_the_same_in_every_episode(env, seed):
    """Also over pages with captchas and suggested passwords."""
    task = task_of(env, "code-new-ticket")
    assert walk(env, task, random.Random(seed)) == walk(env, task, random.Random(seed))


def test_links_of_the_site_map_are_where_they_are_seen(env):
    for _ in range(4):
        env.reset(task_of(env, "code-new-ticket"))
        menu = env.step(f"click [{line_of(env, 'link', 'Site Map').id}]").observation
        assert "Pikchr Sandbox" in menu
        assert (
            "pikchrshow"
            in env.step(f"click [{line_of(env, 'link', 'Pikchr Sandbox').id}]").observation
        )


def line_of(env, role, name):
    return next(
        line
        for line in env._browsing.observation.elements
        if (line.role, line.name) == (role, name)
    )


def test_the_present_stands_still_in_the_browser_too(env):
    env.reset(task_of(env, "code-new-ticket"))
    script = (
        "[String(new Date()), new Date().toISOString(), new Date(0).getTime(), Date().slice(0, "
        "15), new Date() instanceof Date]"
    )
    said = env._browsing.run(env._browsing.session.evaluate(script))
    assert said[1:] == ["2026-06-15T10:00:00.000Z", 0, "Mon Jun 15 2026", True]
    began, later = (
        env._browsing.run(env._browsing.session.evaluate("Date.now()")) for _ in range(2)
    )
    assert 1781517600000 <= began < later + 1 < 1781517600000 + 600_000  # what is measured goes on


def test_another_task_has_other_ids(env):
    one, other = (
        solution(env, Task("web", "train", id))[-2].split("URL: ")[1].split()[0]
        for id in ("code-new-ticket/0", "code-new-ticket/1")
    )
    assert "/tktview/" in one
    assert one != other
