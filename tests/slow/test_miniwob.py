"""A tiny model learns to click on the right thing in a real browser."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from palestra.config.config import load
from palestra.runs.run import Run
from palestra.training.display import Display
from palestra.training.loop import run_training

RECIPE = Path(__file__).parents[2] / "palestra" / "recipes" / "miniwob-quickstart.toml"


@pytest.mark.slow
@pytest.mark.skipif(
    find_spec("playwright") is None or find_spec("miniwob") is None, reason="needs the extra web"
)
def test_success_on_seeds_that_were_not_trained_on(tmp_path):
    run = Run.create(tmp_path / "run", load(RECIPE, {}))
    run_training(run, Display())
    success = {row["phase"]: row["eval/success"] for row in run.metrics() if "eval/success" in row}
    assert success["raw"] < 0.1
    assert success["final"] >= 0.8
    assert success["final"] - success["warm start"] >= 0.1
