"""Be the agent: with the mouse, with the keyboard,
with the expert's and a trained agent's advice.
"""

import re
import subprocess
import sys

import pytest
from playwright.sync_api import expect

from tests.browser.test_pages import serious


@pytest.fixture(scope="module")
def game(runs):
    """`palestra play`, as it is called."""
    command = [
        sys.executable,
        "-m",
        "palestra",
        "play",
        "--run",
        str(runs[0]),
        "--port",
        "0",
        "--no-open",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as playing:
        line = playing.stdout.readline()
        yield re.search(r"http://\S+:\d+", line)[0]
        playing.terminate()


def test_the_expert_is_followed_to_success(game, visit):
    page = visit(game, "play").page
    page.get_by_label("Task").fill("GoToObj-3")
    page.get_by_role("button", name="Start").click()
    transcript = page.get_by_role("list", name="Transcript")
    grid = page.get_by_role("complementary", name="Scene").get_by_role("img")
    expect(grid).to_be_visible()
    action = page.get_by_role("textbox", name="Action")
    expect(action).to_be_focused()
    for turn in range(1, 20):
        page.get_by_role("button", name="Expert").click()
        expect(action).not_to_have_value("")
        action.press("Enter")
        expect(transcript.get_by_role("listitem")).to_have_count(turn + 1)
        if page.get_by_text("✓ success").count():
            break
    expect(transcript).to_contain_text("✓ success")
    expect(action).to_have_count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_agent_is_asked_and_everybody_can_play(game, visit, scheme):
    visitor = visit(game, "play", scheme=scheme)
    page = visitor.page
    page.get_by_role("button", name="Start").click()
    page.get_by_role("button", name="Agent").click()
    expect(page.get_by_text("The agent says")).to_be_visible(
        timeout=90_000
    )  # torch and the weights take a while
    expect(page.locator(".tokens .token").first).to_be_visible()
    assert serious(page) == []
    assert visitor.overflow <= 0
    page.set_viewport_size({"width": 390, "height": 844})
    assert visitor.overflow <= 0
    page.get_by_role("list", name="Possible actions").get_by_role(
        "button", name="turn left"
    ).click()
    expect(page.get_by_role("list", name="Transcript")).to_contain_text("turn left")
    page.get_by_role("textbox", name="Action").fill("<img src=x onerror=alert(1)>")
    page.keyboard.press("Enter")
    expect(page.get_by_role("list", name="Transcript")).to_contain_text(
        "<img src=x onerror=alert(1)>"
    )
    expect(page.get_by_text("! invalid")).to_be_visible()


def test_what_cannot_be_played_is_said(game, visit):
    visitor = visit(game, "play")
    visitor.forgiven.append("404")
    page = visitor.page
    page.get_by_label("Task").fill("GoToNowhere-3")
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_role("alert")).to_contain_text("babyai has no task 'GoToNowhere-3' in train")
