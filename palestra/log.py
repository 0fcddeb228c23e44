"""Where log messages go."""

from __future__ import annotations

import logging
from pathlib import Path


def log_to(path: Path) -> None:
    """All messages of ours into the run's log, for people and for the time after; the terminal is the display's."""
    root = logging.getLogger("palestra")
    root.setLevel(logging.INFO)
    root.propagate = False
    file = logging.FileHandler(path)
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root.addHandler(file)
