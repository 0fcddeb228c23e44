"""Pages that misbehave, and a browser that is killed: what an agent sees of it, and what is left
behind.
"""

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from palestra.core.types import Task
from palestra.envs.serving.handles import EnvFault, InlinePool, opened
from palestra.envs.serving.worker_pool import Workers, WorkerSettings
from palestra.envs.web.browser import Browser, BrowserGone, Reach, close_browsers, shared_browser
from tests.web.pages import Small


@pytest.fixture
def env(site):
    env = Small(site)
    yield env
    env.close()


def number_of(name, observation):
    return next(
        line.split("]")[0].strip(" [") for line in observation.splitlines() if f'"{name}"' in line
    )


def test_a_page_that_reaches_outside(env):
    step = env.play("/outside")
    assert "3 requests to other sites were blocked." in step.observation
    assert step.info["marks"] == ["blocked"]
    left = env.step("click [1]")
    assert (
        "http://elsewhere.test/ could not be opened: it is not one of the sites that can "
        "be reached." in left.observation
    )
    assert "failed" in left.info["marks"]
    assert "Title: Outside" in env.step("go_back").observation


def test_a_redirect_to_the_outside(env):
    step = env.play("/escape")
    assert "could not be opened: it is not one of the sites" in step.observation
    assert "Title" in env.step(f"goto [http://{env.host}/plain]").observation


def test_popups(env):
    env.play("/popups")
    assert "Tabs: 0: " in env.step("click [1]").observation
    env.step("close_tab")
    step = env.step("click [2]")
    assert "popups" in step.info["marks"]
    assert step.observation.count("/plain") <= 9


def test_dialogs(env):
    seen = env.play("/form").observation
    asked = env.step(f"click [{number_of('Ask', seen)}]")
    assert asked.observation.endswith('Dialog: confirm "Really?" is open: accept or dismiss it.')
    assert env.step("click [1]").invalid
    assert env.scene()["image"] == ""
    assert "chosen false" in env.step("dismiss").observation
    env.step(f"click [{number_of('Ask', seen)}]")
    assert "chosen true" in env.step("accept").observation
    env.step(f"click [{number_of('Prompt', seen)}]")
    assert "named Ann" in env.step("accept [Ann]").observation
    told = env.step(f"click [{number_of('Alert', seen)}]")
    assert 'Dialog: alert "Well done" was closed.' in told.observation
    assert told.info["marks"] == ["dialog"]


def test_an_episode_can_end_with_a_dialog_open(env):
    seen = env.play("/form").observation
    env.step(f"click [{number_of('Ask', seen)}]")
    assert env.step("stop [x]").terminated
    assert "Title: Form" in env.play("/form").observation


def test_a_download_is_not_kept(env):
    step = env.play("/file")
    assert "A download of 'report.bin' was not kept." in step.observation
    assert "download" in step.info["marks"]
    assert "Title" in env.step(f"goto [http://{env.host}/plain]").observation


def test_redirects_without_end(env):
    assert "it redirects without end" in env.play("/around").observation
    assert "Title: Plain" in env.step(f"goto [http://{env.host}/plain]").observation


def test_a_page_that_reloads_itself_without_end(site):
    env = Small(site, load_s=1.0)
    assert env.play("/loop").info["marks"] == ["loading"]
    assert "Title: Plain" in env.step(f"goto [http://{env.host}/plain]").observation
    env.close()


@pytest.mark.parametrize("path", ["/slow-image", "/never", "/busy"])
def test_a_page_that_is_never_finished(site, path):
    env = Small(site, load_s=1.0)
    step = env.play(path)
    assert step.observation
    assert "Title: Plain" in env.step(f"goto [http://{env.host}/plain]").observation
    env.close()


def test_a_page_that_hangs(site):
    env = Small(site, load_s=1.0, hang_s=2.0)
    env.play("/hang")
    step = env.step("click [1]")
    assert "The page did not answer for 2 s and was closed." in step.observation
    assert step.info["marks"] == ["hung"]
    assert "Title: Plain" in step.observation  # where the episode began
    assert "Title: Form" in env.step("click [1]").observation
    env.close()


