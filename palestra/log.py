"""Where log messages go."""

from __future__ import annotations

import logging
from pathlib import Path

from palestra.files import writing


class _Quiet(logging.FileHandler):
    """A message that cannot be written, on a full disk say, is lost; it does not become an error of its own."""

    def handleError(self, record: logging.LogRecord) -> None:
        pass


def log_to(path: Path) -> None:
    """All messages of ours into the run's log, for people and for the time after; the terminal is the display's."""
    root = logging.getLogger("palestra")
    root.setLevel(logging.INFO)
    root.propagate = False
    with writing(path):
        file = _Quiet(path)
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root.addHandler(file)
