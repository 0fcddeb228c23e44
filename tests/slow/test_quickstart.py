"""The quickstart really learns, for every seed that the README speaks of."""

from pathlib import Path

import pytest

from palestra.config import load
from palestra.display import Display
from palestra.run import Run
from palestra.train import run_training

RECIPE = Path(__file__).parents[2] / "recipes" / "quickstart.toml"


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_held_out_success(tmp_path, seed):
    run = Run.create(tmp_path / "run", load(RECIPE, {"seed": seed}))
    run_training(run, Display())
    success = {row["phase"]: row["eval/success"] for row in run.metrics() if "eval/success" in row}
    assert success["raw"] < 0.05
    assert success["final"] >= 0.75
    assert success["final"] - success["warm start"] >= 0.30
