"""The generated encyclopaedia: what its questions ask is answered again here, from the bare facts
and by other code.
"""

import hashlib
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from datetime import date
from pathlib import Path

import pytest

from palestra.envs.search import world_phrases
from palestra.envs.search.world import CELLS, QUESTIONS, built, world
from palestra.envs.search.world_answers import in_words
from palestra.envs.search.world_articles import templates
from palestra.envs.search.world_facts import LISTS, REAL, Entity
from palestra.envs.search.world_names import SPLITS

ROOT = Path(__file__).parents[3]


def year_of(value):
    return value.year if isinstance(value, date) else value


class Base:
    """Facts as bare triples. Every lookup goes through all values: whatever is not unique shows."""

    def __init__(self, entities):
        self.names, self.kinds = defaultdict(list), {entity.id: entity.kind for entity in entities}
        self.about, self.pointing = defaultdict(list), defaultdict(list)
        for entity in entities:
            self.names[entity.name].append(entity.id)
            for relation, value in entity.facts.items():
                plain = value.id if isinstance(value, Entity) else value
                self.about[entity.id, relation].append(plain)
                self.pointing[relation.split()[0], plain].append((entity.id, relation))

    def members(self, name, holder):
        """A list's members with their years, found by what points at its holder."""
        if name == "winners":
            found = [
                (int(key[1].split()[1]), value)
                for key, values in self.about.items()
                if key[0] == holder
                for value in values
                if "winner " in key[1]
            ]
        elif name == "awards":
            found = [
                (int(relation.split()[1]), award)
                for award, relation in self.pointing["winner", holder]
            ]
        else:
            kind, relation = LISTS[name]
            dates = ("published", "released", "painted", "premiered", "proved", "began")
            entities = [
                entity
                for entity, _ in self.pointing[relation, holder]
                if self.kinds[entity] == kind
            ]
            found = [
                (next((self.about[e, d][0] for d in dates if self.about.get((e, d))), 0), e)
                for e in entities
            ]
        return sorted(found)

    def one(self, form):
        (value,) = self.values(form)
        return value

    def values(self, form):
        """All that a question could be answered with."""
        what, *rest = form
        return getattr(self, "ask_" + what.replace(" ", "_"))(*rest)

    def ask_named(self, name):
        return self.names[name]

    def ask_fact(self, relation, subject):
        return self.about[self.one(subject), relation]

    def ask_year(self, relation, subject):
        return [year_of(value) for value in self.about[self.one(subject), relation]]

    def extreme(self, relation, subjects, choose):
        rows = [(self.one(("fact", relation, subject)), self.one(subject)) for subject in subjects]
        return [entity for value, entity in rows if value == choose(value for value, _ in rows)]

    def ask_most(self, relation, subjects):
        return self.extreme(relation, subjects, max)

    def ask_least(self, relation, subjects):
        return self.extreme(relation, subjects, min)

    def ask_in_both(self, first, second):
        one, two = (
            {entity for _, entity in self.members(name, self.one(holder))}
            for name, holder in (first, second)
        )
        return sorted(one & two)

    def ask_first(self, name, holder):
        rows = self.members(name, self.one(holder))
        return [entity for year, entity in rows if year == rows[0][0]]

    def ask_last(self, name, holder):
        rows = self.members(name, self.one(holder))
        return [entity for year, entity in rows if year == rows[-1][0]]

    def ask_in_year(self, name, holder, year):
        return [entity for when, entity in self.members(name, self.one(holder)) if when == year]

    def ask_beside(self, step, award, person):
        rows = self.members("winners", self.one(award))
        places = [place for place, (_, winner) in enumerate(rows) if winner == self.one(person)]
        return [rows[place + step][1] for place in places if 0 <= place + step < len(rows)]

    def ask_in_the_year_of(self, award, relation, event):
        (year,) = self.ask_year(relation, event)
        return self.ask_in_year("winners", award, year)

    def ask_gap(self, before, first, after, second):
        (start,), (end,) = self.ask_year(before, first), self.ask_year(after, second)
        return [end - start]

    def ask_sum(self, relation, first, second):
        assert self.one(first) != self.one(second)
        return [self.one(("fact", relation, first)) + self.one(("fact", relation, second))]

    def ask_count(self, name, holder):
        return [len(self.members(name, self.one(holder)))]

    def ask_count_until(self, name, holder, year):
        return [sum(when <= year for when, _ in self.members(name, self.one(holder)))]

    def ask_count_both(self, name, first, second):
        return [
            len(
                {
                    entity
                    for holder in (first, second)
                    for _, entity in self.members(name, self.one(holder))
                }
            )
        ]