def test_a_huge_page_is_not_read(env):
    step = env.play("/huge")
    assert {"cut", "loading", "hung"} & {
        *step.info["marks"]
    }  # on a busy machine it does not even finish loading
    assert len(step.observation) < 1000


def test_a_long_page_is_shown_by_the_screenful(env):
    first = env.play("/long").observation
    assert "Scrolled: 0 to 720 of " in first
    assert "Paragraph number 0" in first
    assert "Paragraph number 599" not in first
    assert len(first) < 9000
    second = env.step("scroll [down]").observation
    assert "Paragraph number 0\n" not in second
    assert second.count("button") > 5


def test_a_page_that_crashes_is_a_fault(env):
    env.play("/plain")
    env._browsing.run(_crash(env._browsing.session))
    with pytest.raises(BrowserGone, match="crashed"):
        env.step("click [1]")
    assert "Title: Plain" in env.reset(
        Task("small", "train", "small-price/0")
    )  # in another context


async def _crash(session):
    session.tab.page.once("crash", lambda page: None)
    asyncio.ensure_future(session.tab.page.goto("chrome://crash")).add_done_callback(
        lambda task: task.exception()
    )
    await asyncio.sleep(1.0)


def chromium_processes(parent):
    """Their ids and states, of all that descend from a process."""
    children = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, fields = stat.read_text().rpartition(") ")
        except OSError:
            continue
        pid, _, name = head.partition(" (")
        children.setdefault(int(fields.split()[1]), []).append((int(pid), name, fields.split()[0]))
    found, wanted = [], [parent]
    while wanted:
        for pid, name, state in children.get(wanted.pop(), ()):
            wanted.append(pid)
            found.append((pid, name, state))
    return [(pid, state) for pid, name, state in found if name.startswith("chrom")]


def kill_browser(parent=None):
    """As the kernel does when memory runs out: the process that holds the others."""
    alive = [pid for pid, state in chromium_processes(parent or os.getpid()) if state != "Z"]
    os.kill(min(alive), signal.SIGKILL)


def test_a_killed_browser_is_a_fault_and_another_is_started(site):
    async def played():
        pool = InlinePool(lambda: Small(site), 60.0)
        task = Task("small", "train", "small-price/0")
        for _ in range(3):
            async with opened(pool) as env:
                await env.reset(task)
                kill_browser()
                with pytest.raises(EnvFault, match="BrowserGone"):
                    await env.step("click [1]")
            async with opened(pool) as env:
                assert "Title: Plain" in await env.reset(task)
        await pool.close()

    close_browsers()  # those of other tests: the one that is killed must be ours
    asyncio.run(played())
    reach = Small(site)._hosting.reach
    shared_browser(reach).close()
    zombies = [pid for pid, state in chromium_processes(os.getpid()) if state == "Z"]
    assert zombies == []


def test_closing_a_browser_leaves_no_process():
    before = {pid for pid, _ in chromium_processes(os.getpid())}
    browser = Browser(Reach())
    browser.run(browser.chromium(), 30)
    assert {pid for pid, _ in chromium_processes(os.getpid())} - before
    browser.close()
    browser.close()
    deadline = time.monotonic() + 5
    while {
        pid for pid, _ in chromium_processes(os.getpid())
    } - before and time.monotonic() < deadline:
        time.sleep(0.1)
    assert {pid for pid, _ in chromium_processes(os.getpid())} - before == set()


def test_a_worker_that_ends_takes_its_browser_along():
    async def played():
        pool = Workers("miniwob", {"tasks": ["click-test"]}, WorkerSettings(workers=1))
        seat = await pool.open()
        await seat.reset(Task("miniwob", "train", "click-test/1"))
        worker = pool.stats().workers[0].pid
        browser = {pid for pid, _ in chromium_processes(worker)}
        assert browser
        await seat.close()
        await pool.close()
        return browser

    browser = asyncio.run(played())
    deadline = time.monotonic() + 10
    while any(_is_alive(pid) for pid in browser) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(_is_alive(pid) for pid in browser)


def _is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False
