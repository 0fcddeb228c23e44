"""Where log messages go."""

from __future__ import annotations

import logging
import os
from pathlib import Path


def log_to(path: Path) -> None:
    """All messages into the run's log; warnings to the terminal too."""
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    root = logging.getLogger("palestra")
    root.setLevel(logging.INFO)
    file = logging.FileHandler(path)
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root.addHandler(file)
