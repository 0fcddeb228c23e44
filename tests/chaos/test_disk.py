"""A disk that is full, a limit on files, a folder that cannot be written to: one line says so, and
what was saved stays.
"""

import os
import resource
import shutil
import subprocess

import pytest

from palestra.learner import checkpoint
from tests.chaos.trainer import assert_same, ended, finish, start

pytestmark = pytest.mark.chaos


@pytest.fixture
def disk(tmp_path):
    """A small one of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", folder], capture_output=True, check=False
    ).returncode:
        pytest.skip("may not mount a file system here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def stopped_after_two_steps(folder):
    assert (
        ended(
            start(folder, points=["SIGINT:call:palestra.training.data_sources:collect_groups:3"])
        )[0]
        == 130
    )


def fill(disk, *, but):
    """Leave so many bytes."""
    stat = os.statvfs(disk)
    (disk / "filler").write_bytes(bytes(stat.f_bavail * stat.f_frsize - but))


@pytest.mark.parametrize(
    ("but", "what"),
    [
        (0, "metrics.jsonl"),
        (30_000, "trajectories/step-000003.jsonl"),
        pytest.param(250_000, "checkpoints/step-000004", marks=pytest.mark.short),
    ],
)
def test_a_full_disk(disk, whole, count, but, what):
    with count("disk full: one line, what was saved is intact, then resumed"):
        folder = disk / "run"
        stopped_after_two_steps(folder)
        fill(disk, but=but)
        code, errors = ended(start(folder))
        assert (code, errors) == (
            2,
            [f"palestra: {folder}/{what}: cannot be written: No space left on device"],
        )
        assert [
            path.name for path in (folder / "checkpoints").iterdir() if path.name.startswith(".")
        ] == []
        assert checkpoint.step_of(checkpoint.latest_valid(folder / "checkpoints")[0]) == 2
        (disk / "filler").unlink()
        assert_same(finish(folder), whole)


def test_a_read_only_disk(disk, whole, count):
    with count("read-only disk: one line, what was saved is intact, then resumed"):
        folder = disk / "run"
        stopped_after_two_steps(folder)
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        code, errors = ended(start(folder))
        assert (code, errors) == (
            2,
            [f"palestra: {folder}/log.txt: cannot be written: Read-only file system"],
        )
        subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
        assert_same(finish(folder), whole)


@pytest.mark.short
def test_a_limit_on_the_size_of_files(tmp_path, whole, count):
    with count("file too large: one line, what was saved is intact, then resumed"):
        folder = tmp_path / "run"
        shutil.copytree(whole.folder, folder)
        shutil.rmtree(folder / "checkpoints" / "step-000010")
        limit = (
            folder / "checkpoints" / "step-000008" / "optimizer.safetensors"
        ).stat().st_size - 1
        code, errors = ended(
            start(folder, prepare=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
        )
        assert (code, errors) == (
            2,
            [f"palestra: {folder}/checkpoints/step-000010: cannot be written: File too large"],
        )
        assert [path.name for path in (folder / "checkpoints").iterdir()] == ["step-000008"]
        assert_same(finish(folder), whole)
