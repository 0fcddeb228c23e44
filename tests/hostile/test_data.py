"""Stored conversations that mean harm, or do not fit: one line, and no more time than there is in
them.
"""

import json
import os
import time

import pytest

from palestra.agents.renderer import Renderer
from palestra.training import offline_data as data
from palestra.training.conversations import DataError

pytestmark = pytest.mark.hostile

LONG = {
    "messages": [
        {"role": "user", "content": "say red " * 100},
        {"role": "assistant", "content": "red"},
    ]
}
SHORT = {
    "messages": [{"role": "user", "content": "say red"}, {"role": "assistant", "content": "red"}]
}
HEAD = '{"format": 1, "id": '


@pytest.fixture
def renderer(words):
    return Renderer(words)


def lines(path, *items):
    path.write_text("".join(json.dumps(item) + "\n" for item in items))
    return path


@pytest.mark.short
def test_data_of_which_nothing_fits_is_refused_as_that(tmp_path, renderer):
    path = lines(tmp_path / "a.jsonl", LONG, LONG)
    with pytest.raises(DataError) as caught:
        data.read([path], renderer, context_tokens=50)
    assert (
        str(caught.value)
        == f"{path}: none of 2 conversations fits into agent.context_tokens = 50; expected "
        "shorter ones"
    )


def test_of_data_the_part_that_fits_is_read(tmp_path, renderer, caplog):
    paths = [lines(tmp_path / "a.jsonl", LONG, LONG), lines(tmp_path / "b.jsonl", LONG, SHORT)]
    assert len(data.read(paths, renderer, context_tokens=50)) == 1
    assert "dropped 2 of 2 conversations: longer than 50 tokens" in caplog.text
    assert "dropped 1 of 2 conversations" in caplog.text


@pytest.mark.short
@pytest.mark.parametrize(
    ("content", "because"),
    [
        ("[" * 100_000, "nested too deeply"),
        ('{"messages": ' + "[" * 100_000, "nested too deeply"),
        (HEAD + "[" * 100_000, "nested too deeply"),
        (b"\xff\xfe", "expected JSON"),
        ('{"messages": 1e999}', "expected JSON"),
        (
            '{"messages": [{"role": "user", "content": "\\ud800"}, {"role": "assistant", '
            '"content": "a"}]}',
            "expected JSON",
        ),
        ("7", "came int"),
        ("{}", "nothing in it"),
    ],
)
def test_what_cannot_be_read_is_one_line(tmp_path, renderer, content, because):
    path = tmp_path / "a.jsonl"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match=because) as caught:
        data.read([path], renderer, context_tokens=50)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["fifo", "directory", "device"])
def test_in_a_folder_only_regular_files_are_read(tmp_path, renderer, kind):
    path = tmp_path / "a.jsonl"
    {
        "fifo": os.mkfifo,
        "directory": os.mkdir,
        "device": lambda place: os.symlink("/dev/zero", place),
    }[kind](path)
    with pytest.raises(DataError, match="expected a regular file"):
        data.read([tmp_path], renderer, context_tokens=50)


def test_many_observations_in_a_row_take_no_quadratic_time(tmp_path, renderer):
    said = [{"role": "user", "content": "say red " * 8}] * 80_000
    path = lines(
        tmp_path / "a.jsonl", SHORT, {"messages": [*said, {"role": "assistant", "content": "red"}]}
    )
    began = time.process_time()
    assert len(data.read([path], renderer, context_tokens=50)) == 1
    assert time.process_time() - began < 10  # of 2; to join them one by one copies 200 GB
