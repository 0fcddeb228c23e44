"""The reader of what comes from outside against slow oracles, and against what is no file."""

import os
import socket

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.core import untrusted
from palestra.core.untrusted import (
    CONTAINERS,
    DEPTH,
    KEY_PARTS,
    Unreadable,
    check_nesting,
    decode,
    read_toml,
    terminal_safe,
)

ANYTHING = msgspec.json.Decoder()

texts = st.text(alphabet=st.sampled_from('[]{}"\\\n,:aß火'), max_size=8)
values = st.recursive(
    st.none() | st.integers(-9, 9) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=40,
)


def depth_of(value):
    """Of lists and objects in one another, the slow way."""
    if not isinstance(value, list | dict):
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max(map(depth_of, inner), default=0)


def count_of(value):
    if not isinstance(value, list | dict):
        return 0
    return 1 + sum(map(count_of, value.values() if isinstance(value, dict) else value))


@pytest.mark.parametrize("piece", [1, 5, 1 << 20])
@given(value=values, deepest=st.integers(0, 6))
def test_nesting_is_what_a_walk_over_the_value_finds(piece, value, deepest):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(untrusted, "_CHUNK", piece)
        patch.setattr(untrusted, "DEPTH", deepest)
        text = msgspec.json.encode(value)
        assert len(untrusted._brackets(text)) == 2 * count_of(value)
        if depth_of(value) > deepest:
            with pytest.raises(Unreadable, match="nested too deeply"):
                check_nesting(text)
        else:
            check_nesting(text)


def test_what_is_just_allowed_and_what_is_not():
    assert depth_of(decode(b"[" * DEPTH + b"]" * DEPTH, ANYTHING)) == DEPTH
    with pytest.raises(Unreadable, match="nested too deeply"):
        decode(b"[" * (DEPTH + 1) + b"]" * (DEPTH + 1), ANYTHING)
    check_nesting(b"[" + b"[]," * (CONTAINERS - 2) + b"[]]")
    with pytest.raises(Unreadable, match="lists and objects"):
        check_nesting(b"[" + b"[]," * CONTAINERS + b"[]]")
    assert read_toml(".".join("a" * KEY_PARTS) + " = 1")
    with pytest.raises(Unreadable, match="more than 32 parts"):
        read_toml(".".join("a" * (KEY_PARTS + 1)) + " = 1")


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"nonsense",
        b"[" * 5000,
        b"NaN",
        b"[Infinity]",
        b"1e999",
        b"9" * 5000,
        b'"\xff"',
        b'"\\ud800"',
        b"\xef\xbb\xbf{}",
        b"[}" * 5000,
    ],
)
def test_json_that_is_none(text):
    with pytest.raises(Unreadable):
        decode(text, ANYTHING)


def test_the_last_of_two_keys_counts():
    assert decode(b'{"a": 1, "a": [2], "b": "\\u0000"}', ANYTHING) == {"a": [2], "b": "\0"}


@pytest.mark.parametrize(
    "text",
    [
        "a = 1979-05-27\nb = nan\nc = 0.1",
        'a = "' + "." * 100 + '"',
        "a = '" + "." * 100 + "'",
        'a = """\n' + "." * 100 + '\\"""' + "." * 100 + '"""',
        "a = '''" + "." * 100 + "'''",
        "# " + "." * 100 + "\na = 1",
        "a = [" + "0.5, " * 100 + "]",
        '"' + "." * 100 + '" = 1',
    ],
)
def test_dots_are_counted_in_keys_alone(text):
    assert read_toml(text)


@pytest.mark.parametrize(
    "text",
    [
        *("a = " + "9" * 5000, "a = 0x" + "f" * 17, f"a = {2**63}"),
        *("a = [[" + "[" * 200 + "]" * 202, "a = " + "[" * 5000),
        *(
            "[" + ".".join("a" * 100_000) + "]",
            "a = {" + ".".join("a" * 100_000) + " = 1}",
            " . ".join(['"a"'] * 100_000) + " = 1",
        ),
        *("a", "\0"),
    ],
)
def test_toml_that_is_none(text):
    with pytest.raises(Unreadable, match="not TOML"):
        read_toml(text)


def test_64_bits_are_read():
    assert read_toml(f"a = {2**63 - 1}\nb = {-(2**63)}") == {"a": 2**63 - 1, "b": -(2**63)}


# files


