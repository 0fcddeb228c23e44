"""A run that is being trained while somebody looks at it."""

import os
import re
import subprocess
import sys
import time

import tomli_w
from playwright.sync_api import expect

from tests.browser.runs import TINY
from tests.support.viewed import viewing


def numbers(text):
    return [int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", text)]


def test_a_run_grows_before_ones_eyes(visit, tmp_path):
    settings = {
        "env": {
            "name": "tests.support.environments:SlowCount"
        },  # some twenty seconds in all, however fast the machine is
        "warm_start": {"episodes": 5, "updates": 1, "check_every": 1, "check_tasks": 2, "batch": 2},
        "steps": 60,
        "save": {"every": 60},
        "rollout": {"tasks": 2, "group": 2},
    }
    (tmp_path / "live.toml").write_text(tomli_w.dumps(TINY | settings))
    parent = tmp_path / "runs"
    parent.mkdir()
    with viewing(parent) as server:
        page = visit(server).page
        expect(page.get_by_text("No run was given.")).to_be_visible()
        command = [
            sys.executable,
            "-m",
            "palestra",
            "train",
            str(tmp_path / "live.toml"),
            "--out",
            str(parent / "live"),
        ]
        with (
            (tmp_path / "out.txt").open("wb") as out,
            subprocess.Popen(command, stdout=out, stderr=out, env=os.environ) as training,
        ):
            try:
                _watch(page)
                assert training.wait(120) == 0, (tmp_path / "out.txt").read_text()
            finally:
                training.kill()
        expect(page.locator(".progress").first).to_contain_text("60 of 60 steps over")
        page.get_by_role("link", name="Episodes").first.click()
        expect(
            page.get_by_label("Played in").get_by_role("option", name="eval-step-000060-final")
        ).to_be_attached()


def _watch(page):
    """Without a reload: the run appears, is running, and has more steps and episodes each time one
    looks.
    """
    progress = page.locator(".progress").first
    expect(progress).to_contain_text("● running", timeout=90_000)
    expect(page.get_by_role("heading", name="live", level=1)).to_be_visible()
    page.get_by_role("link", name="Episodes").first.click()
    count = page.locator(".summary-line strong").first
    expect(count).to_contain_text("episode", timeout=60_000)
    before = numbers(count.inner_text())[0]
    began = time.monotonic()
    while numbers(count.inner_text())[0] <= before:
        assert time.monotonic() - began < 60
        page.wait_for_timeout(100)
    page.get_by_role("link", name="live").click()
    expect(progress).to_contain_text("steps")
