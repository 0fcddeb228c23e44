"""Writing files: whole or not at all, and where it cannot be done, one line that says which file and why."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class CannotWrite(Exception):
    """The disk is full, the folder is read-only, the quota is used up."""


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Around what writes to `path`, be it a file or a folder of them."""
    try:
        yield
    except Exception as error:
        reason = _reason(error)
        if reason is None:
            raise
        raise CannotWrite(f"{path}: cannot be written: {reason}") from error


def replace_file(path: Path, content: bytes, *, is_lasting: bool = False) -> None:
    """Write a file whole or not at all. `is_lasting`: when this returns, it is there even if the machine loses power."""
    draft = path.with_name(f".{path.name}.draft")
    with writing(path):
        path.parent.mkdir(exist_ok=True)
        try:
            draft.unlink(missing_ok=True)
            with draft.open("xb") as file:  # never through a link that somebody has put there
                file.write(content)
            if is_lasting:
                sync(draft)
            draft.replace(path)
            if is_lasting:
                sync(path.parent)
        except OSError:
            draft.unlink(missing_ok=True)  # where the disk is full, half a file is in the way of others
            raise


def sync(path: Path) -> None:
    """See to it that a file, or the names in a folder, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _reason(error: Exception) -> str | None:
    """What the system said. Libraries that are written in Rust say it only in their text."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    found = re.search(r"([^:]+) \(os error \d+\)", str(error))
    return found[1].strip() if found else None
