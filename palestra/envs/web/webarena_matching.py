"""WebArena's comparison of answers, URLs and pages with a task's requirements, as in libwebarena
0.0.4.

The rules are kept unchanged even where they are too strict, because published WebArena scores were
measured with them. A test compares them with the package's own code.
"""

from __future__ import annotations

import html
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

from palestra.envs.web.webarena_tasks import WebArenaCheck, WebArenaEvaluation
from palestra.envs.web.webarena_tokens import has_token

UNACHIEVABLE = "N/A"
ALTERNATIVES = " |OR| "


class Judge(Protocol):
    """Decides about answers that no rule can compare."""

    def means(self, answer: str, reference: str, intent: str) -> bool:
        """Whether the answer means the same as the reference."""

    def explains(self, answer: str, reason: str, intent: str) -> bool:
        """Whether the answer explains why the task is impossible."""


class Ending(Protocol):
    """How an episode ended."""

    @property
    def answer(self) -> str: ...
    @property
    def url(self) -> str:
        """The URL of the page at which the agent stopped."""

    def element(self, check: WebArenaCheck) -> str:
        """What the check's locator gives on its page."""


def solved(evaluation: WebArenaEvaluation, ending: Ending, judge: Judge, intent: str) -> bool:
    """All kinds of checks that the task names hold."""
    for kind in evaluation.eval_types:
        match kind:
            case "string_match":
                required = evaluation.reference_answers or {}
                fits = answer_fits(
                    required, ending.answer, judge, intent=intent, reason=evaluation.string_note
                )
            case "url_match":
                if evaluation.url_note != "GOLD in PRED":
                    raise ValueError(f"url_note = {evaluation.url_note!r}: expected 'GOLD in PRED'")
                fits = address_fits(ending.url, evaluation.reference_url or "")
            case "program_html":
                fits = all(
                    page_fits(check.required_contents, ending.element(check))
                    for check in evaluation.program_html
                )
            case _:
                raise ValueError(
                    f"eval_types = {evaluation.eval_types}: expected string_match, "
                    "url_match or program_html"
                )
        if not fits:
            return False
    return True


def clean(text: str) -> str:
    """Lower case, without surrounding spaces or quotes. Inner whitespace is kept."""
    text = text.strip()
    for quote in "'\"":
        if text.startswith(quote) and text.endswith(quote):
            text = text[1:-1]
            break
    return text.lower()


def is_exactly(wanted: str, text: str) -> bool:
    return clean(text) == clean(wanted)


def includes(wanted: str, text: str, *, as_word: bool = False) -> bool:
    """Whether it is part of the text. `as_word`: a single character must be a token of its own, so
    that 0 is not found in 10."""
    wanted, text = clean(wanted), clean(text)
    if as_word and len(wanted) == 1 and not wanted.isspace():
        return has_token(wanted, text)
    return wanted in text


def answer_fits(
    required: Mapping[str, Any], answer: str, judge: Judge, *, intent: str, reason: str
) -> bool:
    """Whether an answer meets the requirement: {"exact_match": ...}, {"must_include": [...]} or
    {"fuzzy_match": ...}.

    `reason`: why the task is impossible, if the reference is "N/A".
    """
    answer = clean(answer)
    fits = True
    for kind, wanted in required.items():
        match kind:
            case "exact_match":
                fits &= is_exactly(wanted, answer)
            case "must_include":
                fits &= all(includes(part, answer, as_word=len(wanted) == 1) for part in wanted)
            case "fuzzy_match" if wanted == UNACHIEVABLE:
                fits = (fits and is_exactly(wanted, answer)) or judge.explains(
                    answer, reason, intent
                )
            case "fuzzy_match":
                fits = fits and all(judge.means(answer, reference, intent) for reference in wanted)
            case _:
                raise ValueError(
                    f"{kind} is no way to match: expected exact_match, must_include or fuzzy_match"
                )
    return fits


def page_fits(required: Mapping[str, Any], text: str) -> bool:
    """Whether a page's text meets the requirement.

    A part may list alternatives, unlike in answers.
    """
    text = html.unescape(text)
    if "exact_match" in required:
        return is_exactly(required["exact_match"], text)
    if "must_include" in required:
        for part in required["must_include"]:
            if not any(includes(one, text) for one in part.split(ALTERNATIVES)):
                return False
        return True
    raise ValueError(
        f"{', '.join(required)} is no way to match a page: expected exact_match or must_include"
    )


def address_fits(url: str, reference: str) -> bool:
    """Host and path of an alternative are part of the address, and each query key has a value that
    any alternative names."""
    own = urlsplit(url.rstrip("/"))
    has = parse_qs(own.query)
    places: list[str] = []
    wanted: dict[str, set[str]] = defaultdict(set)
    for alternative in reference.split(ALTERNATIVES):
        parts = urlsplit(alternative.rstrip("/"))
        places.append(parts.netloc + parts.path)
        for key, values in parse_qs(parts.query).items():
            wanted[key].update(values)
    is_there = any(place in own.netloc + own.path for place in places)
    return is_there and all(values & {*has.get(key, ())} for key, values in wanted.items())
