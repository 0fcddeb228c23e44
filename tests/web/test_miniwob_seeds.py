"""A seed shows the task that the package `miniwob` shows with it."""

from types import SimpleNamespace

import pytest
from miniwob.selenium_instance import SeleniumInstance
from playwright.sync_api import sync_playwright

from palestra.core.types import Task
from palestra.envs.web.browser import find_chromium
from palestra.envs.web.miniwob import FIRST_TEST_SEED, MiniWob, _said, pages_folder
from palestra.envs.web.miniwob_tasks import TASKS

CONTENTS = r"document.getElementById('area').textContent.replace(/Last login: \w+ \w+ \d+ \d+/, '')"
"""Without the day on which the page is shown, which the page "terminal" tells."""
SEEDS = (0, 7, 123_456, FIRST_TEST_SEED + 3)


def package_scripts(seed, mode):
    """What the package's own code has its browser do at a reset."""
    sent = []
    instance = SimpleNamespace(driver=SimpleNamespace(execute_script=sent.append))
    SeleniumInstance.set_seed(instance, seed)
    SeleniumInstance.set_mode(instance, mode)
    return [*sent, "core.startEpisodeReal();"]


@pytest.fixture(scope="module")
def page():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        yield browser.new_page()
        browser.close()


@pytest.fixture(scope="module")
def package_texts(page):
    """Goal and contents of every page for each seed, as the package's calls make them."""
    texts = {}
    for name in TASKS:
        page.goto((pages_folder() / "miniwob" / f"{name}.html").as_uri())
        for seed in SEEDS:
            for script in package_scripts(seed, "test" if seed >= FIRST_TEST_SEED else "train"):
                page.evaluate(script)
            texts[name, seed] = (
                _said(page.evaluate("core.getUtterance()")),
                page.evaluate(CONTENTS),
            )
    return texts


@pytest.mark.timeout(300)
def test_every_task_has_the_packages_texts(package_texts):
    env = MiniWob()
    texts = {}
    for name, seed in package_texts:
        env.reset(Task("miniwob", "train", f"{name}/{seed}"))
        texts[name, seed] = (env._goal, env._browsing.run(env._browsing.session.evaluate(CONTENTS)))
    env.close()
    assert {task for task in texts if texts[task] != package_texts[task]} == set()
    assert len({*package_texts.values()}) > 3 * len(TASKS)  # the seeds make a difference
