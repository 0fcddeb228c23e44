"""Dotted settings: how they are read from the command line, and how help lists them."""

from pathlib import Path

import pytest

from palestra.algos import algos
from palestra.cli.main import main
from palestra.cli.settings import settings_of, split_settings
from palestra.config.config import build, load
from tests.unit.cli.test_mistakes import QUICKSTART

FLAGS = {"--out": True, "--json": False}


@pytest.mark.parametrize(
    ("words", "own", "settings"),
    [
        (["x.toml", "--optim.lr", "1e-6"], ["x.toml"], {"optim.lr": 1e-6}),
        (["--optim.lr=1e-6", "x.toml"], ["x.toml"], {"optim.lr": 1e-6}),
        (["--rollout.group", "8", "x.toml"], ["x.toml"], {"rollout.group": 8}),
        (["--agent.example", "--json"], ["--json"], {"agent.example": True}),
        (["--warm_start", "none"], [], {"warm_start": "none"}),
        (["--warm-start", "none"], [], {"warm_start": "none"}),
        (["--out", "a", "--steps", "3"], ["--out", "a"], {"steps": 3}),
        (["--out=a", "--steps", "3"], ["--out=a"], {"steps": 3}),
        (["--horizon.turns", "[10,13]"], [], {"horizon.turns": [10, 13]}),
        (["--env.name", "my_module:MyEnv"], [], {"env.name": "my_module:MyEnv"}),
        (["--algo.kl", "-1"], [], {"algo.kl": -1}),
    ],
)
def test_settings_are_told_from_a_commands_own_words(words, own, settings):
    assert split_settings(words, FLAGS) == (own, settings)


@pytest.mark.parametrize("columns", ["80", "120"])
def test_train_help_lists_each_setting_with_type_default_and_meaning(columns, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    main(["train", QUICKSTART, "--help", "--rollout.group", "7"])
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= int(columns)
    words = " ".join(out.split())
    default = "7" if columns == "120" else "(default: 7)"
    assert f"--rollout.group int > 0 {default} Trajectories per task." in words
    assert out.index("\n[rollout]\n") < out.index("--rollout.group") < out.index("\n[algo]\n")
    assert "[lora]  not set" in out
    for setting in settings_of(load(Path(QUICKSTART))):
        assert f"--{setting.name} " in out


def test_the_list_follows_the_choices():
    names = {setting.name for setting in settings_of(build({}, {"algo.name": "ppo"}))}
    assert {"algo.critic.lr", "optim.lr", "lora.rank", "engine.slots", "seed"} <= names
    assert "algo.scale" not in names


@pytest.mark.parametrize(
    "choice",
    [
        *({"algo.name": name} for name in algos.names() if name != "dpo"),
        {"algo.name": "dpo", "algo.data": ["pairs.jsonl"]},
        {"engine.name": "vllm"},
        {"engine.name": "vllm-server", "engine.urls": ["http://127.0.0.1:8000"]},
        {"horizon.kind": "stages", "horizon.turns": [4, 8], "horizon.every": 5},
        {"horizon.kind": "adaptive", "horizon.turns": [4, 8]},
        {"horizon.kind": "linear", "horizon.first": 4, "horizon.last": 8, "horizon.steps": 5},
        {"model": "some/model"},
    ],
    ids=lambda choice: next(iter(choice.values())),
)
def test_every_setting_has_a_meaning(choice):
    settings = list(settings_of(build({}, choice)))
    assert len(settings) > 50
    assert [setting.name for setting in settings if not setting.meaning] == []
