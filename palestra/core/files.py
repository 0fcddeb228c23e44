"""Files: written atomically, and read only if they are regular files of a limited size.

Errors name the file and the reason.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any, NoReturn

from palestra.core.errors import UserError
from palestra.core.untrusted import Unreadable, check_nesting

MOST_BYTES = 256 * 1024 * 1024
"""The largest file that is read into memory."""


class CannotWrite(UserError):
    """The disk is full, the folder is read-only, the quota is used up."""


class CannotRead(UserError):
    """The file is not what is expected: a directory, a pipe, too large, not JSON.

    The message is one line and names the file.
    """


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Around writing to `path`, a file or a folder: raises CannotWrite for errors of the system."""
    try:
        yield
    except Exception as error:
        reason = _reason(error)
        if reason is None:
            raise
        raise CannotWrite(f"{path}: cannot be written: {reason}") from error


def replace_file(
    path: Path, content: bytes, *, is_lasting: bool = False, makes_folder: bool = True
) -> None:
    """Write a file atomically. `is_lasting`: when this returns, the file survives a power failure.

    `makes_folder`: create the file's folder if it does not exist, but never the one above.
    """
    draft = path.with_name(f".{path.name}.draft")
    with writing(path):
        if makes_folder:
            path.parent.mkdir(exist_ok=True)
        try:
            delete(draft)
            # "x": fails if a link or a pipe was put there since.
            with draft.open("xb") as file:
                file.write(content)
            if is_lasting:
                sync(draft)
            draft.replace(path)
            if is_lasting:
                sync(path.parent)
        except OSError:
            delete(draft)  # on a full disk, half a file takes room that others need
            raise


def delete(path: Path) -> None:
    """Delete a file, a link, or a folder with its content. Does nothing if there is nothing."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file, or a link to one, for reading.

    Raises OSError if it is something else, and never waits for a pipe.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise OSError(0, f"is {kind_of(mode)}, not a file", str(path))
    return open(descriptor, "rb")


def read_regular(path: Path, *, most_bytes: int = MOST_BYTES) -> bytes:
    """The content of a regular file. Raises OSError if it is something else, or larger."""
    with open_regular(path) as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise OSError(0, f"is larger than {most_bytes:,} bytes", str(path))
    return content


def read_json(path: Path, *, most_bytes: int = MOST_BYTES) -> Any:
    """Untrusted JSON, from a regular file that is not too large or nested too deeply.

    Raises CannotRead.
    """
    try:
        content = read_regular(path, most_bytes=most_bytes)
    except OSError as error:
        raise CannotRead(f"{path} cannot be read: {error.strerror}") from error
    try:
        check_nesting(content)
        return json.loads(content, parse_constant=_no_number)
    except RecursionError as error:  # brackets that are never closed
        raise CannotRead(f"{path} is not JSON: nested too deeply") from error
    except (ValueError, Unreadable) as error:  # invalid UTF-8 is a ValueError, too
        raise CannotRead(f"{path} is not JSON: {error}") from error


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number in JSON")


def kind_of(mode: int) -> str:
    kinds = {stat.S_IFDIR: "a directory", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a device")


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _reason(error: Exception) -> str | None:
    """The system's message. Libraries written in Rust have it only in their error's text."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    found = re.search(r"([^:]+) \(os error \d+\)", str(error))
    return found[1].strip() if found else None
