"""Builds questions of five kinds from the facts: a wording, the answer, the lookups that lead to
it, and a form to check it by.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import date
from typing import Any

from palestra.envs.search.data import Lookup
from palestra.envs.search.world_facts import REAL, Entity, Facts
from palestra.envs.search.world_phrases import (
    ASKS,
    COUNTS,
    COUNTS_BOTH,
    COUNTS_UNTIL,
    DATES,
    EVENTS,
    FIRSTS,
    IN_YEAR,
    NAMED,
    NUMBERS,
    PLURALS,
    PREDICATES,
    REFS,
    SEEK,
    SUMS,
    SUPERLATIVES,
)

Form = tuple[Any, ...]
"""The logical form of a question. A test evaluates it on the facts to check the answer."""
Pattern = tuple[str, str]
"""A kind of entity and one of its relations or lists."""


class Unfit(Exception):
    """This sample gives no valid question: sample again."""


@dataclass(frozen=True, slots=True)
class Phrase:
    """An entity as a question describes it, and how an expert finds out which one is meant."""

    entity: Entity
    text: str
    form: Form
    chain: tuple[Lookup, ...] = ()
    is_read: bool = False
    """Whether the last lookup was of the entity's own article, so that its other facts are known as
    well.
    """


@dataclass(frozen=True, slots=True)
class Draft:
    text: str
    value: Entity | int | str | date
    form: Form
    chain: tuple[Lookup, ...]


class Asker:
    """Draws questions; `stated` has the wording of every fact in its article, by entity and
    relation.
    """

    def __init__(self, facts: Facts, stated: dict[str, dict[str, str]]) -> None:
        self.facts, self.stated, self.rng = facts, stated, random.Random()
        self.by_kind: dict[str, list[Entity]] = {}
        self.sources: dict[str, list[tuple[Entity, str]]] = {}
        self.in_year: dict[int, list[tuple[Entity, str]]] = {}
        self.memberships: dict[str, list[tuple[Entity, str]]] = {}
        self.listed: dict[Pattern, list[Entity]] = {}
        entities = {entity.id: entity for entity in facts.entities}
        for entity in facts.entities:
            self.by_kind.setdefault(entity.kind, []).append(entity)
            for relation, value in entity.facts.items():
                if (entity.kind, relation.split()[0]) in REFS:
                    self.sources.setdefault(value.id, []).append((entity, relation))
                if (entity.kind, relation) in EVENTS:
                    self.in_year.setdefault(year_of(value), []).append((entity, relation))
        for (holder, name), members in facts.lists.items():
            self.listed.setdefault((entities[holder].kind, name), []).append(entities[holder])
            for member, _ in members:
                self.memberships.setdefault(member.id, []).append((entities[holder], name))

    def draw(self, kind: str, hops: int, rng: random.Random) -> Draft:
        """A question of a kind that takes `hops` lookups."""
        self.rng = rng
        return {
            "bridge": self.bridge, "comparison": self.comparison, "intersection": self.intersection,
            "temporal": self.temporal,
            "counting": self.counting,
        }[kind](hops)  # fmt: skip

    # describing entities

    def one(self, choices: str) -> str:
        return self.rng.choice(choices.split("|"))

    def say(self, choices: str, phrase: Phrase, **more: Any) -> str:
        """A random phrasing for an entity.

        A long description goes to the end, to avoid "the place where the person whom X married
        died".
        """
        fit = choices.split("|")
        if phrase.chain:
            fit = [choice for choice in fit if choice.rstrip("?").endswith("{x}")]
        return self.rng.choice(fit).format(x=phrase.text, **more)

    def pattern(self, table: dict[Pattern, str]) -> Pattern:
        return self.rng.choice(list(table))

    def lookup(self, entity: Entity, *facts: str) -> Lookup:
        """Facts that are read in one article."""
        words = ("winners" if fact.startswith("winner ") else fact for fact in facts)
        seek = " ".join(SEEK.get(word, word.replace("_", " ")) for word in words)
        finding = "; ".join(
            entity.facts[fact].name if fact.startswith("winner ") else self.stated[entity.id][fact]
            for fact in facts
        )
        return Lookup(f"{entity.name} {seek}", entity.id, finding)

    def named(self, entity: Entity) -> Phrase:
        name = entity.name.lower() if entity.kind == "element" else entity.name
        return Phrase(
            entity, self.one(NAMED[entity.kind]).format(name=name), ("named", entity.name)
        )

    def describe(
        self, entity: Entity, depth: int, *, without: frozenset[str] = frozenset()
    ) -> Phrase:
        """Describe an entity by its name, or by its relation to another entity, `depth` times over.

        Invented names cannot be known, so each level takes a lookup.
        """
        if depth == 0:
            if entity.kind in REAL:
                raise Unfit
            return self.named(entity)
        without |= {entity.id}
        sources = [
            (source, relation)
            for source, relation in self.sources.get(entity.id, ())
            if source.id not in without
        ]
        if not sources:
            raise Unfit
        kinds = sorted({(source.kind, relation.split()[0]) for source, relation in sources})
        kind = self.rng.choice(kinds)
        source, relation = self.rng.choice(
            [pair for pair in sources if (pair[0].kind, pair[1].split()[0]) == kind]
        )
        return self.follow(self.describe(source, depth - 1, without=without), relation)

    def follow(self, phrase: Phrase, relation: str) -> Phrase:
        """From an entity to the one that is its `relation`."""
        words = relation.split()
        text = self.say(REFS[phrase.entity.kind, words[0]], phrase, year=words[-1])
        return Phrase(
            phrase.entity.facts[relation],
            text,
            ("fact", relation, phrase.form),
            self.read(phrase, relation),
        )

    def read(self, phrase: Phrase, *facts: str) -> tuple[Lookup, ...]:
        """The chain to an entity and on to its facts."""
        if not phrase.is_read:
            return (*phrase.chain, self.lookup(phrase.entity, *facts))
        more = self.lookup(phrase.entity, *facts).finding
        chain: list[Lookup] = []
        for look in phrase.chain:
            is_of_entity = look.article == phrase.entity.id
            chain.append(extended(look, more) if is_of_entity else look)
        return tuple(chain)

    def parts(self, total: int, number: int) -> list[int]:
        """`number` whole numbers from 0 that add up to `total`."""
        cuts = sorted(self.rng.randint(0, total) for _ in range(number - 1))
        return [after - before for before, after in zip([0, *cuts], [*cuts, total], strict=True)]

    def entity(self, kind: str, relation: str) -> Entity:
        found = self.rng.choice(self.by_kind[kind])
        if relation not in found.facts:
            raise Unfit
        return found

    def holder(self, pattern: Pattern) -> Entity:
        return self.rng.choice(
            self.listed.get(pattern) or [self.rng.choice(self.by_kind["person"])]
        )

    def members(self, entity: Entity, name: str) -> list[tuple[Entity, int | None]]:
        members = self.facts.lists.get((entity.id, name))
        if members is None:
            raise Unfit
        return members

    def member_ids(self, entity: Entity, name: str) -> set[str]:
        return {member.id for member, _ in self.members(entity, name)}

    def ask(self, phrase: Phrase, hops: int) -> Draft:
        """An entity is known as `phrase`: ask for a fact about it, or follow facts first, until
        `hops` lookups are needed.
        """
        while True:
            needed = len(phrase.chain) + (not phrase.is_read)
            table = ASKS if needed == hops else REFS
            relations = [
                relation
                for relation in phrase.entity.facts
                if (phrase.entity.kind, relation) in table
            ]
            if not relations or needed > hops:
                raise Unfit
            relation = self.rng.choice(relations)
            if needed == hops:
                self.refuse_known(phrase.entity.facts[relation], phrase.chain)
                text = self.say(ASKS[phrase.entity.kind, relation], phrase)
                return Draft(
                    text,
                    phrase.entity.facts[relation],
                    ("fact", relation, phrase.form),
                    self.read(phrase, relation),
                )
            phrase = self.follow(phrase, relation)

    def refuse_known(self, value: Entity | int | str | date, chain: tuple[Lookup, ...]) -> None:
        """Reject an answer whose own article is part of the chain."""
        if isinstance(value, Entity) and any(look.article == value.id for look in chain):
            raise Unfit

    # kinds of questions

    def bridge(self, hops: int) -> Draft:
        kind, relation = self.pattern(ASKS)
        entity = self.entity(kind, relation)
        value = entity.facts[relation]
        known = frozenset({value.id}) if isinstance(value, Entity) else frozenset()
        phrase = self.describe(entity, hops - 1, without=known)
        self.refuse_known(value, phrase.chain)
        text = self.say(ASKS[kind, relation], phrase)
        return Draft(text, value, ("fact", relation, phrase.form), self.read(phrase, relation))

    def comparison(self, hops: int) -> Draft:
        kind, relation = self.pattern(SUPERLATIVES)
        number = self.rng.choice([2, 2, 3]) if hops > 2 else 2
        then = self.rng.choice([0, 0, 1]) if hops > number else 0
        depths = self.parts(hops - number - then, number)
        entities = [self.entity(kind, relation) for _ in range(number)]
        values = [entity.facts[relation] for entity in entities]
        phrases = [
            self.describe(entity, depth)
            for entity, depth in zip(entities, sorted(depths), strict=True)
        ]
        if len({entity.id for entity in entities}) < number or len(set(values)) < number:
            raise Unfit
        is_most = self.rng.random() < 0.5
        best = values.index(max(values) if is_most else min(values))
        word = SUPERLATIVES[kind, relation].split()[2 * is_most + (number > 2)]
        group = self.group(phrases)
        is_apart = max(depths) > 0 or self.rng.random() < 0.3
        if is_apart:
            text = f"the {word} of the {'two' if number == 2 else 'three'}"
        else:
            text = f"the {word} of {group}"
        chain: list[Lookup] = []
        for phrase in phrases:
            chain += self.read(phrase, relation)
        form = ("most" if is_most else "least", relation, tuple(phrase.form for phrase in phrases))
        whole = Phrase(entities[best], text, form, tuple(chain), is_read=True)
        if min(depths) > 0 and then == 0 and self.rng.random() < 0.5:
            question = f"{'Who' if kind == 'person' else 'Which'} is {text}?"
            draft = Draft(question, entities[best], form, tuple(chain))
        else:
            draft = self.ask(whole, hops)
            others = [entity.facts.get(draft.form[1]) for entity in entities]
            if then == 0 and others.count(draft.value) > 1:
                raise Unfit
        if not is_apart:
            return draft
        question = draft.text[0].lower() + draft.text[1:]
        text = f"{self.one('Take|Consider|Compare')} {group}: {question}"
        return Draft(text, draft.value, draft.form, draft.chain)

    def group(self, phrases: list[Phrase]) -> str:
        kind = phrases[0].entity.kind
        plain = kind in PLURALS and all(not phrase.chain for phrase in phrases)
        texts = [phrase.entity.name if plain else phrase.text for phrase in phrases]
        return (PLURALS[kind] + " " if plain else "") + ", ".join(texts[:-1]) + " and " + texts[-1]

    def intersection(self, hops: int) -> Draft:
        kinds = (
            "person",
            "person",
            "novel",
            "painting",
            "composition",
            "film",
            "expedition",
            "town",
            "award",
        )
        member = self.rng.choice(self.by_kind[self.rng.choice(kinds)])
        held = [pair for pair in self.memberships.get(member.id, ()) if pair[1] in PREDICATES]
        if len(held) < 2:
            raise Unfit
        holders = self.rng.sample(held, 2)
        first, second = (self.member_ids(*pair) for pair in holders)
        if first & second != {member.id} or min(len(first), len(second)) < 2:
            raise Unfit
        if all(holder.kind in REAL for holder, _ in holders):
            raise Unfit
        then = self.rng.choice([0, 1]) if hops > 2 else 0
        depths = self.parts(hops - 2 - then, 2)
        phrases = [
            self.describe_any(holder, depth, member)
            for (holder, _), depth in zip(holders, sorted(depths), strict=True)
        ]
        clauses = [
            self.one(PREDICATES[name]).format(x=phrase.text)
            for (_, name), phrase in zip(holders, phrases, strict=True)
        ]
        if holders[0][1] == holders[1][1]:
            clauses = [
                PREDICATES[holders[0][1]].split("|")[0].format(x="both " + phrases[0].text),
                phrases[1].text,
            ]
        chain: tuple[Lookup, ...] = ()
        form: Form = ("in both",)
        for (_, name), phrase in zip(holders, phrases, strict=True):
            chain += self.read(phrase, name)
            form += ((name, phrase.form),)
        noun = member.kind if member.kind != "composition" else "orchestral work"
        if then == 0:
            wordings = f"Which {noun} {{}} and {{}}?|Name the {noun} that {{}} and {{}}."
            text = self.one(wordings).format(*clauses)
            return Draft(text.replace("person that", "person who"), member, form, chain)
        pronoun = "who" if member.kind == "person" else "that"
        text = f"the {noun} {pronoun} {clauses[0]} and {clauses[1]}"
        return self.ask(Phrase(member, text, form, chain), hops)

    def describe_any(self, entity: Entity, depth: int, member: Entity) -> Phrase:
        """As `describe`, but real entities may be named, because their relations to invented ones
        cannot be known.
        """
        if depth == 0:
            return self.named(entity)
        return self.describe(entity, depth, without=frozenset({member.id}))

    def temporal(self, hops: int) -> Draft:
        ways = [self.when, self.first_or_last, self.next_winner, self.in_a_year]
        if hops > 1:
            ways += [self.gap, self.gap, self.age, self.winner_when]
        return self.rng.choice(ways)(hops)

    def when(self, hops: int) -> Draft:
        table = DATES if self.rng.random() < 0.3 else EVENTS
        kind, relation = self.pattern(table)
        entity = self.entity(kind, relation)
        phrase = self.describe(entity, hops - 1)
        if table is DATES:
            text = self.say(DATES[kind, relation], phrase)
            form = ("fact", relation, phrase.form)
            return Draft(text, entity.facts[relation], form, self.read(phrase, relation))
        noun, clause = EVENTS[kind, relation].split("|")
        subject, verb, tail = split_clause(clause, phrase.text)
        plain = f"In {self.one('what|which')} year {verb} {subject}{tail}?"
        text = f"What was the year of {noun.format(x=phrase.text)}?" if phrase.chain else plain
        return Draft(
            text,
            year_of(entity.facts[relation]),
            ("year", relation, phrase.form),
            self.read(phrase, relation),
        )

    def first_or_last(self, hops: int) -> Draft:
        pattern = self.pattern(FIRSTS)
        holder = self.holder(pattern)
        members = self.members(holder, pattern[1])
        is_last = self.rng.random() < 0.5
        end = members[-1 if is_last else 0]
        if [year for _, year in members].count(end[1]) > 1 or len(members) < 2:
            raise Unfit
        then = self.rng.choice([0, 1]) if hops > 1 else 0
        phrase = self.describe(holder, hops - 1 - then, without=frozenset({end[0].id}))
        text = FIRSTS[pattern].split("|")[is_last].format(x=phrase.text)
        found = Phrase(
            end[0],
            text,
            ("last" if is_last else "first", pattern[1], phrase.form),
            self.read(phrase, pattern[1]),
        )
        if then:
            return self.ask(found, hops)
        return Draft(
            f"{'Who' if end[0].kind == 'person' else 'What'} is {text}?",
            end[0],
            found.form,
            found.chain,
        )

    def next_winner(self, hops: int) -> Draft:
        award = self.rng.choice(self.by_kind["award"])
        winners = self.members(award, "winners")
        index = self.rng.randrange(len(winners) - 1)
        step = self.rng.choice((1, -1))
        known, wanted = winners[index + (step < 0)][0], winners[index + (step > 0)][0]
        depths = self.parts(hops - 1, 2)
        phrase = self.describe(known, depths[0], without=frozenset({award.id, wanted.id}))
        prize = self.describe(award, depths[1], without=frozenset({wanted.id}))
        words = ("Who was the next person to win {y} after {x}?", "Who won {y} directly after {x}?")
        back = (
            "Who was the last person to win {y} before {x}?",
            "Who won {y} directly before {x}?",
        )
        text = self.rng.choice(words if step > 0 else back).format(x=phrase.text, y=prize.text)
        return Draft(
            text,
            wanted,
            ("beside", step, prize.form, phrase.form),
            (*phrase.chain, *self.read(prize, "winners")),
        )

    def in_a_year(self, hops: int) -> Draft:
        pattern = self.pattern(IN_YEAR)
        holder = self.holder(pattern)
        members = self.members(holder, pattern[1])
        wanted, year = self.rng.choice(members)
        if [other for _, other in members].count(year) > 1 or len(members) < 2:
            raise Unfit
        phrase = self.describe(holder, hops - 1, without=frozenset({wanted.id}))
        text = self.say(IN_YEAR[pattern], phrase, year=year)
        return Draft(
            text, wanted, ("in year", pattern[1], phrase.form, year), self.read(phrase, pattern[1])
        )

    def event(
        self, depth: int, year: int | None = None, *, without: frozenset[str] = frozenset()
    ) -> tuple[Phrase, str, str]:
        """An event of a given year or of any: a phrase for it, its relation, and words for its
        year.
        """
        if year is None:
            kind, relation = self.pattern(EVENTS)
            entity = self.entity(kind, relation)
        else:
            entity, relation = self.rng.choice(
                self.in_year.get(year, [(self.by_kind["person"][0], "")])
            )
        if entity.id in without or not relation:
            raise Unfit
        phrase = self.describe(entity, depth, without=without)
        noun, clause = EVENTS[entity.kind, relation].format(x=phrase.text).split("|")
        return (
            phrase,
            relation,
            f"of {noun}" if phrase.chain or self.rng.random() < 0.5 else f"in which {clause}",
        )

    def gap(self, hops: int) -> Draft:
        depths = self.parts(hops - 2, 2)
        first, second = self.event(depths[0]), self.event(depths[1])
        years = [year_of(phrase.entity.facts[relation]) for phrase, relation, _ in (first, second)]
        if first[0].entity is second[0].entity or not 0 < abs(years[0] - years[1]) <= 200:
            raise Unfit
        earlier, later = (first, second) if years[0] < years[1] else (second, first)
        wordings = (
            "lie between the year {} and the year {}|separate the year {} from the year "
            "{}|passed from the year {} to the year {}"
        )
        text = f"How many years {self.one(wordings).format(earlier[2], later[2])}?"
        form = ("gap", earlier[1], earlier[0].form, later[1], later[0].form)
        return Draft(
            text, abs(years[0] - years[1]), form, (*self.read(*earlier[:2]), *self.read(*later[:2]))
        )

    def age(self, hops: int) -> Draft:
        person = self.rng.choice(self.by_kind["person"])
        depths = self.parts(hops - 2, 2)
        born, died = person.facts["born"].year, person.facts["died"].year
        other, relation, when = self.event(
            depths[1], self.rng.randint(born + 5, died - 1), without=frozenset({person.id})
        )
        phrase = self.describe(person, depths[0], without=frozenset({other.entity.id}))
        text = f"How old did {phrase.text} turn in the year {when}?"
        value = year_of(other.entity.facts[relation]) - born
        return Draft(
            text,
            value,
            ("gap", "born", phrase.form, relation, other.form),
            (*self.read(phrase, "born"), *self.read(other, relation)),
        )

    def winner_when(self, hops: int) -> Draft:
        award = self.rng.choice(self.by_kind["award"])
        wanted, year = self.rng.choice(self.members(award, "winners"))
        assert year is not None
        depths = self.parts(hops - 2, 2)
        prize = self.describe(award, depths[0], without=frozenset({wanted.id}))
        other, relation, when = self.event(
            depths[1], year, without=frozenset({wanted.id, award.id})
        )
        text = self.one("Who won {x} in the year {y}?|In the year {y}, who won {x}?").format(
            x=prize.text, y=when
        )
        form = ("in the year of", prize.form, relation, other.form)
        return Draft(
            text, wanted, form, (*self.read(other, relation), *self.read(prize, "winners"))
        )

    def counting(self, hops: int) -> Draft:
        ways = [self.number, self.count, self.count_until]
        if hops > 1:
            ways += [self.total, self.total, self.count_both]
        return self.rng.choice(ways)(hops)

    def number(self, hops: int) -> Draft:
        kind, relation = self.pattern(NUMBERS)
        entity = self.entity(kind, relation)
        phrase = self.describe(entity, hops - 1)
        text = self.say(NUMBERS[kind, relation], phrase)
        return Draft(
            text,
            entity.facts[relation],
            ("fact", relation, phrase.form),
            self.read(phrase, relation),
        )

    def total(self, hops: int) -> Draft:
        kind, relation = self.pattern(SUMS)
        depths = self.parts(hops - 2, 2)
        entities = [self.entity(kind, relation) for _ in range(2)]
        if entities[0] is entities[1]:
            raise Unfit
        x, y = (
            self.describe(entity, depth)
            for entity, depth in zip(entities, sorted(depths), strict=True)
        )
        value = sum(entity.facts[relation] for entity in entities)
        text = SUMS[kind, relation].format(x=x.text, y=y.text)
        return Draft(
            text,
            value,
            ("sum", relation, x.form, y.form),
            (*self.read(x, relation), *self.read(y, relation)),
        )

    def count(self, hops: int) -> Draft:
        pattern = self.pattern(COUNTS)
        holder = self.holder(pattern)
        phrase = self.describe(holder, hops - 1)
        value = len(self.members(holder, pattern[1]))
        return Draft(
            self.say(COUNTS[pattern], phrase),
            value,
            ("count", pattern[1], phrase.form),
            self.read(phrase, pattern[1]),
        )

    def count_until(self, hops: int) -> Draft:
        pattern = self.pattern(COUNTS_UNTIL)
        holder = self.holder(pattern)
        phrase = self.describe(holder, hops - 1)
        years = [year for _, year in self.members(holder, pattern[1]) if year is not None]
        if len(years) < 3:
            raise Unfit
        until = self.rng.randint(years[0] + 1, years[-1] - 1)
        text = self.say(COUNTS_UNTIL[pattern], phrase, year=until)
        form = ("count until", pattern[1], phrase.form, until)
        return Draft(
            text, sum(year <= until for year in years), form, self.read(phrase, pattern[1])
        )

    def count_both(self, hops: int) -> Draft:
        pattern = self.pattern(COUNTS_BOTH)
        holders = [self.holder(pattern) for _ in range(2)]
        members = [self.member_ids(holder, pattern[1]) for holder in holders]
        if members[0] & members[1]:
            raise Unfit
        depths = sorted(self.parts(hops - 2, 2))
        x, y = (self.describe(holder, depth) for holder, depth in zip(holders, depths, strict=True))
        text = COUNTS_BOTH[pattern].format(x=x.text, y=y.text)
        chain = (*self.read(x, pattern[1]), *self.read(y, pattern[1]))
        return Draft(
            text, len(members[0] | members[1]), ("count both", pattern[1], x.form, y.form), chain
        )


def extended(look: Lookup, more: str) -> Lookup:
    return Lookup(look.query, look.article, f"{look.finding}; {more}")


def year_of(value: int | date) -> int:
    return value.year if isinstance(value, date) else value


def split_clause(clause: str, subject: str) -> tuple[str, str, str]:
    """ "{x} was founded" as a question asks it: the subject, the auxiliary, the rest."""
    verb, *others = clause.removeprefix("{x} ").split()
    if verb == "was":
        return subject, "was", " " + " ".join(others)
    plain = {"died": "die", "became": "become", "opened": "open", "came": "come", "set": "set"}[
        verb
    ]
    return subject, "did", " " + " ".join([plain, *others])
