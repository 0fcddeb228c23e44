"""What a folder of checkpoints is worth after a crash at any point, and that no damage goes
unnoticed.
"""

import json

import pytest

from palestra.learner import checkpoint


def write(folder, step=3):
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"weights")
    checkpoint.write_manifest(folder, {"step": step, "success": {"echo": [0.5]}})
    return folder


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_every_bit_of_the_state_counts(tmp_path):
    folder = write(tmp_path / "step-000003")
    path = folder / checkpoint.STATE
    sound = path.read_bytes()
    assert checkpoint.read_state(folder) == {"step": 3, "success": {"echo": [0.5]}}
    for place in range(len(sound)):
        for bit in range(8):
            damaged = bytearray(sound)
            damaged[place] ^= 1 << bit
            path.write_bytes(damaged)
            with pytest.raises(checkpoint.BadCheckpoint, match="step-000003"):
                checkpoint.read_state(folder)


def test_every_length_of_the_state_counts(tmp_path):
    folder = write(tmp_path / "step-000003")
    path = folder / checkpoint.STATE
    sound = path.read_bytes()
    for length in range(len(sound)):
        path.write_bytes(sound[:length])
        with pytest.raises(checkpoint.BadCheckpoint, match=f"{path} is damaged"):
            checkpoint.read_state(folder)


def test_a_checkpoint_from_before_the_state_had_a_digest_can_be_read(tmp_path):
    folder = write(tmp_path / "step-000003")
    state = json.loads((folder / checkpoint.STATE).read_text())
    del state["files"][checkpoint.STATE]
    (folder / checkpoint.STATE).write_text(json.dumps(state))
    assert checkpoint.read_state(folder)["step"] == 3


def test_one_that_was_about_to_be_replaced_has_its_name_again(tmp_path):
    write(tmp_path / ".step-000003.replaced", step=3)
    write(tmp_path / ".step-000003.draft")
    checkpoint.tidy(tmp_path)
    assert names(tmp_path) == ["step-000003"]
    assert checkpoint.latest_valid(tmp_path)[1]["step"] == 3


def test_one_that_was_replaced_goes(tmp_path):
    write(tmp_path / ".step-000003.replaced", step=1)
    write(tmp_path / "step-000003", step=3)
    write(tmp_path / ".step-000002.doomed").joinpath("model.safetensors").unlink()
    write(tmp_path / ".step-000004.draft")
    checkpoint.tidy(tmp_path)
    assert names(tmp_path) == ["step-000003"]
    assert checkpoint.latest_valid(tmp_path)[1]["step"] == 3


def test_a_folder_that_is_not_there_is_tidy(tmp_path):
    checkpoint.tidy(tmp_path / "checkpoints")
    assert checkpoint.latest_valid(tmp_path / "checkpoints") is None


def test_the_newest_is_that_of_the_highest_step(tmp_path):
    for step in (999_999, 1_000_000):
        write(tmp_path / f"step-{step:06d}", step=step)
    assert checkpoint.latest_valid(tmp_path)[1]["step"] == 1_000_000
