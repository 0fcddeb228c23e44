"""The queue of played groups: what is put is there whole, and what is no longer good goes."""

import pytest

from palestra.core.files import CannotWrite
from palestra.core.types import Group
from palestra.runs.group_queue import Finished, GroupQueue
from tests.support.batches import finished


def test_what_is_put_is_read_again(tmp_path):
    queue = GroupQueue(tmp_path / "queue")
    assert queue.read() == {}
    queue.put(3, 0, finished(1, 2))
    queue.put(4, 11, finished(2, 3, 2))
    assert queue.read() == {(3, 0): finished(1, 2), (4, 11): finished(2, 3, 2)}
    assert [(entry.step, entry.number, entry.version) for entry in queue.entries()] == [
        (3, 0, 2),
        (4, 11, 3),
    ]
    assert finished(2, 3, 2).versions == {2, 3}


def test_a_group_without_a_token_has_no_version(tmp_path):
    nothing = Finished(Group(finished(1, 1).group.task, []), [])
    queue = GroupQueue(tmp_path / "queue")
    queue.put(3, 0, nothing)
    assert [entry.version for entry in queue.entries()] == [-1]
    assert queue.read() == {(3, 0): nothing}


def test_back_to_a_step(tmp_path):
    """What was learned from goes, and what weights have played that are no more."""
    queue = GroupQueue(tmp_path / "queue")
    for step, version in [(5, 3), (6, 4), (6, 5), (7, 5), (7, 6)]:
        queue.put(step, version, finished(3, version))
    (queue.folder / ".step-000008-group-0000-version-000005.json.draft").write_bytes(b'{"gro')
    queue.rewind(5)
    assert [(entry.step, entry.version) for entry in queue.entries()] == [(6, 4), (6, 5), (7, 5)]
    assert len(list(queue.folder.iterdir())) == 3


def test_a_damaged_file_is_passed_over(tmp_path, caplog):
    queue = GroupQueue(tmp_path / "queue")
    queue.put(3, 0, finished(1, 2))
    queue.put(3, 1, finished(1, 2))
    path = next(iter(queue.entries().values()))
    path.write_bytes(path.read_bytes()[:-9])
    assert list(queue.read()) == [(3, 1)]
    assert str(path) in caplog.text


def test_where_nothing_can_be_written_the_error_says_which_file_and_why(tmp_path):
    (tmp_path / "queue").write_text("in the way")
    with pytest.raises(
        CannotWrite,
        match=r"step-000003-group-0000-version-000002.json: cannot be written: File exists",
    ):
        GroupQueue(tmp_path / "queue").put(3, 0, finished(1, 2))
