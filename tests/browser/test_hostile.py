"""Texts of models and environments are anybody's: whatever stands in them is shown as text and does
nothing.
"""

import json
import shutil

import pytest
from playwright.sync_api import expect

from palestra.models.tokenizers import word_tokenizer
from tests.browser.conftest import NARROW, WIDE
from tests.support.viewed import viewing

IMAGE = "<img src=x onerror=alert(1)>"
SCRIPT = "</script></pre></textarea><script>alert(2)</script>"
ODD = (
    "\u202eright to left\u2066 \x00\x1b[31m \u2028 ${alert(3)} {{alert(4)}} "
    'javascript:alert(5) "><svg onload=alert(6)>'
)
LONG = "W" * 100_000
EVIL = f"{IMAGE} {SCRIPT} {ODD}"
NAME = "<img src=x onerror=alert(7)>"


def spoil(line, number):
    """Every text of an episode."""
    episode = json.loads(line)
    episode["id"] = f"{number} {EVIL}"
    episode["task"] |= {
        "id": f"{EVIL}/%2e%2e/?#",
        "category": ["__proto__", "constructor", EVIL][number % 3],
    }
    for turn in episode["turns"]:
        turn |= {
            "observation": f"{EVIL}\n{LONG}",
            "reply": EVIL,
            "action": IMAGE,
            "info": {EVIL: EVIL, "__proto__": {"a": LONG}},
        }
    episode |= {"final_observation": SCRIPT, "fault": EVIL, "timings": {f"{IMAGE}_s": 1.5}}
    return json.dumps(episode)


@pytest.fixture(scope="module")
def hostile(runs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile") / NAME
    shutil.copytree(runs[0], folder)
    config = (folder / "config.toml").read_text()
    (folder / "config.toml").write_text(
        config.replace('name = "grpo"', f"name = '''{IMAGE}'''")
        + f"\n# {EVIL!r}\n[extra]\ntext = '{IMAGE}'\n"
    )
    for path in (folder / "trajectories").iterdir():
        path.write_text(
            "".join(spoil(line, n) + "\n" for n, line in enumerate(path.read_text().splitlines()))
        )
    shutil.copy(
        folder / "trajectories" / "step-000001.jsonl",
        folder / "trajectories" / f"eval-{NAME}.jsonl",
    )
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    (folder / "metrics.jsonl").write_text(
        "".join(
            json.dumps(row | {IMAGE: 0.5, "__proto__": 1.0, f"stop/{EVIL}": 1}) + "\n"
            for row in rows
        )
    )
    for path in (folder / "eval").iterdir():
        result = json.loads(path.read_text()) | {"phase": EVIL, "split": EVIL}
        for horizon in result["envs"]["babyai"].values():
            horizon["categories"] = {
                f"{EVIL} {name}": score for name, score in horizon["categories"].items()
            }
        path.write_text(json.dumps(result))
    (folder / "log.txt").write_text(f"{EVIL}\n{LONG}\n")
    words = [
        IMAGE.replace(" ", "\u00a0"),
        "<script>alert(8)</script>",
        LONG[:5000],
        *(f"<b>{n}</b>" for n in range(200)),
    ]
    for checkpoint in (folder / "checkpoints").iterdir():
        word_tokenizer(words).save_pretrained(checkpoint)
    other = folder.parent / "other"
    shutil.copytree(folder, other)
    with viewing(folder, other) as server:
        yield server


TASK = "%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E"
PLACES = {
    "runs": ("", IMAGE),
    "run": ("run/0", IMAGE),
    "episodes": ("run/0/episodes", IMAGE),
    "episode": ("run/0/episode/step-000001/0?tokens=logprob", IMAGE),
    "end": ("run/0/episode/step-000001/0?at=99", SCRIPT),
    "compare": ("compare?runs=0,1", IMAGE),
    "search": (f"run/0/episodes?text={TASK}&category=__proto__&sort={TASK}", "__proto__"),
    "made up": (f"run/{TASK}/episodes?step={TASK}", IMAGE),
    "unknown": (f"{TASK}/{TASK}?{TASK}={TASK}", TASK),
}


@pytest.mark.parametrize("name", PLACES)
def test_it_is_shown_as_text(name, hostile, visit):
    place, text = PLACES[name]
    visitor = visit(hostile, place)
    page = visitor.page
    expect(page.get_by_text(text).first).to_be_attached()
    expect(page.locator(".spinner")).to_have_count(0, timeout=60_000)
    for details in page.locator("details > summary").all():
        details.click()
    page.wait_for_timeout(200)
    assert page.locator("img[src=x], script:not([src*='app.js']), svg[onload], b").count() == 0
    for width in (WIDE, NARROW):
        page.set_viewport_size({"width": width, "height": 844})
        page.wait_for_timeout(100)
        assert visitor.overflow <= 0


def test_a_group_is_shown_as_text(hostile, visit):
    visitor = visit(hostile, "run/0/episodes?kind=train")
    visitor.page.get_by_role("link", name="Group of task").first.click()
    expect(visitor.page.get_by_role("heading", level=1)).to_contain_text(IMAGE)
    expect(visitor.page.get_by_role("region", name="Episodes side by side")).to_contain_text(SCRIPT)
    assert visitor.overflow <= 0


def test_a_kept_file_does_nothing_either(hostile, visit, tmp_path):
    page = visit(hostile, "run/0/episode/step-000001/0").page
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as one HTML file").click()
    file = tmp_path / "kept.html"
    download.value.save_as(file)
    kept = visit(f"file://{file}", None).page
    expect(kept.get_by_text(SCRIPT).first).to_be_attached()
    assert kept.locator("script, img, svg[onload]").count() == 0


def test_what_the_other_tests_rely_on(hostile, visit):
    """Markup that did get into the page would be noticed, and its script would still not run."""
    visitor = visit(hostile, "run/0/episodes")
    expect(visitor.page.locator(".summary-line")).to_be_visible()
    visitor.page.evaluate(
        "(html) => { document.body.append(document.createRange().createContextualFragment(html)) }",
        f"{IMAGE}<script>alert(1)</script>",
    )
    visitor.page.evaluate("fetch('http://127.0.0.1:9/elsewhere').catch(() => 0)")
    expect(visitor.page.locator("img[src=x]")).to_have_count(1)
    visitor.page.wait_for_timeout(500)
    assert not any(trouble.startswith("dialog") for trouble in visitor.troubles)
    for part in (
        "Executing inline script violates",
        "Executing inline event handler violates",
        "violates the following Content Security Policy",
    ):
        assert any(part in trouble for trouble in visitor.troubles), visitor.troubles
    visitor.troubles.clear()