@pytest.fixture
def top(tmp_path):
    """A folder that is reached by a link, with a file in a folder in it."""
    (tmp_path / "real" / "inner").mkdir(parents=True)
    (tmp_path / "real" / "inner" / "file").write_bytes(b"12345")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").write_bytes(b"secret")
    (tmp_path / "top").symlink_to("real")
    return tmp_path / "top"


@pytest.mark.parametrize("has_folders", [True, False], ids=["by descriptors", "by paths"])
def test_a_file_is_read_up_to_its_bound(top, monkeypatch, has_folders):
    monkeypatch.setattr(untrusted, "HAS_FOLDERS", has_folders)
    assert untrusted.read_file(top, "inner/file", 5) == b"12345"
    assert untrusted.names(top, "inner", "") == ["file"]
    assert untrusted.names(top, "nowhere", "") == []
    with pytest.raises(Unreadable, match="at most"):
        untrusted.read_file(top, "inner/file", 4)
    for name in ("nowhere", "nowhere/file", "inner/nowhere"):
        with pytest.raises(FileNotFoundError):
            untrusted.read_file(top, name, 5)


@pytest.mark.parametrize("has_folders", [True, False], ids=["by descriptors", "by paths"])
@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "/etc/passwd",
        "../elsewhere/file",
        "inner/../inner/file",
        "inner//file",
        "a\0b",
    ],
)
def test_a_name_leads_nowhere_else(top, monkeypatch, has_folders, name):
    monkeypatch.setattr(untrusted, "HAS_FOLDERS", has_folders)
    with pytest.raises(Unreadable, match="leads out of the folder"):
        untrusted.open_file(top, name)


@pytest.mark.parametrize("has_folders", [True, False], ids=["by descriptors", "by paths"])
def test_neither_links_nor_pipes_nor_folders_are_files(top, monkeypatch, has_folders):
    monkeypatch.setattr(untrusted, "HAS_FOLDERS", has_folders)
    (top / "file").symlink_to("inner/file")
    (top / "folder").symlink_to("../elsewhere")
    os.mkfifo(top / "pipe")
    with socket.socket(socket.AF_UNIX) as listening, pytest.MonkeyPatch.context() as patch:
        patch.chdir(top)  # addresses of sockets are short
        listening.bind("socket")
    for name, kind in {
        "file": "a link",
        "folder/file": "a link",
        "pipe": "a named pipe",
        "socket": "a socket",
        "inner": "a folder",
    }.items():
        with pytest.raises(Unreadable, match=f"got {kind}"):
            untrusted.read_file(top, name, 100)
    with pytest.raises(Unreadable, match="got a link"):
        untrusted.names(top, "folder", "")
    with pytest.raises(Unreadable, match="got a file"):
        untrusted.names(top / "inner", "file", "")
    assert "got a link" in untrusted.trouble(top, "folder", folder=True)
    assert untrusted.trouble(top, "inner", folder=True) is None


def test_devices_are_not_opened():
    with pytest.raises(Unreadable, match="got a device"):
        untrusted.open_file(untrusted.Path("/dev"), "zero")


def test_descriptors_are_given_back(top):
    (top / "file").symlink_to("inner/file")
    before = len(os.listdir("/proc/self/fd"))
    for name in ("inner/file", "file", "inner", "nowhere", "inner/file/x", "nowhere/x"):
        for _ in range(20):
            try:
                untrusted.read_file(top, name, 100)
            except (FileNotFoundError, Unreadable):
                untrusted.trouble(top, name)
                untrusted.trouble(top, name, folder=True)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_line_that_is_too_long_ends_the_reading(tmp_path, monkeypatch):
    monkeypatch.setattr(untrusted, "LINE_BYTES", 8)
    (tmp_path / "file").write_bytes(b"1234567\n" + b"12345678\n" + b"1\n")
    found = []
    with (
        untrusted.open_file(tmp_path, "file") as file,
        pytest.raises(Unreadable, match="a line has more"),
    ):
        found += [found.append(line) for line in untrusted.lines(file)]
    assert found == [b"1234567\n"]


def test_nothing_that_is_shown_moves_the_cursor():
    assert (
        terminal_safe("a\x1b[31m\n\u202e\udc80\x9b\u2028z")
        == "a\ufffd[31m\ufffd\ufffd\ufffd\ufffd\ufffdz"
    )
    assert terminal_safe("ß 火 🦊 é") == "ß 火 🦊 é"
