"""Invented names: people and places by the sound of a culture, titles by English words.

A name belongs to one split only.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from palestra.core.seeds import derive_seed

SPLITS = ("train", "dev", "test")


@dataclass(frozen=True, slots=True)
class Culture:
    """A word is an onset, a vowel, a coda and an ending; blanks separate the choices, `-` stands
    for nothing.
    """

    onsets: str
    vowels: str
    codas: str
    female: str
    male: str
    surname: str
    place: str

    def words(self, endings: str) -> Iterator[str]:
        """All words with these endings that the grammar can generate."""
        for onset in self.onsets.split():
            for vowel in self.vowels.split():
                for coda in self.codas.split():
                    for ending in endings.split():
                        yield (onset + vowel + coda + ending).replace("-", "").capitalize()

    def word(self, rng: random.Random, endings: str) -> str:
        parts = (
            rng.choice(part.split()) for part in (self.onsets, self.vowels, self.codas, endings)
        )
        return "".join(parts).replace("-", "").capitalize()


CULTURES = (
    Culture(
        "b br d f g h hj k kv l m n r s sk st t tr v", "a e i o u y", "l lm n nd r rk rn st v lt",
        "a e id unn ild eva", "ar ulf en or mund ik", "stad holt mund eng rud skog nes aas grim",
        "vik heim sund fjell havn mo lund",
    ),
    Culture(
        "b c ch d f g gr l m n p r s t v pr", "a e i o u", "l r n ss rr nt v z",
        "ina ela ora ietta osa", "o ano ico eo andro",
        "avelli endra osetti iardo umeo ezzano orval ighera",
        "avento osca iglia ento arosa ezza ola",
    ),
    Culture(
        "b d dr g k kr l m n p r s sl t v z zd br", "a e i o u", "l r v n m sh zh t k",
        "ina eva ka iya ana", "imir an ek islo or",
        "avsek orny ilchek umenko azhin evnik ovrin adze", "ovets avna insk opol ytsa irovo",
    ),
    Culture(
        "br c cr d gl gw ll m n p pr rh t tr h", "a e o y u", "l r n rth dd th nn w",
        "wen eth ys ana eira", "an ydd or ec ion", "wyth addon orrig edwen anver ythan ennick",
        "porth nant dref mawr combe avon",
    ),
    Culture(
        "b ch d g gh k m n s t y z sh j", "a e i o u", "r l z n k sh m y",
        "ay ule inaz eya ima", "an ur esh ikan al", "alkan ubay emir olgan azhan ergul iskan",
        "ylar umsha ikul oray asun etesh",
    ),
    Culture(
        "k m n t v r l p wh h f", "ai a e i o u au", "ka la ri no te va mu lo ne pu",
        "lia nea rua ina mere", "ko tane vi rau molo", "taleo vaki noroa sefa hauli pono tirea",
        "noa tuka fau loro vai mana",
    ),
    Culture(
        "b d g h k m s sh t y z n f r", "a e i o u", "b d m r l f n s bd",
        "ima esh aya ena ute", "al em ir on af", "adeb issal owan emret uhail aroum ithan",
        "ara eshet umma iyan adi oun",
    ),
    Culture(
        "b br d dr f g gr h k l m r schl st t v w zw", "a e i o u ee oo", "l r n m rt nk ff ld",
        "a tje ine el burg", "en er hard man wig",
        "brecht winkel stroom dahler loos veld horst meyk",
        "dorp wede lingen hoven steyn recht mond",
    ),
)  # fmt: skip

ADJECTIVES = """amber ashen bitter blue borrowed brass broken buried burning copper crooked \
distant drowned dusty eleventh empty fading
final first forgotten frozen gilded green grey hidden hollow hungry idle inland iron ivory last \
leaden little locked lonely lost lower
marble midnight narrow ninth northern painted pale patient quiet red restless russet sable salt \
scarlet second secret seventh
shallow silent silver sleeping slow southern stolen tame third thirsty tin unlit unwritten velvet
vanished wandering weathered
western white wooden yellow""".split()
NOUNS = """almanac anchor apiary archive avenue balcony barge beacon bell bridge candle canal \
caravan carousel cellar chapel clock cloister
compass corridor cradle dovecote envelope estuary ferry fiddle foundry fountain furnace garden \
gate glacier granary guest
harbour harvest heron hourglass inkwell juniper kiln ladder lagoon lantern ledger lighthouse loom \
magpie mast meadow mill mirror
moth oar orchard organ oven parade parish pavilion pendulum pier pilgrim plough puppet quarry quay \
raft rookery saddle sail
scaffold signal sleigh spade spire stable staircase station stove thimble threshold tide tower
tunnel umbrella vessel viaduct
vineyard violin voyage wardrobe weaver well wharf widow willow window winter workshop""".split()
PEOPLE = """apothecary astronomer baker beekeeper bookbinder cartographer clockmaker cobbler \
engraver ferryman gardener glazier harpist
innkeeper juggler lamplighter miller notary organist postman printer saddler sculptor sexton
shepherd tailor translator watchman""".split()


def split_of(name: str) -> str:
    """The split to which a name belongs: no two splits share a name, for any seeds."""
    return SPLITS[derive_seed("name", name.lower().removeprefix("the ")) % len(SPLITS)]


class Namer:
    """Gives out names, each once, that belong to `split` and are not taken by the real world."""

    def __init__(self, split: str, rng: random.Random, *, taken: frozenset[str]) -> None:
        self.split, self.rng, self.taken = split, rng, taken
        self.given: set[str] = set()

    def new(self, make: Callable[[], str]) -> str:
        while True:
            name = make()
            if (
                re.search(r"(.)\1\1", name)
                or name.lower() in self.given
                or name.lower() in self.taken
            ):
                continue
            if split_of(name) == self.split:
                self.given.add(name.lower())
                return name

    def word(self, culture: Culture, endings: str) -> str:
        return self.new(lambda: culture.word(self.rng, endings))

    def new_full(self, first_names: list[str], surname: str) -> str:
        """A person's name: first names are many people's, the whole is one's."""
        while (name := f"{self.rng.choice(first_names)} {surname}").lower() in self.given:
            pass
        self.given.add(name.lower())
        return name

    def title(self, place: str) -> str:
        """A title of a novel, film, painting or composition. Some contain a place."""
        return self.new(lambda: self._title(place))

    def pair(self) -> str:
        """A pair of words, as in "Copper Heron Festival"."""
        return self.new(lambda: f"{self.rng.choice(ADJECTIVES)} {self.rng.choice(NOUNS)}".title())

    def _title(self, place: str) -> str:
        adjective, noun, other, person = (
            self.rng.choice(words) for words in (ADJECTIVES, NOUNS, NOUNS, PEOPLE)
        )
        patterns = (
            f"The {adjective} {noun}", f"The {adjective} {noun}", f"The {noun} and the {other}",
            f"The {person}'s {noun}",
            f"A {noun} for the {person}",
            f"{noun} of the {adjective} {other}", f"The {noun} at {place}",
            f"{place} in {noun} light", f"No {noun} without a {other}",
            f"Notes from the {noun}", f"Return to {place}", f"The last {person} of {place}",
            f"A {adjective} {noun}",
            f"Beyond the {adjective} {noun}", f"The {adjective} {person}", f"Letters to a {person}",
            f"Under the {noun} of {place}",
        )  # fmt: skip
        if noun == other:
            return self._title(place)
        return _title_case(with_articles(self.rng.choice(patterns)))


def with_articles(text: str) -> str:
    """Change "a" to "an" before a vowel sound."""
    return re.sub(r"\b([Aa]) (?=[aeioAEIO]|[uU](?!ni|se))", r"\1n ", text)


def _title_case(title: str) -> str:
    small = {"a", "an", "and", "at", "for", "from", "in", "of", "the", "to", "without"}
    words = title.split()
    return " ".join(
        word if index and word in small else word[0].upper() + word[1:]
        for index, word in enumerate(words)
    )
