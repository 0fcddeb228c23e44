"""Which episode a request belongs to: each has a database file of its own for each of its sites."""

from __future__ import annotations

import os
import re
from contextvars import ContextVar
from pathlib import Path

VISITOR = "visitor"
"""The instance for a person who views the sites with a browser of their own."""
ID = re.compile(r"[0-9a-f]{16}|visitor")

current: ContextVar[Path] = ContextVar("current")
"""The database file of the request that is being answered."""


def file_of(instance: str) -> Path | None:
    """The instance's file for this site, or None if there is no such instance."""
    if not ID.fullmatch(instance):
        return None
    path = Path(os.environ["SITE_INSTANCES"], instance, os.environ["SITE_NAME"] + ".sqlite3")
    return path if path.is_file() else None
