"""Writes the articles: every fact once, in sentences chosen and ordered by chance, and remembers
how each fact was worded.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from datetime import date
from functools import cache
from typing import Any

from palestra.core.seeds import derive_seed
from palestra.envs.search.data import Article
from palestra.envs.search.world_facts import LISTS, MONTHS, Entity, Facts
from palestra.envs.search.world_names import with_articles
from palestra.envs.search.world_openings import FILLERS, OPENINGS
from palestra.envs.search.world_prose import SENTENCES

WORDS = (64, 200)
"""An article is filled up to the first number with sentences that state no facts; beyond the second
none are added.
"""

YEAR_FACTS = frozenset(
    """independent founded charted opened published released painted acquired premiered proved began
first_held established
    discovered""".split()
)
WITH_THE = frozenset(
    "river university orchestra museum theorem expedition treaty festival battle award".split()
)
NOUNS = {
    "land": "country",
    "publisher": "house",
    "company": "firm",
    "composition": "work",
    "theorem": "result",
}
LIFE = "occupation birthplace born alma_mater teacher spouse employer".split()
"""The order of a life: these facts first, then works, then the end."""
END = "students awards deathplace died".split()
GRAMMAR = frozenset("name S s Her her him man wife".split())


@dataclass(frozen=True, slots=True)
class Template:
    text: str
    words: tuple[str, ...]
    """Its placeholders, without those of grammar."""
    states: frozenset[str]
    """The facts and lists of the subject that it states, without those of other entities."""


def listed(items: list[str]) -> str:
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]


def date_styles(day: date) -> list[str]:
    """The ways to write a date, the common ones first."""
    ending = "th" if 10 < day.day < 14 else {1: "st", 2: "nd", 3: "rd"}.get(day.day % 10, "th")
    month = MONTHS[day.month - 1]
    return [
        f"{day.day} {month} {day.year}",
        f"{month} {day.day}, {day.year}",
        f"{day.day}{ending} {month} {day.year}",
        day.isoformat(),
    ]


def fact_of(word: str) -> str:
    """`novels_one` states the list of novels, `occupation_s` the occupation."""
    return word.removesuffix("_one").removesuffix("_s")


@cache
def templates(kind: str) -> tuple[list[Template], list[Template], list[Template]]:
    """Openings, sentences and fillers of a kind of article."""
    return _read_all(OPENINGS[kind]), _read_all(SENTENCES[kind]), _read_all(FILLERS[kind])


def _read_all(lines: str) -> list[Template]:
    return [_read(line) for line in lines.strip().splitlines()]


def _read(line: str) -> Template:
    words = tuple(word for word in re.findall(r"\{([\w.]+)\}", line) if word not in GRAMMAR)
    return Template(line, words, frozenset(fact_of(word) for word in words if "." not in word))


class Writer:
    """Writes one article."""

    def __init__(self, facts: Facts, entity: Entity, *, seed: int) -> None:
        self.facts, self.entity = facts, entity
        self.rng = random.Random(derive_seed("article", seed, entity.id))
        self.date_style = self.rng.choices([0, 1, 2], [5, 4, 1])[0]
        self.stated: dict[str, str] = {}
        """By fact: its wording in the text."""
        self.pronouns_in_row = 0
        self.is_named_here = True

    def write(self) -> Article:
        openings, sentences, fillers = templates(self.entity.kind)
        required = {word for word in self.entity.facts if not word.startswith("winner ")}
        for name in (*LISTS, "winners", "awards"):
            if (self.entity.id, name) in self.facts.lists:
                required.add(name)
        opening = self.rng.choice([t for t in openings if self.has(t)])
        chosen, told = [], set(opening.states)
        while missing := required - told:
            fitting = [t for t in sentences if t.states and t.states <= missing and self.has(t)]
            # Sentences that state more facts are far more likely: articles stay short.
            weights = [5 ** len(t.states) for t in fitting]
            chosen.extend(self.rng.choices(fitting, weights))
            told |= chosen[-1].states
        chosen.sort(key=self.place_in_text)
        spare = []
        for filler in fillers:
            if self.has(filler) and (not filler.words or self.rng.random() < 0.25):
                spare.append(filler)
        text = self.fill_up([opening, *chosen], spare)
        # A wording at the start of a sentence is capitalized in the text.
        for fact, wording in self.stated.items():
            if wording not in text:
                self.stated[fact] = wording[0].upper() + wording[1:]
        return Article(self.entity.id, self.entity.name, text)

    def place_in_text(self, template: Template) -> float:
        """A random sort key. Facts about a person are in chronological order."""
        if self.entity.kind != "person":
            return self.rng.random()
        order = [*LIFE, "", *END]
        places = [order.index(fact) if fact in order else len(LIFE) for fact in template.states]
        return max(places) + self.rng.random() * 0.9

    def fill_up(self, chosen: list[Template], fillers: list[Template]) -> str:
        """Facts become sentences in their order; sentences without facts are put between them."""
        sentences = [self.sentence(template) for template in chosen]
        spare = [self.sentence(filler) for filler in self.rng.sample(fillers, len(fillers))]
        most, least = self.rng.randint(1, 3), WORDS[0] + self.rng.randint(0, 30)
        while spare:
            length = sum(len(sentence.split()) for sentence in sentences)
            if length >= least and (most <= 0 or length >= WORDS[1]):
                break
            # A person's last sentence, about the end of the life, stays last.
            last = len(sentences) - (self.entity.kind == "person" and len(sentences) > 2)
            sentences.insert(self.rng.randint(1, last), spare.pop())
            most -= 1
        return " ".join(sentences)

    def sentence(self, template: Template) -> str:
        self.is_named_here = False
        text = re.sub(
            r"\[([^\]]*)\]", lambda found: self.rng.choice(found[1].split("|")), template.text
        )
        text = re.sub(r"\{([\w.]+)\}", lambda found: self.filled(found[1]), text)
        text = with_articles(text)
        return text[0].upper() + text[1:]

    def filled(self, word: str) -> str:
        """The text for a placeholder."""
        return self.grammar(word) if word in GRAMMAR else self.wording(self.entity, word)

    def grammar(self, word: str) -> str:
        entity = self.entity
        if word == "name":
            return entity.name
        if word in ("S", "s"):
            return self.subject()
        forms = {
            "her": ("its", "his", "her"),
            "him": ("it", "him", "her"),
            "man": ("", "man", "woman"),
            "wife": ("", "wife", "husband"),
        }
        form = forms[word.lower()][1 + entity.is_woman if entity.kind == "person" else 0]
        return form.capitalize() if word[0].isupper() else form

    def subject(self) -> str:
        """A pronoun, or now and then a name: never twice in a row,
        and once in a sentence at most.
        """
        is_pronoun = (
            self.is_named_here
            or self.pronouns_in_row == 0
            or (self.pronouns_in_row < 4 and self.rng.random() < 0.6)
        )
        self.is_named_here = True
        if is_pronoun:
            self.pronouns_in_row += 1
            return {"person": "she" if self.entity.is_woman else "he"}.get(self.entity.kind, "it")
        self.pronouns_in_row = 0
        if self.entity.kind == "person":
            return self.entity.name.split()[-1]
        return "the " + NOUNS.get(self.entity.kind, self.entity.kind)

    def has(self, template: Template) -> bool:
        """Whether all placeholders of a template can be filled."""
        return all(word in self.entity.facts or self.members(word) for word in template.words)

    def members(self, word: str) -> bool:
        """Whether a word that is no plain fact can be filled: a path, a form of a fact, or a list
        of the right length.
        """
        first, _, rest = word.partition(".")
        if rest:
            return first in self.entity.facts and rest in self.entity.facts[first].facts
        if word.endswith("_s"):
            return True
        members = self.facts.lists.get((self.entity.id, fact_of(word)), [])
        return len(members) == 1 if word.endswith("_one") else len(members) > 1

    def wording(self, entity: Entity, word: str) -> str:
        first, _, rest = word.partition(".")
        if rest:
            return self.shown(rest, entity.facts[first].facts[rest])[0]
        fact = fact_of(word)
        if fact in entity.facts:
            shown, plain = self.shown(fact, entity.facts[fact])
            self.stated[fact] = plain
            return shown + ("s" if word.endswith("_s") else "")
        items = []
        for member, year in self.facts.lists[entity.id, fact]:
            name = self.shown(fact, member)[0]
            items.append(name if year is None else f"{name} ({year})")
        self.stated[fact] = listed(items)
        return listed(items)

    def shown(self, relation: str, value: Any) -> tuple[str, str]:
        """A value as written in a sentence, and its bare wording."""
        if isinstance(value, Entity):
            name = value.name.lower() if value.kind == "element" else value.name
            return ("the " if value.kind in WITH_THE else "") + name, name
        if isinstance(value, date):
            text = date_styles(value)[self.date_style]
        elif isinstance(value, int) and relation not in YEAR_FACTS:
            text = f"{value:,}"
        else:
            text = str(value)
        return text, text