@pytest.mark.parametrize("split", SPLITS)
def test_every_answer_is_the_only_one(split):
    found = built(split)
    base, names = (
        Base(found.facts.entities),
        {entity.id: entity.name for entity in found.facts.entities},
    )
    assert len(found.questions) == len(found.forms) == QUESTIONS[split]
    for question, form in zip(found.questions, found.forms, strict=True):
        values = base.values(form)
        assert len(values) == 1, question
        value = values[0]
        if isinstance(value, date):
            assert question.answers[0] == f"{value.day} {value:%B} {value.year}", question
        elif isinstance(value, int):
            assert question.answers[0].replace(",", "") == str(value), question
        else:
            assert question.answers[0] == names.get(value, value), question


def test_the_checker_sees_what_is_not_unique():
    town, other = Entity("town", "Aa", {}), Entity("town", "Bb", {})
    people = [
        Entity("person", name, {"birthplace": place, "employer": other})
        for name, place in (("P", town), ("Q", town), ("R", other))
    ]
    base = Base([town, other, *people])
    both = ("in both", ("natives", ("named", "Aa")), ("staff", ("named", "Bb")))
    assert base.values(both) == ["person-p", "person-q"]
    assert base.values(("count", "natives", ("named", "Aa"))) == [2]


def test_surnames_alone_answer_only_where_one_person_bears_them():
    for split in SPLITS:
        found = built(split)
        surnames = Counter(entity.name.split()[-1] for entity in found.facts.of("person"))
        people = {entity.name for entity in found.facts.of("person")}
        short = [
            question
            for question in found.questions
            if question.answers[0] in people and question.answers[0].split()[-1] in question.answers
        ]
        assert short
        assert all(surnames[question.answers[0].split()[-1]] == 1 for question in short)


def spaced(text):
    return " " + " ".join(re.findall(r"\w+", text.lower())) + " "


@pytest.mark.parametrize("split", SPLITS)
def test_questions_are_fair(split):
    """The answer is not in the question, and a chain leads to it through different articles that
    say what it says they say.
    """
    found = world(split)
    texts = {article.id: article.text for article in found.articles}
    assert len(texts) == len(found.articles) == len({article.title for article in found.articles})
    assert (
        len({question.id for question in found.questions})
        == len({question.text for question in found.questions})
        == len(found.questions)
    )
    for question in found.questions:
        assert not any(spaced(answer) in spaced(question.text) for answer in question.answers), (
            question
        )
        assert (
            len({look.article for look in question.chain}) == len(question.chain) == question.hops
        )
        for look in question.chain:
            for part in look.finding.split("; "):
                assert part in texts[look.article], look
    sizes = Counter((question.kind, question.hops) for question in found.questions)
    assert set(sizes) == set(CELLS)
    assert max(sizes.values()) - min(sizes.values()) <= 1


def test_chains_end_in_the_answer():
    """Where the last thing read is the answer itself: bridges,
    and whatever is asked of one entity.
    """
    for question in world("test").questions:
        if question.kind == "bridge":
            assert question.chain[-1].finding.lower() == question.answers[0].lower(), question


def ngrams(text, longest):
    words = re.findall(r"[\w'&]+", text)
    return {
        " ".join(words[start : start + size])
        for start in range(len(words))
        for size in range(1, longest + 1)
    }


def invented(split, seed=0):
    return [
        entity
        for entity in built(split, seed=seed, questions=18).facts.entities
        if entity.kind not in REAL
    ]


def test_no_name_is_in_two_splits():
    names = {
        (split, seed): {entity.name for entity in invented(split, seed)}
        for split in SPLITS
        for seed in (0, 1)
    }
    for (split, seed), some in names.items():
        for (other, other_seed), others in names.items():
            assert split == other or not some & others, (split, seed, other, other_seed)
    for split in ("dev", "test"):
        said = set().union(
            *(ngrams(article.title + ". " + article.text, 7) for article in world(split).articles)
        )
        assert not said & names["train", 0]
        assert len(said & names[split, 0]) > 0.99 * len(names[split, 0])


