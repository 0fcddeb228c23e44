"""Where log messages go."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from palestra.core.files import writing


class _Quiet(logging.FileHandler):
    """A message that cannot be written, on a full disk say, is lost; it does not become an error of
    its own.
    """

    def handleError(self, record: logging.LogRecord) -> None:
        pass


def _refuse_other_kinds(path: Path) -> None:
    """A pipe would be waited for, and a link may lead to a file that is somebody else's."""
    if os.path.lexists(path) and not stat.S_ISREG(path.lstat().st_mode):
        raise OSError(0, "it is there already and not a regular file; delete it")


@contextmanager
def logging_to(path: Path) -> Iterator[None]:
    """All messages of ours go into the run's log meanwhile; the terminal is the display's."""
    root = logging.getLogger("palestra")
    with writing(path):
        _refuse_other_kinds(path)
        file = _Quiet(path)
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    level, propagate = root.level, root.propagate
    root.setLevel(logging.INFO)
    root.propagate = False
    root.addHandler(file)
    try:
        yield
    finally:
        root.removeHandler(file)
        file.close()
        root.setLevel(level)
        root.propagate = propagate
