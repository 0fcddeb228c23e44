"""Reading what others may have written: regular files alone, no links, and bounded in size, depth
and number.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec

from palestra.core.errors import UserError

T = TypeVar("T")

MB = 1_000_000
CONFIG_BYTES = 256_000
"""A resolved configuration has some 5 KB, and the worst of this size takes a second to parse."""
RESULT_BYTES = 16 * MB
"""Of a JSON file. An evaluation with a thousand categories has 1 MB."""
LINE_BYTES = 32 * MB
"""Of a line of JSON.

An episode of a million tokens has 30 MB; decoding takes up to 16 times the size.
"""
DEPTH = 100
"""Of lists and objects in one another.

Decoders and encoders survive some 990, if nothing is on the stack.
"""
CONTAINERS = 1_000_000
"""Lists and objects in one text: `[],` is three bytes in a file and 72 in memory."""
KEY_PARTS = 32
"""Of a dotted key in TOML. Python's parser takes time and memory with the square of them."""
NAMES = 100_000
"""Files in a folder: one for each step and evaluation."""

KINDS = {
    stat.S_IFREG: "a file",
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
# Windows has neither links to speak of nor pipes that block: there these flags are missing.
SAFELY = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))
HAS_FOLDERS = os.open in os.supports_dir_fd


class Unreadable(UserError):
    """One line: why something from outside is not read."""


# files


def open_file(top: Path, name: str) -> BinaryIO:
    """The file `name` ("eval/step-000004.json") in the folder `top`, which the user named and may
    be a link.

    Below `top` no link is followed. Raises FileNotFoundError where there is nothing, and Unreadable
    where there is something else than a regular file. Never waits for one.
    """
    *folders, last = _parts(name)
    try:
        folder = _open_folder(top, folders)
    except NotADirectoryError as error:
        raise Unreadable(_reason(error)) from error
    try:
        _expect(folder, last, stat.S_IFREG)
        descriptor = os.open(*_at(folder, last), os.O_RDONLY | SAFELY, **_within(folder))
        try:
            # Again, on the open file: it may have been replaced since the first check.
            _check(os.fstat(descriptor).st_mode, stat.S_IFREG)
        except Unreadable:
            os.close(descriptor)
            raise
        return os.fdopen(descriptor, "rb")
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Unreadable(_reason(error)) from error
    finally:
        _close(folder)


def read_file(top: Path, name: str, most: int) -> bytes:
    """All of it. Raises as `open_file`, and Unreadable where it has more than `most` bytes."""
    with open_file(top, name) as file:
        try:
            text = file.read(most + 1)
        except OSError as error:
            raise Unreadable(_reason(error)) from error
    if len(text) > most:
        raise Unreadable(f"expected at most {size_text(most)}; the file is not read")
    return text


def lines(file: BinaryIO) -> Iterator[bytes]:
    """With their ends.

    Raises Unreadable at a line that is too long: what comes after it is not read either.
    """
    try:
        while line := file.readline(LINE_BYTES + 1):
            if len(line) > LINE_BYTES:
                raise Unreadable(
                    f"a line has more than {size_text(LINE_BYTES)}; nothing is read from there on"
                )
            yield line
    except OSError as error:
        raise Unreadable(_reason(error)) from error


def names(top: Path, folder: str, suffix: str) -> list[str]:
    """What `folder` in `top` holds that ends with `suffix`, of whatever kind, sorted; none where
    there is no such folder.

    Hidden ones are left out. Raises Unreadable where it is no folder.
    """
    try:
        descriptor = _open_folder(top, _parts(folder))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise Unreadable(_reason(error)) from error
    found = []
    try:
        with os.scandir(descriptor) as entries:
            for entry in entries:
                if entry.name.endswith(suffix) and not entry.name.startswith("."):
                    found.append(entry.name)
                if len(found) > NAMES:
                    raise Unreadable(
                        f"expected at most {NAMES:,} files in the folder; none of them is read"
                    )
    except OSError as error:
        raise Unreadable(_reason(error)) from error
    finally:
        _close(descriptor)
    return sorted(found)


def trouble(top: Path, name: str, *, folder: bool = False) -> str | None:
    """Why this would not be read as a file (or a folder), by its kind; None where nothing speaks
    against it.
    """
    try:
        if folder:
            _close(_open_folder(top, _parts(name)))
        else:
            open_file(top, name).close()
    except FileNotFoundError:
        return None
    except OSError as error:
        return _reason(error)
    except Unreadable as error:
        return str(error)
    return None


def _parts(name: str) -> list[str]:
    parts = name.split("/")
    if any(part in ("", ".", "..") or "\0" in part or os.sep in part for part in parts):
        raise Unreadable("the name leads out of the folder")
    return parts


def _open_folder(top: Path, inside: list[str]) -> int | str:
    """A descriptor; a path where the system has none for folders. Raises OSError and Unreadable."""
    if not HAS_FOLDERS:
        place = str(top)
        for part in inside:
            _expect(place, part, stat.S_IFDIR)
            place = os.path.join(place, part)
        return place
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    folder = os.open(top, flags)
    for part in inside:
        try:
            _expect(folder, part, stat.S_IFDIR)
            inner = os.open(part, flags | os.O_NOFOLLOW, dir_fd=folder)
        finally:
            os.close(folder)
        folder = inner
    return folder


