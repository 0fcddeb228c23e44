"""A copy of the self-hosted sites for each episode."""

from __future__ import annotations

import json
from typing import Any

from palestra.envs.web.browser import Beginning, Reach
from palestra.envs.web.tasks import Evaluation, WebTask
from palestra_web.client import Instance, Sites
from palestra_web.sites.catalogue import SITES
from palestra_web.sites.code_host.fossil import NOW

FIXED_PRESENT = """(() => {
  if (location.hostname !== %s) return;
  const begun = %d;
  globalThis.Date = new Proxy(Date, {
    construct: (real, parts, made) => Reflect.construct(real, parts.length ? parts : [begun], made),
    apply: real => new real(begun).toString(),
    get: (real, name) => name === 'now' ? () => begun + Math.round(performance.now()) : real[name],
  });
})()"""
"""On pages of one host, `new Date()` returns a fixed time, and `Date.now()` counts on from it, so
that durations can be measured.
"""

PRESENT = FIXED_PRESENT % (json.dumps(SITES["code"].host), NOW.timestamp() * 1000)
"""The code host's pages write the browser's time into their messages."""


class OwnSites:
    """The sites of `palestra web up`. Every episode gets a copy of them."""

    def __init__(self) -> None:
        self._instance: Instance | None = None
        self._sites: Sites | None = None

    @property
    def reach(self) -> Reach:
        sites = self._found().sites.values()
        return Reach(tuple((site["host"], f"127.0.0.1:{site['port']}") for site in sites))

    def _found(self) -> Sites:
        """Looked up again for each episode, because the sites may have been restarted."""
        self._sites = self._sites or Sites.find()
        return self._sites

    def begin(self, task: WebTask) -> Beginning:
        self.end()
        instance = self._instance = self._found().open(task.sites, seed=str(task.task_id))
        hosts = tuple(
            site["host"] for name, site in instance.sites.sites.items() if name in task.sites
        )
        cookies: list[dict[str, str]] = []
        for site, user in task.users.items():
            cookies += instance.login(site, user)
        headers = (("X-Instance", instance.id),)
        return Beginning(
            task.start_url, hosts, headers=headers, cookies=tuple(cookies), every_page=PRESENT
        )

    def placed(self, evaluation: Evaluation) -> Evaluation:
        return evaluation

    def query(self, site: str, sql: str) -> list[list[Any]]:
        assert self._instance is not None
        return [list(row.values()) for row in self._instance.query(site, sql)]

    def changed_tables(self, site: str) -> list[str]:
        assert self._instance is not None
        return [change.table for change in self._instance.changes(site)]

    def end(self) -> None:
        instance, self._instance, self._sites = self._instance, None, None
        if instance is not None:
            instance.close()
