"""Checkpoints from elsewhere: what lies in them or is named in them without belonging to them is
left alone.
"""

import hashlib
import json
import os

import pytest

from palestra.learner import checkpoint
from palestra.learner.checkpoint import BadCheckpoint
from palestra.tools.export import export_run

pytestmark = pytest.mark.hostile


@pytest.fixture
def step(tmp_path):
    """Of a run: a checkpoint of small files."""
    (tmp_path / "config.toml").write_text("[env]\nname = 'guess'\n")
    step = tmp_path / "checkpoints" / "step-000001"
    step.mkdir(parents=True)
    (step / "config.json").write_text("{}")
    (step / "optimizer.safetensors").write_text("private")
    checkpoint.write_manifest(step, {"step": 1})
    return step


@pytest.mark.short
def test_only_files_of_the_checkpoint_are_exported(tmp_path, step):
    secret = tmp_path / "id_rsa"
    secret.write_text("s3cret")
    (step / "stolen.json").symlink_to(secret)
    os.mkfifo(step / "pipe")
    export_run(tmp_path, tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["config.json"]


@pytest.mark.parametrize("name", ["../../id_rsa", "/etc/passwd", "..", ""])
def test_a_state_that_names_files_elsewhere_is_refused(step, name):
    state = json.loads((step / checkpoint.STATE).read_text())
    state["files"][name] = "1" * 64
    (step / checkpoint.STATE).write_text(json.dumps(state))
    sealed_anew(step, state)
    with pytest.raises(BadCheckpoint, match="is not the name of a file in this folder"):
        checkpoint.read_state(step)


@pytest.mark.parametrize("kind", ["fifo", "directory", "device"])
def test_a_state_that_names_something_else_than_files_is_refused(step, kind):
    (step / "config.json").unlink()
    make = {
        "fifo": os.mkfifo,
        "directory": os.mkdir,
        "device": lambda place: os.symlink("/dev/zero", place),
    }[kind]
    make(step / "config.json")
    with pytest.raises(
        BadCheckpoint,
        match="regular file|is a FIFO|is a directory|cannot be read|not the name of a file",
    ):
        checkpoint.read_state(step)


def sealed_anew(step, state):
    """As its author would: with a digest that is right."""
    state["files"][checkpoint.STATE] = checkpoint.NO_DIGEST
    content = json.dumps(state).encode()
    own = hashlib.sha256(content).hexdigest()
    (step / checkpoint.STATE).write_bytes(
        content.replace(checkpoint.NO_DIGEST.encode(), own.encode())
    )
