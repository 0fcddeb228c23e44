"""Every template's solution solves it in a real browser; doing nothing and wrong answers solve
nothing.
"""

import pytest

from palestra.core.types import Task
from palestra.envs.web.evaluators import solved
from palestra_web.env import Web
from palestra_web.generate import generated
from palestra_web.hosting import OwnSites
from palestra_web.tasks import FOLDER, shipped_tasks
from palestra_web.templates import all_templates

TEMPLATES = sorted(all_templates())
SPLITS = ("train", "test")


def tasks_of(template):
    return [
        task
        for split in SPLITS
        for task in shipped_tasks(split).values()
        if task.intent_template_id == template
    ]


@pytest.fixture(scope="module")
def env(sites):
    env = Web()
    yield env
    env.close()


@pytest.mark.timeout(240)
@pytest.mark.parametrize("template", TEMPLATES)
def test_solutions_solve(env, template):
    tasks = tasks_of(template)
    for task in (tasks[0], tasks[-1]):
        env.reset(Task("web", task.split, task.task_id))
        step = None
        while (action := env.expert()) is not None:
            step = env.step(action)
        assert step is not None, env._expert.lost
        assert step.success, (task.intent, env._expert.lost, step)


class Idle:
    """Who answers at once, without having done anything."""

    def __init__(self, hosting, task, answer):
        self.hosting, self.answer, self.url = hosting, answer, task.start_url

    def text(self, url, locator):
        raise AssertionError("a page would have to be opened")

    def query(self, site, sql):
        return self.hosting.query(site, sql)

    def changed_tables(self, site):
        return self.hosting.changed_tables(site)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("split", SPLITS)
def test_nothing_is_solved_by_idlers(sites, split):
    """Of all tasks that can be judged without a browser, which are nearly all."""
    tasks, judged = shipped_tasks(split).values(), 0
    for task in tasks:
        if "program_html" in task.eval.eval_types:
            continue
        judged += 1
        hosting = OwnSites()
        hosting.begin(task)
        passed = [
            answer
            for answer in ("", "N/A", "wrong", "yes", "I do not know")
            if solved(task.eval, Idle(hosting, task, answer))
        ]
        hosting.end()
        assert not passed, (task.task_id, passed)
    assert judged > 0.8 * len(tasks)


def test_the_files_hold_what_the_templates_make(sites):
    files = generated()
    assert {path.name for path in FOLDER.glob("*.json")} == set(files)
    for name, content in files.items():
        assert (FOLDER / name).read_bytes() == content, (
            f"{name} is out of date: python -m palestra_web.generate"
        )
