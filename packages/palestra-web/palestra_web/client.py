"""An episode's own copy of the self-hosted sites: open, query, compare with the seed, and close."""

from __future__ import annotations

import http.client
import json
import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from palestra_web.sites.catalogue import cache_folder

NOT_STATE = re.compile(r"(.*_session|analytics_.*|.*_log|.*accesslog|sqlite_.*)")
"""Tables that change even when a page is only viewed."""
NOT_STATE_COLUMNS = {"last_login", "last_seen", "cookie", "cexpire"}


class SitesDown(RuntimeError):
    """No supervisor answers."""


@dataclass(frozen=True, slots=True)
class Change:
    """Rows of one table that are not in the seed any more, and rows that are new.

    A changed row is in both.
    """

    table: str
    removed: list[dict[str, Any]]
    added: list[dict[str, Any]]


class Sites:
    """The sites that `palestra web up` holds on this machine."""

    def __init__(self, control: str, token: str, sites: dict[str, dict[str, Any]]) -> None:
        self.control = control
        self.token = token
        self.sites = sites

    @classmethod
    def find(cls) -> Sites:
        path = cache_folder() / "up.json"
        try:
            up = json.loads(path.read_text())
        except FileNotFoundError:
            raise SitesDown("the sites are not up: run `palestra web up`") from None
        return cls(up["control"], up["token"], up["sites"])

    def open(self, sites: Sequence[str] = (), *, seed: str = "") -> Instance:
        """A fresh copy of these sites (default: all), byte-equal to what they were seeded with.

        `seed`: for the sites' random choices, such as the ids of new tickets.
        """
        made = self.ask("POST", "/instances", {"sites": list(sites), "seed": seed})
        return Instance(self, made["id"], made["files"], made["base"])

    def close(self, instance: str) -> None:
        self.ask("DELETE", f"/instances/{instance}")

    def ask(self, method: str, path: str, content: dict[str, Any] | None = None) -> Any:
        """A request to the supervisor."""
        address = urlsplit(self.control)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        with closing(
            http.client.HTTPConnection(address.hostname or "", address.port, timeout=30)
        ) as connection:
            try:
                connection.request(
                    method, path, None if content is None else json.dumps(content), headers
                )
                answer = connection.getresponse()
                said = json.loads(answer.read())
            except OSError as error:
                raise SitesDown(
                    f"the sites do not answer ({error}): run `palestra web up`"
                ) from None
        if answer.status != 200:
            raise SitesDown(f"the sites: {said['error']}")
        return said


@dataclass(frozen=True, slots=True)
class Instance:
    sites: Sites
    id: str
    """What the header `X-Instance` must say."""
    files: dict[str, str]
    base: dict[str, str]

    def login(self, site: str, user: str) -> list[dict[str, str]]:
        """A session of `user`, as cookies for Playwright."""
        made = self.sites.ask("POST", f"/instances/{self.id}/login", {"site": site, "user": user})
        return [
            {"name": name, "value": value, "domain": made["host"], "path": "/"}
            for name, value in made["cookies"].items()
        ]

    def query(self, site: str, sql: str, parameters: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """Rows of the instance's database, opened read-only."""
        with closing(_open(self.files[site])) as connection:
            return [dict(row) for row in connection.execute(sql, parameters)]

    def changes(self, site: str) -> list[Change]:
        """The differences from the seed, without those that viewing a page causes."""
        with closing(_open(self.files[site])) as connection:
            connection.execute("ATTACH ? AS seed", (f"file:{self.base[site]}?mode=ro",))
            rows = connection.execute(
                "SELECT name FROM main.sqlite_master WHERE type = 'table' ORDER BY name"
            ).fetchall()
            tables = [name for (name,) in rows if not NOT_STATE.fullmatch(name)]
            found = [_compare(connection, table) for table in tables]
        return [change for change in found if change.removed or change.added]

    def close(self) -> None:
        self.sites.close(self.id)


def _open(path: str) -> sqlite3.Connection:
    if not Path(path).is_file():
        raise SitesDown(f"the instance's file is gone: {path}")
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=20)
    connection.row_factory = sqlite3.Row
    return connection


def _compare(connection: sqlite3.Connection, table: str) -> Change:
    names = [row["name"] for row in connection.execute(f'PRAGMA main.table_info("{table}")')]
    columns = ", ".join(f'"{name}"' for name in names if name not in NOT_STATE_COLUMNS)
    ours, seeds = f'SELECT {columns} FROM main."{table}"', f'SELECT {columns} FROM seed."{table}"'  # noqa: S608
    removed, added = (
        connection.execute(f"{one} EXCEPT {other}").fetchall()
        for one, other in ((seeds, ours), (ours, seeds))
    )
    return Change(table, [dict(row) for row in removed], [dict(row) for row in added])
