"""The default world: a generated encyclopaedia of invented entities among real places, and
questions about it.

Nothing in it can be known beforehand: names are invented, and a name belongs to one split only
(`world_names.split_of`). The same split and seed give the same world on every machine.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

from palestra.core.seeds import derive_seed
from palestra.envs.base import content_id
from palestra.envs.search.data import Article, Question, World
from palestra.envs.search.world_answers import gives_away, spellings, surname_counts
from palestra.envs.search.world_articles import Writer
from palestra.envs.search.world_facts import Facts
from palestra.envs.search.world_make import Maker
from palestra.envs.search.world_names import SPLITS
from palestra.envs.search.world_questions import Asker, Draft, Form, Unfit

QUESTIONS = {"train": 4000, "dev": 500, "test": 1000}
CELLS = tuple(
    (kind, hops)
    for kind, most in (
        ("bridge", range(1, 5)),
        ("comparison", range(2, 5)),
        ("intersection", range(2, 5)),
        ("temporal", range(1, 5)),
        ("counting", range(1, 5)),
    )
    for hops in most
)
"""The categories of questions: each has the same number of them, give or take one."""
SHARE = 0.015
"""No answer is that of more than this part of a category: so that nothing is gained by guessing the
commonest.
"""


@dataclass(frozen=True, slots=True)
class Built:
    """A world with what it was made from: `forms` has every question without words, for checking
    its answer on the bare facts.
    """

    facts: Facts
    articles: list[Article]
    questions: list[Question]
    forms: list[Form]


def world(split: str, *, seed: int = 0, questions: int | None = None) -> World:
    """The encyclopaedia of a split and its questions, in an order in which any beginning is
    balanced over the categories.
    """
    found = built(split, seed=seed, questions=questions)
    return World(found.articles, found.questions)


def built(split: str, *, seed: int = 0, questions: int | None = None) -> Built:
    if split not in SPLITS:
        raise ValueError(f"the search world has no split {split!r}; there are: {', '.join(SPLITS)}")
    if questions is not None and questions < 1:
        raise ValueError(f"questions: {questions}, expected 1 or more")
    return _built(split, seed, QUESTIONS[split] if questions is None else questions)


@lru_cache(maxsize=8)
def _built(split: str, seed: int, number: int) -> Built:
    facts, articles, stated = _encyclopaedia(split, seed)
    surnames = surname_counts(facts.entities)
    asker, cells = Asker(facts, stated), []
    for index, (kind, hops) in enumerate(CELLS):
        wanted = number // len(CELLS) + (index < number % len(CELLS))
        rng = random.Random(derive_seed("questions", split, seed, kind, hops))
        cells.append(_cell(asker, kind, hops, wanted, surnames, rng))
    rows = [
        cell[place] for place in range(max(map(len, cells))) for cell in cells if place < len(cell)
    ]
    return Built(facts, articles, [question for question, _ in rows], [form for _, form in rows])


@lru_cache(maxsize=8)
def _encyclopaedia(split: str, seed: int) -> tuple[Facts, list[Article], dict[str, dict[str, str]]]:
    facts = Maker(split, seed).make()
    articles, stated = [], {}
    for entity in facts.entities:
        writer = Writer(facts, entity, seed=seed)
        articles.append(writer.write())
        stated[entity.id] = writer.stated
    random.Random(derive_seed("order of articles", split, seed)).shuffle(articles)
    return facts, articles, stated


def _cell(
    asker: Asker, kind: str, hops: int, wanted: int, surnames: Counter[str], rng: random.Random
) -> list[tuple[Question, Form]]:
    rows: list[tuple[Question, Form]] = []
    seen: set[str] = set()
    given: Counter[str] = Counter()
    for _ in range(400 * wanted):
        if len(rows) == wanted:
            break
        try:
            draft = asker.draw(kind, hops, rng)
        except Unfit:
            continue
        answers = spellings(draft.value, surnames, is_year=draft.form[0] == "year")
        if (
            draft.text in seen
            or given[answers[0]] >= max(1, SHARE * wanted)
            or not _is_fair(draft, answers, hops)
        ):
            continue
        seen.add(draft.text)
        given[answers[0]] += 1
        text = draft.text[0].upper() + draft.text[1:]
        rows.append(
            (Question(content_id(kind, text), text, answers, kind, hops, draft.chain), draft.form)
        )
    if len(rows) < wanted:
        raise ValueError(
            f"questions: this world has no {wanted} of kind {kind!r} with {hops} hops, "
            f"{len(rows)} at most"
        )
    return rows


def _is_fair(draft: Draft, answers: tuple[str, ...], hops: int) -> bool:
    """As many lookups as announced, all of different articles, and an answer that the question does
    not contain.
    """
    return len({look.article for look in draft.chain}) == len(
        draft.chain
    ) == hops and not gives_away(draft.text, answers)
