"""Reinforcement learning really improves a tiny model at deep search, in worlds that have nothing
in common with those it learned in.
"""

import json
from pathlib import Path

import pytest

from palestra.config.config import load
from palestra.runs.run import Run
from palestra.training.display import Display
from palestra.training.loop import run_training

RECIPE = Path(__file__).parents[2] / "palestra" / "recipes" / "search-quickstart.toml"


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_one_hop_questions_are_answered_more_often_after_rl(tmp_path):
    run = Run.create(tmp_path / "run", load(RECIPE, {}))
    run_training(run, Display())
    results = {
        path.stem.split("-", 2)[2]: json.loads(path.read_text())["all"]
        for path in (run.folder / "eval").glob("*.json")
    }
    raw, imitated, learned = (results[phase] for phase in ("raw", "warm-start", "final"))
    assert raw["success"] == 0.0
    assert learned["success_interval"][0] > imitated["success_interval"][1], (
        f"{imitated} then {learned}"
    )
