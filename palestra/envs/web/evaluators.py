"""Whether a task on the self-hosted sites is solved: matches of answers, addresses and pages, and
checks of the sites' databases.

The kinds of matches are WebArena's, and stricter: `webarena_matching` has its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

from palestra.envs.web.tasks import Evaluation, PageCheck


class Ending(Protocol):
    """How an episode ended."""

    @property
    def answer(self) -> str: ...
    @property
    def url(self) -> str:
        """The URL of the page at which the agent stopped."""

    def text(self, url: str, locator: str) -> str:
        """What `locator` gives on the page at `url`, or on the last one."""

    def query(self, site: str, sql: str) -> list[list[Any]]: ...
    def changed_tables(self, site: str) -> Sequence[str]: ...


def solved(evaluation: Evaluation, ending: Ending) -> bool:
    """All kinds of checks that the task names hold.

    One that names none, or one that we do not have, is an error of the task.
    """
    unknown = [kind for kind in evaluation.eval_types if kind not in CHECKS]
    if unknown or not evaluation.eval_types:
        raise ValueError(
            f"eval_types = {evaluation.eval_types}: expected some of {', '.join(CHECKS)}"
        )
    return all(CHECKS[kind](evaluation, ending) for kind in evaluation.eval_types)


def matches(text: str, required: dict[str, Any]) -> bool:
    """Whether a text is as required: {"exact_match": ...} and {"must_include": [...]} alike."""
    for kind, wanted in required.items():
        match kind:
            case "exact_match":
                fits = _clean(text) == _clean(wanted)
            case "must_include":
                fits = all(_includes(text, part, alone=len(wanted) == 1) for part in wanted)
            case "must_exclude":
                fits = not any(_clean(part) in _clean(text) for part in wanted)
            case _:
                raise ValueError(
                    f"{kind} is no way to match: expected exact_match, must_include or must_exclude"
                )
        if not fits:
            return False
    return True


def _includes(text: str, part: str, *, alone: bool) -> bool:
    """A single required word must match as a whole word: 5 is not in 15."""
    text = _clean(text)
    alternatives = [_clean(alternative) for alternative in part.split(" |OR| ")]
    are_words = all(re.fullmatch(r"[\w.]+", alternative) for alternative in alternatives)
    for alternative in alternatives:
        if alone and are_words:
            # The end of a sentence may follow a number: 5 is in "5." and not in "5.2".
            found = re.search(rf"(?<![\w.]){re.escape(alternative)}(?!\w|\.\w)", text) is not None
        else:
            found = alternative in text
        if found:
            return True
    return False


def _clean(text: str) -> str:
    text = " ".join(str(text).split())
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        text = text[1:-1]
    return text.lower().strip()


def same_page(url: str, reference: str) -> bool:
    """Whether a reference has this URL's host and path, and a query that this URL's includes."""
    own = urlsplit(url.rstrip("/"))
    asked = parse_qs(own.query)
    for alternative in reference.split(" |OR| "):
        wanted = urlsplit(alternative.strip().rstrip("/"))
        place, other = own.netloc + own.path.rstrip("/"), wanted.netloc + wanted.path.rstrip("/")
        if other == place and _includes_query(asked, parse_qs(wanted.query)):
            return True
    return False


def _includes_query(asked: dict[str, list[str]], wanted: dict[str, list[str]]) -> bool:
    """Whether each wanted key has one of its wanted values."""
    return all(set(values) & set(asked.get(key, ())) for key, values in wanted.items())


def _answer(evaluation: Evaluation, ending: Ending) -> bool:
    if not evaluation.reference_answers:
        raise ValueError("string_match needs reference_answers")
    is_short = not evaluation.longest_answer or len(ending.answer) <= evaluation.longest_answer
    return is_short and matches(ending.answer, evaluation.reference_answers)


def _url(evaluation: Evaluation, ending: Ending) -> bool:
    if not evaluation.reference_url:
        raise ValueError("url_match needs a reference_url")
    return same_page(ending.url, evaluation.reference_url)


def _pages(evaluation: Evaluation, ending: Ending) -> bool:
    return all(_page(check, ending) for check in evaluation.program_html)


def _page(check: PageCheck, ending: Ending) -> bool:
    return matches(ending.text(check.url, check.locator), check.required_contents)


def _database(evaluation: Evaluation, ending: Ending) -> bool:
    for check in evaluation.database:
        if ending.query(check.site, check.query) != check.rows:
            return False
    return all(
        set(ending.changed_tables(site)) <= set(tables)
        for site, tables in evaluation.changed.items()
    )


CHECKS: dict[str, Callable[[Evaluation, Ending], bool]] = {
    "string_match": _answer,
    "url_match": _url,
    "program_html": _pages,
    "database": _database,
}
