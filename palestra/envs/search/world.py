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
CELLS = (
    *(("bridge", hops) for hops in range(1, 5)),
    *(("comparison", hops) for hops in range(2, 5)),
    *(("intersection", hops) for hops in range(2, 5)),
    *(("temporal", hops) for hops in range(1, 5)),
    *(("counting", hops) for hops in range(1, 5)),
)
"""The categories of questions, (kind, hops). Their sizes differ by at most one."""
SHARE = 0.015
"""The largest share of a category with the same answer, so that guessing the most common answer
does not pay.
"""


@dataclass(frozen=True, slots=True)
class Built:
    """A world and its sources. `forms` has a logical form of each question, with which tests check
    the answer against the facts.
    """

    facts: Facts
    articles: list[Article]
    questions: list[Question]
    forms: list[Form]


def world(split: str, *, seed: int = 0, questions: int | None = None) -> World:
    """The encyclopedia of a split and its questions, ordered so that every prefix is balanced over
    the categories.
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
    rows: list[tuple[Question, Form]] = []
    for index in range(max(map(len, cells))):
        rows += [cell[index] for cell in cells if index < len(cell)]
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
        is_common = given[answers[0]] >= max(1, SHARE * wanted)
        if draft.text in seen or is_common or not _is_fair(draft, answers, hops):
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
    """Whether a question needs `hops` different articles and does not contain its answer."""
    articles = {look.article for look in draft.chain}
    if not len(articles) == len(draft.chain) == hops:
        return False
    return not gives_away(draft.text, answers)
