"""The sites' seed data, for writing tasks."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import Any

from palestra_web.sites.building import BASE_FILE, base
from palestra_web.sites.catalogue import SITES, SOURCE


def seed_rows(site: str, sql: str, *parameters: Any) -> list[dict[str, Any]]:
    """Query the site's seed database."""
    path = base(SITES[site]) / BASE_FILE
    if not path.is_file():
        raise FileNotFoundError(f"{site} has not been seeded: run `palestra web up --only {site}`")
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute(sql, parameters)]


def seed_users(site: str) -> dict[str, dict[str, str]]:
    """Accounts by login: name and password."""
    found: dict[str, dict[str, str]] = json.loads(
        (SOURCE / SITES[site].module / "users.json").read_text()
    )
    return found