def test_answers_depend_on_invented_entities():
    """Every question names somebody or something that only this world has."""
    for split in SPLITS:
        names = [entity.name for entity in invented(split)]
        own = set(names)
        for question, form in zip(built(split).questions, built(split).forms, strict=True):
            assert own & named_in(form), question


def named_in(form):
    if not isinstance(form, tuple):
        return set()
    return (
        {form[1]}
        if form and form[0] == "named"
        else set().union(*(named_in(part) for part in form))
    )


def test_the_same_on_every_machine():
    code = (
        "from palestra.envs.search.world import world; import hashlib; found = "
        "world('dev', seed=3, questions=180);"
        "print(hashlib.sha256(repr((found.articles, found.questions)).encode()).hexdigest())"
    )
    here = world("dev", seed=3, questions=180)
    digests = {hashlib.sha256(repr((here.articles, here.questions)).encode()).hexdigest()}
    for hash_seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
        digests.add(
            subprocess.run(
                [sys.executable, "-c", code],
                env=environment,
                capture_output=True,
                text=True,
                check=True,
            ).stdout.strip()
        )
    assert len(digests) == 1
    other = world("dev", seed=4, questions=180)
    assert not {question.text for question in other.questions} & {
        question.text for question in here.questions
    }


FLAWS = {
    "blanks": r"\s\s|\s[,;:?)]|\s\.\W|\(\s|^\s|\s$|\n",
    "a left-over of a template": r"[{}\[\]|]|\bNone\b|Entity",
    "a before a vowel": r"\b[Aa] (?!uni|use|Uni)[aeiouAEIOU]",
    "an before a consonant": r"\b[Aa]n [b-df-hj-np-tv-zB-DF-HJ-NP-TV-Z]",
    "a doubled word": r"\b(\w+) \1\b",
    "punctuation": r"\.\.|,,|,\.|;\.|\?\.|[^A-Z]\. [a-z]",
    "one of several": r"\b1 (pages|minutes|people|rooms|players|novels)\b",
}


@pytest.mark.parametrize("split", SPLITS)
def test_texts_are_well_formed(split):
    found = world(split)
    assert len(found.articles) > 4000
    for article in found.articles:
        for flaw, pattern in FLAWS.items():
            assert not re.search(pattern, article.text), (flaw, article)
        assert article.text[0].isupper()
        assert article.text.endswith(".")
        assert 60 <= len(article.text.split()) <= 250, article
        assert article.title in article.text
    for question in found.questions:
        for flaw, pattern in FLAWS.items():
            assert not re.search(pattern, question.text), (flaw, question)
        assert question.text[0].isupper()
        assert question.text[-1] in "?."


def test_every_fact_has_sentences_of_its_own():
    """Whatever a fact comes together with, there is more than one way to state it alone."""
    for seed in (0, 1):
        facts = built("train", seed=seed, questions=18).facts
        kinds = {entity.id: entity.kind for entity in facts.entities}
        words = {
            (entity.kind, word)
            for entity in facts.entities
            for word in entity.facts
            if not word.startswith("winner ")
        }
        words |= {
            (kinds[holder], name if len(members) > 1 else f"{name}_one")
            for (holder, name), members in facts.lists.items()
        }
        for kind, word in words - {("treaty", "party"), ("treaty", "counterparty")}:
            assert sum(template.words == (word,) for template in templates(kind)[1]) > 1, (
                kind,
                word,
            )


@pytest.mark.parametrize(
    "table", ["REFS", "ASKS", "DATES", "NUMBERS", "COUNTS", "COUNTS_UNTIL", "IN_YEAR", "FIRSTS"]
)
def test_long_phrases_can_stand_at_the_end(table):
    for options in vars(world_phrases)[table].values():
        assert any(option.rstrip("?").endswith("{x}") for option in options.split("|")), options


