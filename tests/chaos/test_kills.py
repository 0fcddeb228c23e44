"""SIGKILL, at any time and at the worst: what the run comes to is the same bit for bit."""

import random

import pytest

from palestra.learner import checkpoint
from tests.chaos.trainer import assert_same, ended, finish, kill_after, start

pytestmark = pytest.mark.chaos


@pytest.mark.parametrize(
    "number",
    [pytest.param(n, marks=pytest.mark.short) if n < 3 else n for n in range(20)],
    ids=lambda number: f"kill-{number}",
)
def test_killed_at_a_random_time(tmp_path, whole, count, number):
    with count("killed at a random time, then resumed"):
        folder = tmp_path / "run"
        after_s = random.Random(number).random() * whole.took_s
        kill_after(start(folder), folder, after_s)
        assert_same(finish(folder), whole)


SAVING = {
    "while its files are written": "SIGKILL:open:.step-000004.draft/config.json",
    "before its digests": "SIGKILL:open:.step-000004.draft/optimizer.safetensors",
    "before its state": "SIGKILL:open:.step-000004.draft/state.json",
    "before it has its name": "SIGKILL:rename:.step-000004.draft",
    "before its name is on disk": "SIGKILL:open:run/checkpoints",
    "while the oldest is removed": "SIGKILL:remove:.step-000000.doomed",
}


@pytest.mark.parametrize(
    "where",
    [
        pytest.param(name, marks=pytest.mark.short) if n % 4 == 2 else name
        for n, name in enumerate(SAVING)
    ],
)
def test_killed_inside_a_save(tmp_path, whole, count, where):
    with count("killed inside a save, then resumed"):
        folder = tmp_path / "run"
        code, errors = ended(start(folder, points=[SAVING[where]]))
        assert code == -9, errors
        found = checkpoint.latest_valid(folder / "checkpoints")
        assert found is not None
        run = finish(folder)
        assert_same(run, whole)
        assert sorted(path.name for path in run.checkpoints.iterdir()) == [
            "step-000008",
            "step-000010",
        ]
