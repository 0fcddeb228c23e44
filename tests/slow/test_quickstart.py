"""The quickstart really learns, for every seed that the README speaks of."""

from pathlib import Path

import pytest

from palestra.config.config import load
from palestra.runs.run import Run
from palestra.training.display import Display
from palestra.training.loop import run_training

RECIPES = Path(__file__).parents[2] / "palestra" / "recipes"


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["quickstart", "quickstart-asynchronous"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_held_out_success(tmp_path, recipe, seed):
    run = Run.create(tmp_path / "run", load(RECIPES / f"{recipe}.toml", {"seed": seed}))
    run_training(run, Display())
    success = {row["phase"]: row["eval/success"] for row in run.metrics() if "eval/success" in row}
    assert success["raw"] < 0.05
    assert success["final"] >= 0.75
    assert success["final"] - success["warm start"] >= 0.30
