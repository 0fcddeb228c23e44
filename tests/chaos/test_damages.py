"""Checkpoints that are not what was written: each is found out, named and left alone, and the one
before it is used.
"""

import random
import shutil

import pytest
import torch

from palestra.learner import checkpoint
from palestra.models.loading import load_model
from tests.chaos.trainer import assert_same, ended, finish, start

pytestmark = pytest.mark.chaos


def flip(path, chance):
    content = bytearray(path.read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


def truncate(path, chance):
    path.write_bytes(path.read_bytes()[: chance.randrange(path.stat().st_size)])


def delete(path, chance):
    path.unlink()


@pytest.fixture(scope="module")
def checkpoints(whole, tmp_path_factory):
    """Two of them; the newer one has its weights in several shards."""
    folder = tmp_path_factory.mktemp("checkpoints")
    older, newer = checkpoint.all_in(whole.checkpoints)
    for path in (older, newer):
        shutil.copytree(path, folder / path.name)
    state = checkpoint.read_state(newer)
    model = load_model(newer, device=torch.device("cpu"), dtype=torch.float32)
    (folder / newer.name / "model.safetensors").unlink()
    (folder / newer.name / checkpoint.STATE).unlink()
    model.save_pretrained(folder / newer.name, max_shard_size="40KB")
    checkpoint.write_manifest(folder / newer.name, state)
    assert len(list((folder / newer.name).glob("model-*.safetensors"))) > 1
    return folder


@pytest.mark.parametrize(
    "number",
    [pytest.param(n, marks=pytest.mark.short) if n < 12 else n for n in range(100)],
    ids=lambda number: f"damage-{number}",
)
def test_damage_is_found_out(tmp_path, checkpoints, count, number):
    chance = random.Random(number)
    damaged = shutil.copytree(checkpoints, tmp_path / "checkpoints")
    older, newer = checkpoint.all_in(damaged)
    kind = (flip, flip, truncate, delete)[number % 4]
    victim = chance.choice([path for path in sorted(newer.iterdir()) if path.stat().st_size])
    kind(victim, chance)
    left = {path.name: path.read_bytes() for path in newer.iterdir()}
    with count(f"checkpoint with a file damaged ({kind.__name__}), passed over"):
        said = []
        found, state = checkpoint.latest_valid(damaged, on_damage=said.append)
        assert found == older
        assert state["step"] == checkpoint.step_of(older)
        (line,) = said
        assert line.startswith(str(victim))
        assert {path.name: path.read_bytes() for path in newer.iterdir()} == left


def test_a_run_goes_on_from_the_checkpoint_before(tmp_path, whole, count):
    with count("run resumed from the checkpoint before a damaged one"):
        folder = tmp_path / "run"
        shutil.copytree(whole.folder, folder)
        truncate(folder / "checkpoints" / "step-000010" / "state.json", random.Random(0))
        process = start(folder)
        out, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
        assert "step-000010/state.json is damaged" in out
        assert "resumed after step 8" in out
        assert_same(finish(folder), whole)


@pytest.mark.short
def test_none_is_sound(tmp_path, whole, count):
    with count("run with nothing but damaged checkpoints, refused"):
        folder = tmp_path / "run"
        shutil.copytree(whole.folder, folder)
        for step in (8, 10):
            delete(folder / "checkpoints" / f"step-{step:06d}" / "model.safetensors", None)
        code, errors = ended(start(folder))
        assert code == 2
        assert errors == [
            f"palestra: {folder}/checkpoints: none of the checkpoints can be used (2); the oldest: "
            f"{folder}/checkpoints/step-000008/model.safetensors cannot be read: No such "
            "file or directory"
        ]