def _expect(folder: int | str, name: str, kind: int) -> None:
    """Before anything is opened: to open a device may already do something."""
    _check(os.stat(*_at(folder, name), **_within(folder), follow_symlinks=False).st_mode, kind)


def _check(mode: int, kind: int) -> None:
    if stat.S_IFMT(mode) != kind:
        expected = "regular file" if kind == stat.S_IFREG else "folder"
        raise Unreadable(
            f"expected a {expected}, got {KINDS.get(stat.S_IFMT(mode), 'something else')}"
        )


def _at(folder: int | str, name: str) -> tuple[str]:
    return (name if isinstance(folder, int) else os.path.join(folder, name),)


def _within(folder: int | str) -> dict[str, Any]:
    return {"dir_fd": folder} if isinstance(folder, int) else {}


def _close(folder: int | str) -> None:
    if isinstance(folder, int):
        os.close(folder)


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


# JSON and TOML


def decode(text: bytes, decoder: msgspec.json.Decoder[T], *, is_flat: bool = False) -> T:
    """JSON from anywhere. NaN and Infinity, numbers out of range, broken UTF-8 and lone surrogates
    are refused.

    Of keys that stand twice the last one counts, as in a browser. `is_flat`: nothing in the
    decoder's type is of any depth, so that the decoder itself refuses or passes over whatever is
    nested. Raises Unreadable.
    """
    if not is_flat:  # takes longer than such a decoder
        check_nesting(text)
    try:
        return decoder.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unreadable(str(error)) from error
    except RecursionError as error:  # brackets that are never closed
        raise Unreadable("nested too deeply") from error


def check_nesting(text: bytes) -> None:
    """Raises Unreadable where JSON is nested too deeply or has too many parts.

    Cheap: no loop goes over single bytes.
    """
    if text.count(b"[") + text.count(b"{") <= DEPTH:
        return
    brackets = _brackets(text)
    if len(brackets) > 2 * CONTAINERS:
        raise Unreadable(f"expected at most {CONTAINERS:,} lists and objects")
    depth = 0
    while brackets:
        fewer = brackets.replace(b"[]", b"")  # the innermost ones, all over the text
        if len(fewer) == len(brackets):
            return  # they do not match, which the decoder says better
        brackets, depth = fewer, depth + 1
        if depth > DEPTH:
            raise Unreadable("nested too deeply")


_NO_BRACKETS = bytes(set(range(256)) - set(b'"[]{}'))
_ONE_KIND = bytes.maketrans(b"{}", b"[]")
_CHUNK = 1 << 20


def _brackets(text: bytes) -> bytes:
    """The brackets of a JSON text, without those in strings, and all as square ones."""
    marks = text.replace(b"\\\\", b"").replace(b'\\"', b"").translate(_ONE_KIND, _NO_BRACKETS)
    found, inside = [], 0
    # In chunks: a text of quotes alone would become a list of millions.
    for start in range(0, len(marks), _CHUNK):
        between_quotes = marks[start : start + _CHUNK].split(b'"')
        found.append(b"".join(between_quotes[inside::2]))
        inside ^= (len(between_quotes) - 1) & 1
    return b"".join(found)


_STRINGS = re.compile(
    r'"""(?:\\.|[^\\])*?(?:"""|\\?\Z)'
    r"|'''.*?(?:'''|\Z)"
    r'|"(?:\\.|[^"\\\n])*+(?:"|$|\\\Z)'
    r"|'[^'\n]*(?:'|$)"
    r"|#[^\n]*",
    re.DOTALL | re.MULTILINE,
)
"""And comments. Where one begins it always matches, so that the time is linear in the text."""


def read_toml(text: str) -> dict[str, Any]:
    """Tables of TOML, of which JSON can be made. Raises Unreadable."""
    keys = re.split(r"[=,\[\]{}\n]", _STRINGS.sub("s", text))
    if max(key.count(".") for key in keys) >= KEY_PARTS:
        raise Unreadable(f"not TOML: a key has more than {KEY_PARTS} parts")
    try:
        tree = tomllib.loads(text)
    except RecursionError as error:
        raise Unreadable("not TOML: nested too deeply") from error
    except ValueError as error:  # also an integer of too many digits
        raise Unreadable(f"not TOML: {error}") from error
    _check_values(tree)
    return tree


def _check_values(tree: dict[str, Any]) -> None:
    """Depth, and integers: TOML's have 64 bits, but Python's parser takes any."""
    level: list[Any] = [tree]
    for _ in range(DEPTH):
        inner: list[Any] = []
        for value in level:
            if isinstance(value, dict | list):
                inner += value.values() if isinstance(value, dict) else value
            elif isinstance(value, int) and not -(2**63) <= value < 2**63:
                raise Unreadable("not TOML: an integer has more than 64 bits")
        level = inner
        if not level:
            return
    raise Unreadable("not TOML: nested too deeply")


# texts


def valid_utf8(text: str) -> str:
    """A name may have bytes in it that are no text."""
    return text.encode(errors="replace").decode()


def terminal_safe(text: str) -> str:
    """For a terminal: with a mark in place of what it would obey, be it an escape, a new line or a
    change of direction.
    """
    return re.sub(
        r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]",
        "\N{REPLACEMENT CHARACTER}",
        text,
    )


def size_text(count: int) -> str:
    return f"{count // MB} MB" if count >= MB else f"{count // 1000} KB"