@pytest.mark.parametrize("kind", ["bridge", "comparison", "intersection", "temporal", "counting"])
def test_there_are_many_ways_to_ask(kind):
    def shape(form):
        return tuple(
            part.split()[0] if isinstance(part, str) else shape(part)
            for part in form
            if not isinstance(part, int) and form[0] != "named"
        )

    shapes = {
        shape(form)
        for split in SPLITS
        for q, form in zip(built(split).questions, built(split).forms, strict=True)
        if q.kind == kind
    }
    assert len(shapes) >= 10


def test_facts_fit_together():
    for split in SPLITS:
        facts = built(split).facts
        for person in facts.of("person"):
            about = person.facts
            assert 45 <= about["died"].year - about["born"].year <= 92
            if "teacher" in about:
                assert about["teacher"].facts["born"].year < about["born"].year
                assert about["teacher"].facts["died"].year > about["born"].year + 20
            if "spouse" in about:
                assert about["spouse"].facts["spouse"] is person
            if "alma_mater" in about:
                assert about["alma_mater"].facts["founded"] < about["born"].year + 17
        makers = {
            "novel": ("author", "published"),
            "painting": ("painter", "painted"),
            "film": ("director", "released"),
        }
        makers |= {
            "university": ("founder", "founded"),
            "expedition": ("leader", "began"),
            "theorem": ("author", "proved"),
        }
        for kind, (maker, year) in makers.items():
            for entity in facts.of(kind):
                about = entity.facts[maker].facts
                assert about["born"].year + 20 <= entity.facts[year] <= about["died"].year, entity
        for film in facts.of("film"):
            assert (
                "source" not in film.facts
                or film.facts["source"].facts["published"] < film.facts["released"]
            )
        for award in facts.of("award"):
            for relation, winner in award.facts.items():
                if relation.startswith("winner "):
                    assert (
                        award.facts["established"]
                        <= int(relation.split()[1])
                        < winner.facts["died"].year
                    )


def test_guessing_without_searching_is_hopeless():
    """The commonest answer in train to the same pattern of question, given in test."""

    def pattern(question, form):
        return question.kind, question.hops, *(part for part in form if isinstance(part, str))

    common = defaultdict(Counter)
    for question, form in zip(built("train").questions, built("train").forms, strict=True):
        common[pattern(question, form)][question.answers[0]] += 1
    right = sum(
        bool(counts := common[pattern(question, form)])
        and counts.most_common(1)[0][0] in question.answers
        for question, form in zip(built("test").questions, built("test").forms, strict=True)
    )
    assert right < 0.02 * QUESTIONS["test"]


def test_numbers_in_words():
    assert [in_words(number) for number in (0, 7, 13, 20, 21, 99)] == [
        "zero",
        "seven",
        "thirteen",
        "twenty",
        "twenty-one",
        "ninety-nine",
    ]


def test_bad_arguments():
    with pytest.raises(ValueError, match="no split 'valid'; there are: train, dev, test"):
        world("valid")
    with pytest.raises(ValueError, match="questions: 0, expected 1 or more"):
        world("dev", questions=0)
    assert len(world("dev", questions=5).questions) == 5


@pytest.mark.parametrize("split", ["dev", "test"])
def test_chains_can_be_followed_by_bm25(split):
    """Each lookup's article is among the first five for its query, for 99% of the questions of
    every category.
    """
    tantivy = pytest.importorskip("tantivy")
    schema = tantivy.SchemaBuilder()
    schema.add_text_field("id", stored=True, tokenizer_name="raw")
    schema.add_text_field("title", tokenizer_name="en_stem")
    schema.add_text_field("text", tokenizer_name="en_stem")
    index, found = tantivy.Index(schema.build()), world(split)
    writer = index.writer(50_000_000, 1)
    for article in found.articles:
        writer.add_document(tantivy.Document(id=article.id, title=article.title, text=article.text))
    writer.commit()
    index.reload()
    searcher, misses = index.searcher(), []
    for question in found.questions:
        for look in question.chain:
            query = index.parse_query(" ".join(re.findall(r"\w+", look.query)), ["title", "text"])
            if look.article not in [
                searcher.doc(address)["id"][0] for _, address in searcher.search(query, 5).hits
            ]:
                misses.append((question.kind, question.hops, look))
    assert len(misses) < 0.005 * len(found.questions), misses[:5]
