"""Every page: it shows what it should, can be used by everybody, and fits its window, in light and
dark.
"""

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.browser.conftest import NARROW
from tests.support.viewed import viewing

PAGES = {
    "runs": ("", "Runs"),
    "run": ("run/0", "small-0"),
    "episodes": ("run/0/episodes?sort=-reward", "Episodes"),
    "episode": ("run/0/episode/step-000001/0?at=2&tokens=advantage", "000001-0000"),
    "group": (None, None),
    "compare": ("compare?runs=0,1,2", "Compare"),
}


def group_of(server):
    """Where the group of the first episode is shown."""
    _, answer = server.ask("GET", "/api/runs/0/episodes/step-000001/0.json")
    return f"run/0/group/step-000001/{answer['trajectory']['task']['id']}?env=babyai", answer[
        "trajectory"
    ]["task"]["id"]


def settled(page):
    """All that the page waits for is there."""
    expect(page.locator(".spinner")).to_have_count(0, timeout=60_000)
    page.wait_for_timeout(150)


def serious(page):
    """What keeps people from using the page, by axe."""
    found = Axe().run(page).response["violations"]
    return [
        (one["id"], [node["html"][:200] for node in one["nodes"]][:3])
        for one in found
        if one["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_a_page(name, scheme, server, visit):
    place, heading = PAGES[name] if name != "group" else group_of(server)
    visitor = visit(server, place, scheme=scheme)
    page = visitor.page
    expect(page.get_by_role("heading", name=heading, level=1)).to_be_attached()
    settled(page)
    assert page.evaluate("document.documentElement.dataset.theme") == scheme
    assert visitor.overflow <= 0
    assert serious(page) == []
    page.set_viewport_size({"width": NARROW, "height": 844})
    page.wait_for_timeout(100)
    assert visitor.overflow <= 0
    if scheme == "light":
        assert serious(page) == []


def test_the_colors_can_be_chosen_and_stay(server, visit):
    page = visit(server).page
    page.get_by_role("button", name="Use dark colors").click()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.reload()
    expect(page.get_by_role("button", name="Use light colors")).to_be_visible()


def test_a_place_that_is_not_there(server, visit):
    visitor = visit(server, "run/9")
    expect(visitor.page.get_by_text("There is no run 9 here.")).to_be_visible()
    visitor.go("nowhere/at/all")
    expect(visitor.page.get_by_text("There is no page at /nowhere/at/all.")).to_be_visible()
    visitor.forgiven.append("404")
    visitor.go("run/0/episode/step-000001/9999")
    expect(visitor.page.get_by_role("alert")).to_contain_text("Could not load the episode.")


def test_the_runs_and_their_results(server, visit):
    page = visit(server).page
    expect(page.get_by_role("article")).to_have_count(3)
    page.get_by_role("link", name="small-1").click()
    expect(page).to_have_url(f"{server.address}/#/run/1")
    expect(page.get_by_role("heading", name="Curves")).to_be_visible()
    expect(page.get_by_role("slider", name="Success, by step")).to_be_visible()
    results = page.get_by_role("region", name="Results by category").get_by_role("row")
    assert [row.get_by_role("rowheader").inner_text() for row in results.all()[1:]] == [
        "all tasks",
        "GoToObj",
        "OpenDoorColor",
    ]
    expect(page.get_by_text("each of 4 steps")).to_be_visible(
        timeout=60_000
    )  # another process says it
    page.get_by_text("Settings of the run").click()
    expect(page.get_by_text("levels = [")).to_be_visible()


def test_a_curve_leads_to_its_episodes_by_keyboard(server, visit):
    page = visit(server, "run/0").page
    curve = page.get_by_role("slider", name="Success, by step")
    curve.focus()
    for key in ("Home", "ArrowRight", "ArrowRight"):  # step 0 was only evaluated
        page.keyboard.press(key)
    expect(curve).to_have_attribute("aria-valuenow", "2")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{server.address}/#/run/0/episodes?step=2&kind=train")
    expect(page.get_by_role("status").filter(has_text="24 episodes")).to_be_visible()


def test_a_token_opens_the_page_once_and_is_kept(runs, visit):
    with viewing(runs[0], tokens=("secret",)) as guarded:
        visitor = visit(guarded, None)
        visitor.forgiven.append("401")
        page = visitor.page
        expect(page.get_by_text("open the page with ?token=TOKEN once")).to_be_visible()
        page.goto(f"{guarded.address}/?token=secret#/run/0")
        expect(page.get_by_role("heading", name="small-0", level=1)).to_be_visible()
        expect(page).to_have_url(f"{guarded.address}/#/run/0")
        page.reload()
        expect(page.get_by_role("slider", name="Success, by step")).to_be_visible()
