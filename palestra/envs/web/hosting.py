"""The addresses of an episode's sites, and access to their data for the evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol
from urllib.parse import urlsplit

from palestra.envs.web.browser import Beginning, Reach
from palestra.envs.web.tasks import Evaluation, WebTask


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


class FixedSites:
    """Sites at fixed addresses, without resets."""

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
