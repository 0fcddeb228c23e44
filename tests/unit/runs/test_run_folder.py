"""What a run folder says about its run, whole and damaged."""

import json
import math

import msgspec
import pytest

from palestra.core.evaluation import EvalResult, HorizonScores, Score
from palestra.runs.reader import LOG_LINES, RunFolder, group_names, stages
from palestra.view.tokens import TokenTexts
from tests.support.viewed import HOSTILE, trained_copy


def test_a_real_run(tmp_path):
    run = trained_copy(tmp_path / "echo-20261115-211000")
    folder = RunFolder(run.folder)
    assert folder.summary() == {
        "name": "echo-20261115-211000",
        "folder": str(run.folder),
        "algo": "grpo",
        "envs": ["tests.support.environments:Echo"],
        "seed": 0,
        "steps": 3,
        "done": 3,
        "is_over": True,
    }
    about = folder.about()
    assert about["config"] == (run.folder / "config.toml").read_text()
    assert about["rows"] == run.metrics()
    assert about["stages"] == [
        {"first_step": 1, "last_step": 2, "stage": 1, "horizon": 1},
        {"first_step": 3, "last_step": 3, "stage": 2, "horizon": 2},
    ]
    assert [(result["phase"], result["file"]) for result in about["evals"]] == [
        ("raw", "eval/step-000000-raw.json"),
        ("final", "eval/step-000003-final.json"),
    ]
    assert (about["damaged"], about["has_token_stats"]) == (
        [],
        (run.folder / "token_stats").is_dir(),
    )


def test_it_is_read_anew_when_it_goes_on_and_when_it_is_rewound(tmp_path):
    run = trained_copy(tmp_path / "run")
    folder = RunFolder(run.folder)
    assert folder.summary()["is_over"]
    run.rewind(1)
    assert (folder.summary()["done"], folder.summary()["is_over"]) == (1, False)
    run.log(2, {"success": 0.5})
    assert folder.summary()["done"] == 2
    assert folder.about()["rows"][-1] == {"step": 2, "success": 0.5}


def test_damaged_metrics_are_named_and_the_rest_is_shown(tmp_path):
    lines = [
        b'{"step":1,"loss":0.5}',
        b"nonsense",
        b'{"step":2,"loss":null}',
        b"[]",
        b'{"loss":1}',
        b'{"step":"3"}',
        b"\xff\xfe",
    ]
    lines += [b"", b"[" * 100_000, b'{"step":4,"big":123456789012345678901234567890}', b'{"step":5']
    (tmp_path / "metrics.jsonl").write_bytes(b"\n".join(lines))
    about = RunFolder(tmp_path).about()
    assert [row["step"] for row in about["rows"]] == [1, 2, 4]
    damaged = [damage for damage in about["damaged"] if damage["file"] == "metrics.jsonl"]
    assert [damage["line"] for damage in damaged] == [2, 4, 5, 6, 7, 8, 9, 11]
    assert all(damage["why"] for damage in damaged)
    assert damaged[-1]["why"] == "the line is incomplete"
    assert damaged[2]["why"] == "expected a row with a step"
    json.loads(msgspec.json.encode(about))


def test_damaged_evaluations_are_named(tmp_path):
    (tmp_path / "eval").mkdir()
    score = Score(3, 3, 1.0, (0.4, 1.0), 1.0, (0.4, 1.0), 1.0, 2.0, 9.0)
    sound = EvalResult(
        phase="final",
        step=3,
        k=1,
        all=score,
        envs={"echo": {"2": HorizonScores(score, {})}},
    )
    for name, text in {
        "a": msgspec.json.encode(sound),
        "h": b'{"step": 3}',
        "b": b"{",
        "c": b"[]",
        "d": b'{"step": "x"}',
        "e": b"\xff",
        "f": b"",
    }.items():
        (tmp_path / "eval" / f"{name}.json").write_bytes(text)
    (tmp_path / "eval" / "g.json").mkdir()
    about = RunFolder(tmp_path).about()
    assert about["evals"] == [{**msgspec.to_builtins(sound), "file": "eval/a.json"}]
    assert {damage["file"] for damage in about["damaged"]} == {
        "config.toml",
        *(f"eval/{name}.json" for name in "bcdefgh"),
    }


@pytest.mark.parametrize(
    "text",
    [
        b"= nonsense",
        b"\xff\xfe",
        b"seed = 'x'\nsteps = []\nalgo = 3\nenv = [1]\nmixture = 'x'",
        b"",
    ],
)
def test_a_damaged_configuration_is_shown_as_it_is(tmp_path, text):
    (tmp_path / "config.toml").write_bytes(text)
    folder = RunFolder(tmp_path)
    assert folder.about()["config"] == text.decode(errors="replace")
    summary = folder.summary()
    assert (
        summary["algo"],
        summary["envs"],
        summary["seed"],
        summary["steps"],
        summary["done"],
    ) == ("", [], None, None, 0)


