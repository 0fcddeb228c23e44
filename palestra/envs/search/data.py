"""The data types of articles and questions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Article(NamedTuple):
    """One thing that a search can find: an article, or a passage of one."""

    id: str
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Lookup:
    """One step to an answer."""

    query: str
    """What to search for."""
    article: str
    """The id of the article that has it."""
    finding: str
    """The text that the article must show."""


@dataclass(frozen=True, slots=True)
class Question:
    id: str
    text: str
    answers: tuple[str, ...]
    """Any of them is right; the first is the one that the expert gives."""
    kind: str
    hops: int
    """The number of articles needed; 0 if unknown."""
    chain: tuple[Lookup, ...] = ()


@dataclass(frozen=True, slots=True)
class World:
    articles: list[Article]
    questions: list[Question]
