"""Where an episode's sites are: a copy of the self-hosted ones for each episode, or others at fixed
addresses.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol
from urllib.parse import urlsplit

from palestra.envs.web import scripts
from palestra.envs.web.browser import Beginning, Reach
from palestra.envs.web.sites import Instance, Sites
from palestra.envs.web.tasks import Evaluation, WebTask
from palestra.sites.catalogue import SITES
from palestra.sites.code_host.fossil import NOW

PRESENT = scripts.PRESENT % (json.dumps(SITES["code"].host), NOW.timestamp() * 1000)
"""The code host's pages write the browser's time into their messages."""


class Hosting(Protocol):
    """The sites of one environment."""

    @property
    def reach(self) -> Reach: ...

    def begin(self, task: WebTask) -> Beginning:
        """Sites as the task needs them, and how to enter them."""

    def placed(self, evaluation: Evaluation) -> Evaluation:
        """With the sites' own addresses in it."""

    def query(self, site: str, sql: str) -> list[list[Any]]: ...
    def changed_tables(self, site: str) -> Sequence[str]: ...

    def end(self) -> None:
        """The episode is over. May be called twice."""


class OwnSites:
    """Those of `palestra web up`. Every episode has a copy of them."""

    def __init__(self) -> None:
        self._instance: Instance | None = None
        self._sites: Sites | None = None

    @property
    def reach(self) -> Reach:
        return Reach(
            tuple(
                (site["host"], f"127.0.0.1:{site['port']}") for site in self._found().sites.values()
            )
        )

    def _found(self) -> Sites:
        """Looked up again after each episode: they may have been started anew."""
        self._sites = self._sites or Sites.find()
        return self._sites

    def begin(self, task: WebTask) -> Beginning:
        self.end()
        instance = self._instance = self._found().open(task.sites, seed=str(task.task_id))
        hosts = tuple(
            site["host"] for name, site in instance.sites.sites.items() if name in task.sites
        )
        cookies = [
            cookie for site, user in task.users.items() for cookie in instance.login(site, user)
        ]
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


class FixedSites:
    """Sites at addresses of their own, which nobody resets."""

    def __init__(self, urls: Mapping[str, str]) -> None:
        """`urls` by the name that tasks have for a site."""
        self.urls = urls

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(urlsplit(url).netloc for url in self.urls.values()))

    @property
    def reach(self) -> Reach:
        return Reach(tuple((host, host) for host in self.hosts))

    def begin(self, task: WebTask) -> Beginning:
        return Beginning(self._placed(task.start_url), self.hosts)

    def placed(self, evaluation: Evaluation) -> Evaluation:
        pages = [replace(check, url=self._placed(check.url)) for check in evaluation.program_html]
        return replace(
            evaluation,
            reference_url=self._placed(evaluation.reference_url or ""),
            program_html=pages,
        )

    def _placed(self, url: str) -> str:
        """A task's URL, with the site's own address in the place of its name: __SHOPPING__/cart."""
        for name, own in self.urls.items():
            url = url.replace(f"__{name.upper()}__", own.rstrip("/"))
        return url

    def query(self, site: str, sql: str) -> list[list[Any]]:
        raise ValueError(
            f"the database of {site} cannot be looked into: it is not one of the self-hosted sites"
        )

    def changed_tables(self, site: str) -> list[str]:
        raise ValueError(
            f"the database of {site} cannot be looked into: it is not one of the self-hosted sites"
        )

    def end(self) -> None:
        pass
