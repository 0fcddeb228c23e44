"""The list of episodes: each filter, each order, the search and the keys; and every view has an
address of its own.
"""

import re

import pytest
from playwright.sync_api import expect

RUN = "run/0/episodes"


@pytest.fixture(scope="module")
def episodes(server):
    """All rows of the first run, as the server tells them."""
    while True:
        _, answer = server.ask("GET", "/api/runs/0/episodes.json")
        if answer["is_complete"]:
            break
    rows = answer["rows"]
    named = {
        name: [answer["texts"][code] for code in rows[name]]
        for name in ("env", "split", "category", "stop")
    }
    named["file"] = [answer["files"][code] for code in rows["file"]]
    columns = rows | named
    return [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]


def said(count, total):
    return f"{count} episode{'' if count == 1 else 's'}" + (
        f" of {total}" if count != total else ""
    )


def shows(page, episodes, wanted):
    """Just these, by their number and by the first of them."""
    expected = [row for row in episodes if wanted(row)]
    assert 0 < len(expected) < len(episodes), "a filter that leaves all or nothing proves nothing"
    expect(page.locator(".summary-line")).to_contain_text(said(len(expected), len(episodes)))
    expect(page.locator("tbody tr:not(.spacer) td:first-child a").first).to_have_text(
        expected[0]["id"]
    )


CHOICES = [
    ("Played in", "training", "kind=train", lambda row: row["file"].startswith("step-")),
    ("Played in", "evaluation", "kind=eval", lambda row: row["file"].startswith("eval-")),
    (
        "Played in",
        "eval-step-000004-final",
        "kind=eval-step-000004-final",
        lambda row: row["file"] == "eval-step-000004-final",
    ),
    ("Category", "GoToObj", "category=GoToObj", lambda row: row["category"] == "GoToObj"),
    ("Split", "test", "split=test", lambda row: row["split"] == "test"),
    ("Success", "yes", "success=yes", lambda row: row["success"] == 1),
    ("Success", "no", "success=no", lambda row: row["success"] == 0),
    ("Ended by", "horizon", "stop=horizon", lambda row: row["stop"] == "horizon"),
]


@pytest.mark.parametrize(
    ("label", "choice", "query", "wanted"), CHOICES, ids=[query for _, _, query, _ in CHOICES]
)
def test_a_choice(label, choice, query, wanted, server, visit, episodes):
    page = visit(server, RUN).page
    page.get_by_role("form", name="Filters").get_by_label(label).select_option(label=choice)
    shows(page, episodes, wanted)
    expect(page).to_have_url(f"{server.address}/#/{RUN}?{query}")
    page.reload()
    shows(page, episodes, wanted)


RANGES = [
    ("Step", "2", "3", "step", lambda row: 2 <= row["step"] <= 3),
    ("Reward", "0.01", "", "reward", lambda row: row["reward"] >= 0.01),
    ("Turns", "", "2", "turns", lambda row: row["turns"] <= 2),
]


@pytest.mark.parametrize(
    ("label", "low", "high", "name", "wanted"), RANGES, ids=[name for *_, name, _ in RANGES]
)
def test_a_range(label, low, high, name, wanted, server, visit, episodes):
    page = visit(server, RUN).page
    for end, value in (("from", low), ("to", high)):
        if value:
            field = page.get_by_label(f"{label}, {end}")
            field.fill(value)
            field.press("Tab")
    shows(page, episodes, wanted)
    page.get_by_role("button", name="Clear").click()
    expect(page.locator(".summary-line")).to_contain_text(said(len(episodes), len(episodes)))
    expect(page).to_have_url(f"{server.address}/#/{RUN}")


def test_a_text(server, visit, episodes):
    page = visit(server, RUN).page
    task = episodes[0]["task"]
    page.get_by_label("Text").fill(task.upper())
    shows(page, episodes, lambda row: row["task"] == task)
    page.get_by_label("Text").fill("never said by anybody")
    expect(page.get_by_text("No episode is like that.")).to_be_visible()


ORDERS = [
    "Episode",
    "Step",
    "Task",
    "Category",
    "Outcome",
    "Reward",
    "Advantage",
    "Ended by",
    "Turns",
    "Tokens",
    "Invalid",
]
FIELDS = {"Episode": "id", "Outcome": "success", "Ended by": "stop"}


def natural(value):
    """Numbers in a text count as numbers: GoToObj-6 comes before GoToObj-1000002."""
    return (
        [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", value)]
        if isinstance(value, str)
        else value
    )


@pytest.mark.parametrize("column", ORDERS)
def test_an_order(column, server, visit, episodes):
    page = visit(server, RUN).page
    head = page.get_by_role("columnheader", name=column, exact=True)
    field = FIELDS.get(column, column.lower())
    values = [row[field] for row in episodes if row[field] is not None]
    for direction, best in (("ascending", min), ("descending", max)):
        head.get_by_role("button").click()
        expect(head).to_have_attribute("aria-sort", direction)
        link = page.locator("tbody tr:not(.spacer) td:first-child a").first
        first = link.get_attribute("href")
        file, line = re.search(r"episode/([^/]+)/(\d+)", first).groups()
        (shown,) = [row for row in episodes if (row["file"], row["line"]) == (file, int(line))]
        assert shown[field] == best(values, key=natural)
    head.get_by_role("button").click()
    expect(head).to_have_attribute("aria-sort", "none")


def test_rows_are_chosen_and_opened_by_keyboard(server, visit, episodes):
    page = visit(server, f"{RUN}?kind=train").page
    table = page.get_by_role("region", name="Episodes; arrow keys choose a row")
    table.focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowUp"):
        page.keyboard.press(key)
    expect(page.locator("tr.is-selected")).to_contain_text("000001-0001")
    page.keyboard.press("End")
    expect(page.locator("tr.is-selected")).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text(
        [row["id"] for row in episodes if row["file"].startswith("step-")][-1]
    )
    page.go_back()
    expect(page).to_have_url(f"{server.address}/#/{RUN}?kind=train")