def test_a_mixture_has_the_names_of_its_environments(tmp_path):
    (tmp_path / "config.toml").write_text(
        '[[mixture]]\nname = "babyai"\n[[mixture]]\nname = "textcraft"\nlabel = "crafting"\n'
    )
    assert RunFolder(tmp_path).summary()["envs"] == ["babyai", "crafting"]


def test_the_end_of_the_log(tmp_path):
    (tmp_path / "log.txt").write_bytes(
        b"".join(b"line %d\n" % n for n in range(100_000)) + HOSTILE.encode() + b"\xff"
    )
    lines = RunFolder(tmp_path).about()["log"].split("\n")
    assert len(lines) <= LOG_LINES
    assert "<script>" in "\n".join(lines)
    assert "line 99999" in lines
    assert "line 1000" not in lines
    (tmp_path / "log.txt").unlink()
    assert RunFolder(tmp_path).about()["log"] == ""


def test_stages_follow_the_rows(tmp_path):
    rows = [
        {"step": 0, "phase": "raw"},
        {"step": 1, "horizon": 5, "stage": 1},
        {"step": 2, "horizon": 5, "stage": 1},
    ]
    rows += [
        {"step": 2, "phase": "interim"},
        {"step": 3, "horizon": 7, "stage": 2},
        {"step": 4, "horizon": 5, "stage": 1},
    ]
    assert [(s["first_step"], s["last_step"], s["stage"], s["horizon"]) for s in stages(rows)] == [
        (1, 2, 1, 5),
        (3, 3, 2, 7),
        (4, 4, 1, 5),
    ]


@pytest.mark.parametrize(
    ("runs", "groups"),
    [
        ([("grpo-0", 0, 9), ("grpo-1", 1, 9), ("ppo-0", 0, 8)], ["grpo", "grpo", "ppo-0"]),
        (
            [("a-20261115-211000", 0, 9), ("a-20261115-220000", 1, 9), ("a-20261116-100000", 1, 8)],
            ["a", "a", "a (2)"],
        ),
        ([("x-seed-10", 10, 9), ("x-seed-11", 11, 9)], ["x", "x"]),
        ([("left", 0, 9), ("right", 1, 9)], ["left", "left"]),
        ([("one", None, 9), ("two", 0, 9)], ["one", "one"]),
        ([("broken", None, None), ("broken too", None, None)], ["broken", "broken too"]),
    ],
)
def test_runs_that_differ_only_in_their_seed_are_a_group(tmp_path, runs, groups):
    folders = []
    for name, seed, steps in runs:
        (tmp_path / name).mkdir()
        text = "= no TOML" if steps is None else f'steps = {steps}\n[env]\nname = "guess"\n'
        (tmp_path / name / "config.toml").write_text(
            text if seed is None else f"seed = {seed}\n{text}"
        )
        folders.append(RunFolder(tmp_path / name))
    assert group_names([(folder.path.name, folder.config()[1]) for folder in folders]) == groups


def test_tokens_are_those_of_the_newest_checkpoint(tmp_path):
    run = trained_copy(tmp_path / "run")
    texts = TokenTexts(run.folder)
    (ids,) = texts.of([[3, 4, 5]])
    assert len(set(ids)) == 3
    assert texts.of([[], [3, 10**6, -1, 2**70]]) == [
        [],
        [ids[0], "<1000000>", "<-1>", f"<{2**70}>"],
    ]
    newest = max(run.checkpoints.iterdir()) / "tokenizer.json"
    newest.write_text("nonsense")
    assert texts.of([[3]]) is None
    newest.unlink()
    assert texts.of([[3]]) == [[ids[0]]]
    assert TokenTexts(tmp_path).of([[3]]) is None


def test_numbers_that_are_none_become_null(tmp_path):
    (tmp_path / "metrics.jsonl").write_bytes(
        msgspec.json.encode({"step": 1, "loss": math.nan}) + b"\n"
    )
    assert RunFolder(tmp_path).about()["rows"] == [{"step": 1, "loss": None}]


def test_among_others_a_run_of_an_older_format_is_shown_as_one(tmp_path):
    run = trained_copy(tmp_path / "run")
    config = run.folder / "config.toml"
    text = config.read_text()
    assert text.startswith("# palestra run, format 2\n")
    config.write_text(text.replace("format 2", "format 1", 1))
    (damage,) = RunFolder(run.folder).about()["damaged"]
    assert damage["file"] == "config.toml"
    assert damage["why"].startswith("a run folder of format 1, and this version reads format 2")
