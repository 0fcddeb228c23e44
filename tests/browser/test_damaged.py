"""A run folder that something has damaged is shown all the same,
and what is wrong with it is said.
"""

import shutil

import pytest
from playwright.sync_api import expect

from tests.support.viewed import viewing


@pytest.fixture(scope="module")
def damaged(runs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("damaged") / "damaged"
    shutil.copytree(runs[0], folder)
    with (folder / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": "no number"}\n\xff\xfe\n{"step": 5, "rew')
    episodes = folder / "trajectories" / "step-000001.jsonl"
    lines = episodes.read_bytes().splitlines(keepends=True)
    lines[1] = lines[1][:100] + b"\n"
    lines[2] = b'{"format": 1, "id": "deep", "more": ' + b"[" * 100_000 + b"\n"
    lines[3] = b'{"format": 1, "id": 7}\n'
    episodes.write_bytes(b"".join(lines) + b'{"format": 1, "id": "cut')
    (folder / "token_stats" / "step-000001.jsonl").write_bytes(b"nonsense\n\x00")
    (folder / "eval" / "step-000009-broken.json").write_text("[1, 2")
    (folder / "checkpoints" / "step-000004" / "tokenizer.json").write_text("{")
    broken = folder.parent / "broken"
    broken.mkdir()
    (broken / "config.toml").write_bytes(b"seed = [\xff")
    with viewing(folder, broken) as server:
        yield server


def test_what_is_damaged_is_said_and_the_rest_is_shown(damaged, visit):
    page = visit(damaged, "run/0").page
    notice = page.get_by_text("of the run folder could not be read")
    expect(notice).to_be_visible()
    notice.click()
    for file in ("metrics.jsonl", "step-000009-broken.json"):
        expect(page.get_by_role("listitem").filter(has_text=file).first).to_be_visible()
    expect(page.get_by_role("slider", name="Success, by step")).to_be_visible()
    expect(page.get_by_role("region", name="Results by category")).to_be_visible()


def test_damaged_episodes_are_listed_and_opened(damaged, visit):
    visitor = visit(damaged, "run/0/episodes?kind=train&step=1")
    page = visitor.page
    visitor.go("run/0/episodes")
    page.get_by_role("columnheader", name="Episode", exact=True).get_by_role("button").click()
    rows = page.get_by_role("link", name="damaged line")
    expect(rows.first).to_be_visible()
    visitor.go("run/0/episode/step-000001/1")
    expect(page.get_by_role("alert")).to_contain_text("This line cannot be read as an episode.")
    expect(page.locator("pre.block")).to_contain_text('{"format":1')
    visitor.go("run/0/episode/step-000001/2")
    expect(page.get_by_role("alert")).to_contain_text("nested too deeply")
    visitor.go("run/0/episode/step-000001/0?tokens=mask")
    expect(page.get_by_role("heading", level=1)).to_have_text("000001-0000")
    expect(page.get_by_text("Nothing was learned from this episode")).to_be_visible()
    assert visitor.overflow <= 0


def test_a_run_without_anything(damaged, visit):
    page = visit(damaged, "run/1").page
    expect(page.get_by_role("heading", name="broken", level=1)).to_be_visible()
    expect(page.get_by_text("could not be read")).to_be_visible()
    expect(page.get_by_text("No step has been finished yet.")).to_be_visible()
    page.get_by_role("link", name="Episodes").first.click()
    expect(page.get_by_text("No episode has been played yet.")).to_be_visible()
