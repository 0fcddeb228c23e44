"""Reports of real runs: complete ones, several seeds, one that is going on, and one that is
damaged; texts stay texts.
"""

import json
import re
import shutil
from html.parser import HTMLParser

import pytest

from palestra.cli.main import main
from palestra.core.types import Step, Task
from palestra.envs.base import Environment
from tests.support.training import stopped_after, trained

HOSTILE = (
    "<script>alert(1)</script> | ``` \x1b[31m \u202e </pre></details> ![x](http://evil) "
    "$\\frac$ & \"'"
)


class Nasty(Environment):
    """All that it says is an attempt to become part of the page."""

    name = "nasty"
    max_turns = 2

    def tasks(self, split):
        return [
            Task(self.name, split, f"{split}-{HOSTILE}-{i}", f"<b>{i % 2}</b>|") for i in range(12)
        ]

    def reset(self, task):
        return HOSTILE

    def step(self, action):
        return Step(HOSTILE, reward=float(len(action) % 2), terminated=True, success=True)

    def actions(self):
        return ["a", "bb"]

    def vocabulary(self):
        return ["a", "bb"]


SHORT = {"steps": 4, "eval.tasks": 9, "eval.every": 2}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two groups: three seeds of one, two of the other."""
    folder = tmp_path_factory.mktemp("runs")
    for seed in (0, 1, 2):
        trained(folder / f"plain-{seed}", **SHORT, seed=seed)
    for seed in (0, 1):
        trained(folder / f"fast-{seed}", **SHORT, **{"seed": seed, "optim.lr": 6e-3})
    return folder


def report(capsys, *arguments):
    main(["report", *map(str, arguments)])
    return capsys.readouterr().out


class Tags(HTMLParser):
    """The elements of a page and the text in it."""

    def __init__(self, page):
        super().__init__()
        self.names, self.attributes, self.texts = set(), [], []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.names.add(tag)
        self.attributes += attributes

    def handle_data(self, data):
        self.texts.append(data)


def test_one_run(runs, tmp_path, capsys):
    assert f"report: {tmp_path / 'out' / 'report.html'}" in report(
        capsys, runs / "plain-0", "--out", tmp_path / "out"
    )
    page = Tags((tmp_path / "out" / "report.html").read_text())
    text = "\n".join(page.texts)
    final = json.loads((runs / "plain-0" / "eval" / "step-000004-final.json").read_text())["all"]
    low, high = final["success_interval"]
    assert f"{final['success']:.1%} [{low:.1%}, {high:.1%}]" in text
    assert "4 of 4" in text
    assert "complete" in text
    assert "192" in text  # 4 steps of 6 tasks, 8 episodes each
    sources = [value for name, value in page.attributes if name == "src"]
    assert len(sources) >= 8
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    assert not page.names & {"script", "link", "iframe", "object"}
    pictures = {path.name for path in (tmp_path / "out").glob("*.png")}
    assert {"reward.png", "success.png", "turns.png", "entropy.png", "kl.png", "mismatch.png",
    "grad_norm.png", "zero_advantage.png",
            "time.png"} <= pictures  # fmt: skip
    markdown = (tmp_path / "out" / "report.md").read_text()
    assert set(re.findall(r"\]\((\w+\.png)\)", markdown)) == pictures


def test_groups_are_compared(runs, tmp_path, capsys):
    found = json.loads(report(capsys, runs, "--json"))
    assert not (tmp_path / "report").exists()
    fast, plain = found["groups"]
    assert (fast["name"], plain["name"], len(fast["runs"]), len(plain["runs"])) == (
        "fast",
        "plain",
        2,
        3,
    )
    finals = [run["evals"][-1]["all"]["success"] for run in plain["runs"]]
    everything = next(place for place in plain["success"] if place["category"] == "")
    assert everything["mean"] == pytest.approx(sum(finals) / 3)
    assert everything["runs"] == 3
    (difference,) = found["differences"]
    other = next(place for place in fast["success"] if place["category"] == "")
    assert difference["success"][0]["mean"] == pytest.approx(everything["mean"] - other["mean"])
    assert (
        difference["success"][0]["low"]
        <= difference["success"][0]["mean"]
        <= difference["success"][0]["high"]
    )
    assert plain["runs"][0]["stages"] == [
        {"first_step": 1, "last_step": 2, "stage": 1, "horizon": 1}, {"first_step": 3,
        "last_step": 4, "stage": 2, "horizon": 2},
    ]  # fmt: skip
    report(
        capsys,
        runs / "fast-0",
        runs / "plain-0",
        runs / "plain-1",
        runs / "plain-1" / ".." / "plain-1",
        "--out",
        tmp_path / "out",
    )
    markdown = (tmp_path / "out" / "report.md").read_text()
    assert "plain (n = 2)" in markdown
    assert "| optim.lr | 0.006 | 0.003 |" in markdown


def test_groups_without_an_environment_in_common(runs, tmp_path, capsys):
    other = trained(tmp_path / "count", **SHORT, **{"env.name": "tests.support.environments:Count"})
    found = json.loads(
        report(capsys, runs / "plain-0", other.folder, "--json", "--out", tmp_path / "out")
    )
    assert found["differences"][0]["success"] == []
    assert "Differences from" not in (tmp_path / "out" / "report.md").read_text()


def test_hostile_texts_are_shown_as_texts(tmp_path, capsys):
    run = trained(tmp_path / "run <script>$x$", **SHORT, **{"env.name": f"{__name__}:Nasty"})
    report(capsys, run.folder)
    html = (run.folder / "report" / "report.html").read_text()
    page = Tags(html)
    assert not page.names & {"script", "b", "link"}
    assert "<script>alert(1)</script>" in "\n".join(page.texts)
    assert "\x1b" not in html
    assert "\u202e" not in html
    assert "default-src 'none'" in html
    markdown = (run.folder / "report" / "report.md").read_text()
    outside_code = [line for line in markdown.splitlines() if not line.startswith("    ")]
    assert not [
        line for line in outside_code if "<script" in line or "](http" in line or "\x1b" in line
    ]
    assert len({line.count(" | ") for line in outside_code if line.startswith("| nasty")}) == 1


def test_a_run_that_is_going_on(tmp_path, capsys):
    run = stopped_after(1, tmp_path / "run", {"steps": 6})
    found = json.loads(report(capsys, run.folder, "--json", "--out", tmp_path / "out"))
    (only,) = found["groups"][0]["runs"]
    assert (only["done"], only["steps"], only["is_over"], only["notes"]) == (2, 6, False, [])
    text = "\n".join(Tags((tmp_path / "out" / "report.html").read_text()).texts)
    assert "2 of 6" in text
    assert "not complete: running, or stopped" in text
    assert "The last one (raw, after step 0)" in text


def test_nothing_but_a_configuration(runs, tmp_path, capsys):
    (tmp_path / "run").mkdir()
    shutil.copy(runs / "plain-0" / "config.toml", tmp_path / "run")
    report(capsys, tmp_path / "run")
    text = "\n".join(Tags((tmp_path / "run" / "report" / "report.html").read_text()).texts)
    for line in (
        "There is no evaluation yet.",
        "There are no training steps yet.",
        "No episodes are stored yet.",
        "0 of 4",
    ):
        assert line in text


def test_without_evaluation(runs, tmp_path, capsys):
    shutil.copytree(runs / "plain-0", tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "eval")
    assert "3 places could not be read" in report(capsys, tmp_path / "run")
    text = "\n".join(Tags((tmp_path / "run" / "report" / "report.html").read_text()).texts)
    assert "There is no evaluation yet." in text
    assert "the best and the worst of step-000004" in text


def test_damaged_lines_are_passed_over_with_a_note(runs, tmp_path, capsys):
    shutil.copytree(runs / "plain-0", tmp_path / "run")
    metrics = tmp_path / "run" / "metrics.jsonl"
    lines = metrics.read_bytes().splitlines(keepends=True)
    lines[1] = b'{"step": 1, "rew\n'
    metrics.write_bytes(b"".join([*lines, b'\xff\xfe\n{"reward": 1}\n[1]\n{"step": nu']))
    (tmp_path / "run" / "eval" / "step-000002-interim.json").write_text('{"phase": "interim"}')
    episodes = tmp_path / "run" / "trajectories" / "eval-step-000004-final.jsonl"
    episodes.write_bytes(b"{half a line\n" + episodes.read_bytes())
    report(capsys, tmp_path / "run")
    found = json.loads(report(capsys, tmp_path / "run", "--json"))
    (only,) = found["groups"][0]["runs"]
    assert [note.split(":")[0] for note in only["notes"]] == [
        *(f"metrics.jsonl, line {number}" for number in (2, 8, 9, 10, 11)),
        "eval/step-000002-interim.json",
    ]  # fmt: skip
    assert [result["phase"] for result in only["evals"]] == ["raw", "final"]
    text = "\n".join(Tags((tmp_path / "run" / "report" / "report.html").read_text()).texts)
    assert "7 places were passed over" in text
    assert "trajectories/eval-step-000004-final.jsonl, line 1" in text


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: folder / "nowhere", "there is no such folder"),
        (lambda folder: folder, "no run in this folder"),
        (lambda folder: _bad_config(folder), "not TOML"),
    ],
    ids=["no folder", "no run", "bad config"],
)
def test_errors_are_one_line(tmp_path, capsys, make, message):
    with pytest.raises(SystemExit) as exit_:
        main(["report", str(make(tmp_path))])
    assert exit_.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def _bad_config(folder):
    (folder / "config.toml").write_text("steps = = 3")
    return folder


def test_out_that_cannot_be_a_folder(runs, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit) as exit_:
        main(["report", str(runs / "plain-0"), "--out", str(tmp_path / "file")])
    assert exit_.value.code == 2
    assert "--out" in capsys.readouterr().err
