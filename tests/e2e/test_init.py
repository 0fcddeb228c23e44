"""A new project trains, passes its own tests, and is checked and played without more ado."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("work") / "my-project"
    said = palestra(folder.parent, "init", str(folder))
    assert said.splitlines()[-1].endswith("palestra train recipe.toml")
    return folder


def command(folder, *arguments, timeout=110):
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=True,
    ).stdout


def palestra(folder, *arguments):
    return command(folder, "-m", "palestra", *arguments)


def test_its_recipe_learns(project):
    settings = ["--eval.tasks", "50", "--out", "run", "--json"]
    result = json.loads(palestra(project, "train", "recipe.toml", *settings))["result"]
    raw = json.loads((project / "run" / "eval" / "step-000000-raw.json").read_text())
    assert result["all"]["success"] > raw["all"]["success"] + 0.5


def test_it_needs_no_recipe(project):
    short = ["--steps", "1", "--warm_start.updates", "2", "--rollout.tasks", "2"]
    short += ["--eval.tasks", "4", "--out", "short"]
    said = palestra(project, "train", "environment:Treasure", *short)
    assert "chosen: model.tokenizer = 'words'" in said
    assert "chosen: agent.context_tokens" in said
    assert "chosen: eval.tasks" not in said


def test_its_own_tests_pass(project):
    assert "2 passed" in command(project, "-m", "pytest", "-q", "-p", "no:cacheprovider")


def test_its_environment_keeps_the_contract(project):
    assert "FAILED" not in palestra(project, "env", "check", "environment:Treasure")


def test_nothing_is_overwritten(project):
    with pytest.raises(subprocess.CalledProcessError) as failed:
        palestra(project.parent, "init", str(project))
    assert failed.value.returncode == 2
    assert "is there already" in failed.value.stderr
