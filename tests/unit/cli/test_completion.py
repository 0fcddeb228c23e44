"""Shell completion, asked for as the shells' scripts ask for it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TRAIN = "palestra train quickstart"


def ask(**variables):
    done = subprocess.run(
        [sys.executable, "-m", "palestra"],
        env={**os.environ, **variables},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout


def bash(line):
    """The last word of the line is the one being typed."""
    count = str(len(line.split(" ")) - 1)
    out = ask(_PALESTRA_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=count)
    return out.split()


@pytest.mark.parametrize(
    ("line", "completions"),
    [
        ("palestra tr", ["train"]),
        ("palestra env ", ["list", "check", "play", "serve"]),
        ("palestra env serve --isol", ["--isolation"]),
        ("palestra plan quickstart --gpu ", ["h100", "h200"]),
        ("palestra train quick", ["quickstart", "quickstart-asynchronous"]),
        (
            "palestra train palestra/recipes/quick",
            [
                "palestra/recipes/quickstart-asynchronous.toml",
                "palestra/recipes/quickstart.toml",
            ],
        ),
        (f"{TRAIN} --horizon.", ["--horizon.kind", "--horizon.turns", "--horizon.every"]),
        (f"{TRAIN} --rollout.group 4 --optim.w", ["--optim.warmup", "--optim.weight_decay"]),
        (f"{TRAIN} --algo.name ppo --algo.critic.w", ["--algo.critic.warmup"]),
        (f"{TRAIN} --optim.lr 1 --dry", ["--dry-run"]),
        ("palestra train --optim.betas", ["--optim.betas"]),
        ("palestra doctor quickstart --save.k", ["--save.keep"]),
    ],
)
def test_bash(line, completions):
    assert bash(line) == completions


def test_the_only_folder_is_looked_into():
    assert "palestra/recipes/quickstart.toml" in bash("palestra train palestra/rec")


def test_run_folders(tmp_path):
    (tmp_path / "x-1").mkdir()
    (tmp_path / "x-1" / "config.toml").touch()
    (tmp_path / "x.toml").touch()
    assert bash(f"palestra view {tmp_path}/x") == [f"{tmp_path}/x-1"]
    assert bash(f"palestra train --resume {tmp_path}/x") == [f"{tmp_path}/x-1"]


def test_zsh_shows_what_a_setting_means():
    out = ask(_PALESTRA_COMPLETE="complete_zsh", _TYPER_COMPLETE_ARGS=f"{TRAIN} --optim.warm")
    assert '"--optim.warmup":"Training steps of linear warm-up' in out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_to_install(shell):
    assert "_PALESTRA_COMPLETE" in ask(_PALESTRA_COMPLETE=f"source_{shell}")
