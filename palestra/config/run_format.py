"""The format of run folders. A run's `config.toml` begins with it."""

from __future__ import annotations

import re

RUN_FORMAT = 2
"""1: before settings, metrics and files of the run folder were renamed."""


def format_line() -> str:
    """The first line of a run's configuration."""
    return f"# palestra run, format {RUN_FORMAT}\n"


def format_error(text: str) -> str:
    """Why a run with this configuration cannot be read; empty where it can, and for a recipe."""
    found = re.match(r"# palestra run, format (\d{1,9})\b", text)
    if found is None or int(found[1]) == RUN_FORMAT:
        return ""
    return (
        f"a run folder of format {found[1]}, and this version reads format {RUN_FORMAT}; "
        "use the version that wrote it, or train again"
    )
