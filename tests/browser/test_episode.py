"""One episode: replay by keyboard, scenes, tokens, neighbors, and a file to keep; and its group."""

import re

import pytest
from playwright.sync_api import expect

FILE = "step-000001"


def stored(server, line):
    return server.ask("GET", f"/api/runs/0/episodes/{FILE}/{line}.json")[1]


@pytest.fixture(scope="module")
def long_one(server):
    """The line of an episode with several turns and a reward, and what is stored of it."""
    lines = {line: stored(server, line) for line in range(24)}
    solved = {
        line: one
        for line, one in lines.items()
        if one["trajectory"]["success"] and one["token_stats"]
    }
    return max(
        solved.items(),
        key=lambda item: (
            any(item[1]["token_stats"]["advantage"]),
            len(item[1]["trajectory"]["turns"]),
        ),
    )


def test_replay_by_keyboard(server, visit, long_one):
    line, episode = long_one
    turns = len(episode["trajectory"]["turns"])
    page = visit(server, f"run/0/episode/{FILE}/{line}").page
    count = page.locator(".turn-count")
    expect(count).to_have_text(f"turn 1 of {turns}")
    current = page.get_by_role("list", name="Turns").locator("[aria-current=step]")
    for key, place in [
        ("ArrowRight", 2),
        ("j", 3),
        ("k", 2),
        ("ArrowLeft", 1),
        ("ArrowLeft", 1),
        ("End", turns + 1),
        ("Home", 1),
    ]:
        place = min(place, turns + 1)
        page.keyboard.press(key)
        expect(count).to_have_text(
            f"turn {place} of {turns}" if place <= turns else f"the end ({turns} turns)"
        )
        expect(current).to_have_attribute("id", f"turn-{place - 1}")
    page.keyboard.press("?")
    expect(page.get_by_role("region", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("region", name="Keys")).to_have_count(0)
    page.keyboard.press("End")
    expect(page).to_have_url(re.compile(rf"at={turns + 1}$"))
    page.reload()
    expect(count).to_have_text(f"the end ({turns} turns)")


def test_scenes_follow_the_turn(server, visit, long_one):
    line, episode = long_one
    page = visit(server, f"run/0/episode/{FILE}/{line}").page
    grid = page.get_by_role("complementary", name="Scene").get_by_role("img")
    expect(grid).to_be_visible()
    before = grid.get_attribute("aria-label")
    assert re.fullmatch(r"The agent at \d+, \d+ faces \w+\. There are: .+\.", before)
    page.keyboard.press("End")
    expect(grid).not_to_have_attribute("aria-label", before)
    _, answer = server.ask("GET", f"/api/runs/0/scenes/{FILE}/{line}.json")
    assert len(answer["scenes"]) == len(episode["trajectory"]["turns"]) + 1
    x, y, _ = answer["scenes"][-1]["agent"]
    expect(grid).to_have_attribute("aria-label", re.compile(rf"^The agent at {x}, {y} faces"))
    page.keyboard.press("s")
    expect(page.get_by_role("complementary", name="Scene")).to_have_count(0)


def test_tokens_have_the_colors_of_what_they_are_worth(server, visit, long_one):
    line, episode = long_one
    page = visit(server, f"run/0/episode/{FILE}/{line}").page
    expect(page.locator(".turn-count")).to_be_visible()
    page.keyboard.press("t")
    tokens = page.get_by_role("group", name="Tokens").locator(".token")
    (segment,) = episode["trajectory"]["segments"]
    expect(tokens).to_have_count(len(segment["ids"]))
    shown = page.evaluate(
        "[...document.querySelectorAll('.tokens .token')].map((t) => "
        "[t.className.includes('is-chosen'), t.style.background])"
    )
    assert [chosen for chosen, _ in shown] == [mask == 1 for mask in segment["mask"]]
    advantage = episode["token_stats"]["advantage"]
    colors = [color for chosen, color in shown if chosen]
    blue, vermilion = "rgba(0, 114, 178", "rgba(213, 94, 0"
    assert all(
        color.startswith(blue if worth >= 0 else vermilion)
        for worth, color in zip(advantage, colors, strict=True)
    )
    assert {color for chosen, color in shown if not chosen} == {"transparent"}
    page.get_by_role("combobox", name="Color").select_option("logprob")
    expect(page).to_have_url(re.compile("tokens=logprob"))
    unlikely = min(range(len(segment["ids"])), key=lambda place: segment["logprobs"][place])
    expect(tokens.nth(unlikely)).to_have_attribute("style", re.compile(r"213, 94, 0"))
    tokens.nth(unlikely).hover()
    numbers = page.locator(".token-numbers")
    expect(numbers).to_contain_text(f"{unlikely + 1} of {len(segment['ids'])}")
    tokens.nth(unlikely).focus()
    page.keyboard.press("Home")
    expect(numbers).to_contain_text(f"1 of {len(segment['ids'])}")


def test_the_neighbors_are_those_of_the_list(server, visit):
    page = visit(server, f"run/0/episode/{FILE}/2?kind=train").page
    expect(page.get_by_role("navigation", name="Episodes of the list")).to_contain_text("3 of 96")
    page.keyboard.press("]")
    expect(page.get_by_role("heading", level=1)).to_have_text("000001-0003")
    expect(page).to_have_url(f"{server.address}/#/run/0/episode/{FILE}/3?kind=train")
    page.keyboard.press("[")
    expect(page.get_by_role("heading", level=1)).to_have_text("000001-0002")
    page.get_by_role("link", name="List").click()
    expect(page).to_have_url(f"{server.address}/#/run/0/episodes?kind=train")


def test_an_episode_that_was_not_learned_from(server, visit):
    page = visit(server, "run/0/episode/eval-step-000004-final/0?tokens=mask").page
    expect(page.get_by_text("Nothing was learned from this episode")).to_be_visible()
    expect(
        page.get_by_role("combobox", name="Color").get_by_role("option", name="advantage")
    ).to_be_disabled()


def test_a_file_to_keep(server, visit, long_one, tmp_path):
    line, episode = long_one
    page = visit(server, f"run/0/episode/{FILE}/{line}").page
    expect(page.get_by_role("complementary", name="Scene").get_by_role("img")).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as one HTML file").click()
    file = tmp_path / "episode.html"
    download.value.save_as(file)
    text = file.read_text()
    assert "<script" not in text
    assert "http:" not in re.sub(r"http://www\.w3\.org/\S+", "", text)
    kept = visit(f"file://{file}", None, java_script_enabled=False).page
    expect(kept.get_by_role("heading", level=1)).to_have_text(episode["trajectory"]["id"])
    expect(kept.locator(".turn")).to_have_count(len(episode["trajectory"]["turns"]) + 1)
    expect(kept.locator("svg").first).to_be_visible()


def test_a_group_and_where_it_parts(server, visit):
    groups = {}
    for line in range(24):
        trajectory = stored(server, line)["trajectory"]
        groups.setdefault(trajectory["task"]["id"], []).append(trajectory)
    unlike = {
        task: group for task, group in groups.items() if len({one["success"] for one in group}) > 1
    }
    task, group = next(iter(unlike.items()))
    page = visit(server, f"run/0/group/{FILE}/{task}?env=babyai").page
    table = page.get_by_role("region", name="Episodes side by side")
    expect(table.locator("thead th")).to_have_count(len(group) + 1)
    first = group[0]
    other = next(one for one in group if one["success"] != first["success"])

    def seen(one):
        return [(turn["observation"], turn["action"] or turn["reply"]) for turn in one["turns"]]

    parts = next(
        n
        for n, (a, b) in enumerate(zip([*seen(first), None], [*seen(other), None], strict=False))
        if a != b
    )
    expect(table.locator("tr.is-parting")).to_have_attribute("id", f"row-{parts}")
    expect(
        page.get_by_role("group", name="Two episodes to compare").get_by_role("status")
    ).to_contain_text(f"turn {parts + 1}")
    page.get_by_label("with").select_option(label=first["id"])
    expect(table.locator("tr.is-parting")).to_have_count(0)
