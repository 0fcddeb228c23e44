"""What a search environment is about: articles to find and read, and questions about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Article(NamedTuple):
    id: str
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Lookup:
    """One step of an expert: what to search for, the article that has it, what is read there."""

    query: str
    article: str
    finding: str


@dataclass(frozen=True, slots=True)
class Question:
    id: str
    text: str
    answers: tuple[str, ...]
    """The answer and its other spellings."""
    kind: str
    hops: int
    chain: tuple[Lookup, ...] = ()


@dataclass(frozen=True, slots=True)
class World:
    articles: list[Article]
    questions: list[Question]
