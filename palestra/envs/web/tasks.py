"""Tasks on the web, in the JSON form of WebArena's files (arXiv:2307.13854)
with a few fields more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import msgspec

Split = Literal["train", "test"]


@dataclass(frozen=True, slots=True)
class PageCheck:
    """What a page must show in the end."""

    url: str
    """"last" for the page that the agent stopped at; otherwise the page is opened."""
    required_contents: dict[str, Any]
    """{"must_include": [...]} or {"exact_match": "..."}."""
    locator: str = ""
    """JavaScript that returns the text, such as document.querySelector("h1").innerText. Default:
    the whole page.
    """


@dataclass(frozen=True, slots=True)
class DatabaseCheck:
    """The final content of a site's database.

    Not part of WebArena, whose databases cannot be queried.
    """

    site: str
    query: str
    rows: list[list[Any]]
    """All that the query gives, in its order."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """When a task is solved: all that `eval_types` names must hold."""

    eval_types: list[str]
    reference_answers: dict[str, Any] | None = None
    """{"exact_match": "..."} or {"must_include": [...]}; WebArena's own tasks have {"fuzzy_match":
    [...]} too.
    """
    longest_answer: int = 0
    """Characters; an answer that lists everything there is is none. 0 for any number."""
    reference_url: str | None = ""
    url_note: str = "EXACT"
    """WebArena's own tasks have "GOLD in PRED": any address that the reference is part of."""
    program_html: Sequence[PageCheck] = field(default_factory=list)
    database: list[DatabaseCheck] = field(default_factory=list)
    changed: dict[str, list[str]] = field(default_factory=dict)
    """By site: the only tables that may differ from the seed.

    Other sites are not checked.
    """

    def __and__(self, other: Evaluation) -> Evaluation:
        """Both must hold."""
        return replace(
            self,
            eval_types=list(dict.fromkeys([*self.eval_types, *other.eval_types])),
            reference_answers={**(self.reference_answers or {}), **(other.reference_answers or {})}
            or None,
            longest_answer=self.longest_answer + other.longest_answer,
            reference_url=self.reference_url or other.reference_url,
            program_html=[*self.program_html, *other.program_html],
            database=[*self.database, *other.database],
            changed={**self.changed, **other.changed},
        )


def answer(exact: str) -> Evaluation:
    """The answer is this, whatever its case."""
    return Evaluation(["string_match"], {"exact_match": exact})


def answer_with(*parts: str) -> Evaluation:
    """The answer has all of these in it, and not everything else too."""
    return Evaluation(
        ["string_match"],
        {"must_include": list(parts)},
        longest_answer=100 + 3 * sum(map(len, parts)),
    )


def ends_at(url: str) -> Evaluation:
    """The agent stops at this address. Alternatives are joined by " |OR| "."""
    return Evaluation(["url_match"], reference_url=url)


def shows(url: str, *parts: str, locator: str = "") -> Evaluation:
    """The page at `url` ("last" for the one that the agent stops at) shows all of these."""
    return Evaluation(
        ["program_html"], program_html=[PageCheck(url, {"must_include": list(parts)}, locator)]
    )


def rows(
    site: str,
    query: str,
    expected: Sequence[Sequence[Any]],
    *,
    changed: Sequence[str] | None = None,
) -> Evaluation:
    """The site's database answers `query` with these rows. If `changed` is given, no other tables
    differ from the seed.
    """
    check = DatabaseCheck(site, query, [list(row) for row in expected])
    return Evaluation(
        ["database"], database=[check], changed={} if changed is None else {site: list(changed)}
    )


@dataclass(frozen=True, slots=True)
class WebTask:
    """One task, as a file has it."""

    task_id: str | int
    sites: list[str]
    start_url: str
    intent: str
    eval: Evaluation
    intent_template: str = ""
    intent_template_id: str | int = ""
    instantiation_dict: dict[str, Any] = field(default_factory=dict)
    require_login: bool = False
    require_reset: bool = False
    """It changes something."""
    storage_state: str | None = None
    geolocation: Any = None
    users: dict[str, str] = field(default_factory=dict)
    """By site: who the agent is logged in as from the start. Not WebArena's."""
    split: Split = "test"


def read_tasks(file: Path) -> list[WebTask]:
    try:
        return msgspec.json.decode(file.read_bytes(), type=list[WebTask])
    except msgspec.ValidationError as error:
        raise ValueError(f"{file.name}: {error}") from error
