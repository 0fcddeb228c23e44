"""Makes the facts of one world: invented people, places, institutions, works, events and awards
that fit together in time and place.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from datetime import date, timedelta
from typing import Any

from palestra.core.seeds import derive_seed
from palestra.envs.search.world_facts import MONTHS, Entity, Facts, add_real, taken_names
from palestra.envs.search.world_names import CULTURES, Culture, Namer

OCCUPATIONS = {
    "novelist": 110, "painter": 75, "composer": 70, "film director": 60, "explorer": 60,
    "mathematician": 70, "architect": 90,
    "industrialist": 160, "conductor": 80, "diplomat": 70, "general": 70, "historian": 100,
    "botanist": 100,
}  # fmt: skip
FIELDS = {
    "novelist": ("prose fiction", "the art of the novel"), "painter": ("painting", "oil painting"),
    "composer": ("composition", "new music"), "conductor": ("the performance of music",
    "orchestral music"),
    "film director": ("film", "the art of film"), "mathematician": ("mathematics",
    "pure mathematics"),
    "architect": ("architecture", "public building"), "historian": ("the writing of history",
    "historical research"),
    "botanist": ("botany", "the study of plants"), "explorer": ("exploration", "geography"),
}  # fmt: skip
WORKPLACES = {
    "mathematician": ("university",), "historian": ("university", "museum"),
    "botanist": ("university", "museum"), "painter": ("museum",),
    "composer": ("orchestra",), "conductor": ("orchestra",), "industrialist": ("company",),
    "architect": ("company",),
    "novelist": ("university",),
}  # fmt: skip
PRODUCTS = """pianos|telescopes|bicycles|clocks|lamps|printing presses|rope|stained \
glass|cutlery|sewing machines|paper|soap|surgical
instruments|tin toys|barometers|church organs|tiles|locomotives|chocolate|carpets|fishing \
nets|porcelain|typewriters|umbrellas""".replace("\n", " ").split("|")
TOPICS = """braids|finite graphs|prime numbers|convex bodies|infinite series|knots|tilings of the \
plane|random walks|quadratic
forms|partitions|permutations|continued fractions|minimal surfaces|magic \
squares|lattices|polynomials""".replace("\n", " ").split("|")
DISPUTES = """fishing rights|a disputed border|river tolls|the use of forests|the salt trade|the \
exchange of prisoners|the keeping of
lighthouses|postal routes|grazing land|the harbour dues|the mail coach|railway gauges""".replace(
    "\n", " "
).split("|")
THEMES = (
    "chamber music|puppet theatre|poetry|silent film|folk song|organ music|short films|street "
    "theatre|storytelling|brass bands".split("|")
)
MINED = """Nickel Cobalt Manganese Chromium Vanadium Tungsten Molybdenum Titanium Niobium Tantalum \
Zirconium Barium Cadmium Bismuth
Beryllium Lithium Platinum Palladium Rhodium Iridium Osmium Strontium Magnesium Aluminum Thorium
Uranium Yttrium Zinc Selenium
Tellurium Cerium""".split()
KEYS: list[str] = []
for _note in [*"CDEFGAB", "E flat", "B flat", "F sharp"]:
    KEYS += [f"{_note} major", f"{_note} minor"]


def start_of(institution: Entity) -> int:
    return int(institution.facts["opened" if institution.kind == "museum" else "founded"])


class Maker:
    def __init__(self, split: str, seed: int) -> None:
        self.rng = random.Random(derive_seed("search world", split, seed))
        self.namer = Namer(split, self.rng, taken=taken_names())
        self.facts = Facts()
        self.load: Counter[tuple[str, str]] = Counter()
        self.by_occupation: dict[str, list[Entity]] = {}
        self.lands: list[tuple[Entity, Culture]] = []
        self.towns: list[Entity] = []
        self.debut: dict[str, int] = {}
        """By person: the year of the first work. Awards are only given after it."""

    def make(self) -> Facts:
        add_real(self.facts)
        self.cities = self.facts.of("city")
        self.places()
        self.people()
        self.islands()
        self.institutions()
        self.lives()
        self.works()
        self.films()
        self.events()
        self.awards()
        self.facts.make_lists()
        return self.facts

    # choosing

    def light(self, candidates: Sequence[Entity], use: str, *, cap: int) -> Entity | None:
        """One of the candidates that has not been used so `cap` times, or none."""
        for _ in range(12):
            if candidates and self.load[(entity := self.rng.choice(candidates)).id, use] < cap:
                self.load[entity.id, use] += 1
                return entity
        return None

    def adults(self, year: int, *occupations: str, least: int = 24, most: int = 75) -> list[Entity]:
        """Who was of that age and alive in that year."""
        found: list[Entity] = []
        for occupation in occupations or tuple(OCCUPATIONS):
            for person in self.by_occupation[occupation]:
                age = year - person.facts["born"].year
                if least <= age <= most and year < person.facts["died"].year:
                    found.append(person)
        return found

    def somebody(
        self, use: str, *occupations: str, years: tuple[int, int], cap: int = 2
    ) -> tuple[int, Entity]:
        """A random year and a person who was an adult then."""
        while True:
            year = self.rng.randint(*years)
            if person := self.light(self.adults(year, *occupations), use, cap=cap):
                return year, person

    def years_of(self, person: Entity, number: int, *, first: int = 0) -> list[int]:
        """Distinct years in a person's working life, in order."""
        start = max(person.facts["born"].year + 22, first)
        end = max(
            min(person.facts["died"].year - 1, person.facts["born"].year + 78), start + number
        )
        years = sorted(self.rng.sample(range(start, end + 1), number))
        self.debut[person.id] = years[0]
        return years

    def day(self, year: int) -> date:
        return date(year, 1, 1) + timedelta(days=self.rng.randrange(365))

    def town(self, use: str, *, cap: int, real: float = 0.0) -> Entity:
        while True:
            places = self.cities if self.rng.random() < real else self.towns
            if place := self.light(places, use, cap=cap):
                return place

    def fresh(self) -> str:
        culture = self.rng.choice(CULTURES)
        return self.namer.word(culture, culture.surname)

    # steps, in this order

    def places(self) -> None:
        rng, add = self.rng, self.facts.add
        minerals = [element for element in self.facts.of("element") if element.name in MINED]
        for culture in CULTURES:
            land = add(
                "land",
                self.namer.word(culture, "ia land mark eria"),
                independent=rng.randint(1795, 1925),
                population=rng.randint(900, 9000) * 1000,
            )
            land.facts["currency"] = self.namer.word(culture, "a o el").lower()
            self.lands.append((land, culture))
            rivers = []
            for _ in range(5):
                mouth = rng.choice(
                    ("Lake {}", "the Gulf of {}", "the {} Sea", "the Bay of {}")
                ).format(self.namer.word(culture, culture.place))
                name = self.namer.word(culture, "a e o el")
                rivers.append(
                    add("river", name, land=land, length=rng.randint(41, 890), mouth=mouth)
                )
            for _ in range(30):
                town = add(
                    "town",
                    self.namer.word(culture, culture.place),
                    land=land,
                    founded=rng.randint(1050, 1780),
                )
                town.facts["population"] = rng.randint(1200, 98000)
                extras = {
                    "river": (0.7, rivers, 7),
                    "twin": (0.5, self.cities, 2),
                    "mineral": (0.4, minerals, 4),
                }
                for relation, (chance, choices, cap) in extras.items():
                    if rng.random() < chance and (other := self.light(choices, relation, cap=cap)):
                        town.facts[relation] = other
                self.towns.append(town)
            land.facts["capital"] = rng.choice(self.towns[-30:])

    def people(self) -> None:
        first: list[dict[bool, list[str]]] = []
        for culture in CULTURES:
            women = [self.namer.word(culture, culture.female) for _ in range(36)]
            men = [self.namer.word(culture, culture.male) for _ in range(36)]
            first.append({True: women, False: men})
        families: list[list[str]] = [[] for _ in CULTURES]
        for occupation, number in OCCUPATIONS.items():
            for _ in range(number):
                index = self.rng.randrange(len(CULTURES))
                shared = families[index] and self.rng.random() < 0.25
                if shared:
                    surname = self.rng.choice(families[index])
                else:
                    surname = self.namer.word(CULTURES[index], CULTURES[index].surname)
                families[index].append(surname)
                woman = self.rng.random() < 0.45
                name = self.namer.new_full(first[index][woman], surname)
                born = self.day(
                    self.rng.randint(1875 if occupation == "film director" else 1785, 1925)
                )
                died = self.day(born.year + self.rng.randint(47, 91))
                person = self.facts.add(
                    "person", name, is_woman=woman, born=born, died=died, occupation=occupation
                )
                person.facts["birthplace"] = self.town("birth", cap=7, real=0.4)
                person.facts["deathplace"] = self.town("death", cap=9, real=0.5)
                self.by_occupation.setdefault(occupation, []).append(person)

    def islands(self) -> None:
        for land, culture in self.lands:
            sea = f"the {self.namer.word(culture, culture.place)} Sea"
            for _ in range(5):
                year, surveyor = self.somebody("survey", "explorer", years=(1815, 1960))
                facts: dict[str, Any] = {
                    "land": land,
                    "area": self.rng.randint(3, 990),
                    "peak": self.rng.randint(45, 2400),
                    "sea": sea,
                }
                self.facts.add(
                    "island",
                    self.namer.word(culture, culture.place),
                    surveyor=surveyor,
                    charted=year,
                    **facts,
                )

    def institutions(self) -> None:
        rng, add, new = self.rng, self.facts.add, self.fresh
        for _ in range(60):
            town = self.town("university", cap=1, real=0.2)
            year, founder = self.somebody(
                "found", "historian", "botanist", "diplomat", "industrialist", years=(1815, 1940)
            )
            if town.kind == "town":
                name = f"University of {town.name}"
            else:
                name = rng.choice((f"{new()} University", f"{new()} Institute"))
            rector = self.somebody(
                "rector", "historian", "botanist", "mathematician", years=(year, year + 3)
            )[1]
            add(
                "university",
                name,
                town=town,
                founded=year,
                founder=founder,
                rector=rector,
                volumes=rng.randint(40, 950) * 1000,
            )
        companies: list[Entity] = []
        for kind in ["publisher"] * 65 + ["company"] * 85:
            year, founder = self.somebody("found", "industrialist", years=(1812, 1960))
            word = new()
            if kind == "publisher":
                names = (f"{word} Press", f"{word} Verlag", f"{word} House")
            else:
                names = (f"{word} & Sons", f"{word} Works", f"{word} Brothers")
            company = add(
                kind,
                rng.choice(names),
                founded=year,
                founder=founder,
                headquarters=self.town("seat", cap=2, real=0.4),
            )
            company.facts["employees"] = (
                rng.randint(6, 96) if kind == "publisher" else rng.randint(55, 4800)
            )
            if kind == "company":
                company.facts["product"] = rng.choice(PRODUCTS)
                if rng.random() < 0.3 and (buyer := self.light(companies, "buyer", cap=2)):
                    company.facts["buyer"] = buyer
                companies.append(company)
        for _ in range(60):
            town = self.town("orchestra", cap=1, real=0.25)
            year, founder = self.somebody("found", "conductor", years=(1815, 1960), cap=1)
            stem = town.name if town.kind == "town" else new()
            name = (
                f"{stem} {rng.choice(('Philharmonic', 'Symphony Orchestra', 'Chamber Orchestra'))}"
            )
            add(
                "orchestra",
                name,
                town=town,
                founded=year,
                founder=founder,
                hall=f"{new()} Hall",
                players=rng.randint(24, 112),
            )
        for _ in range(70):
            town = self.town("museum", cap=1, real=0.25)
            year, architect = self.somebody("museum", "architect", years=(1815, 1985))
            name = f"{new()} Gallery"
            if town.kind == "town":
                name = rng.choice((f"{town.name} Museum of Art", name))
            add(
                "museum",
                name,
                town=town,
                opened=year,
                architect=architect,
                rooms=rng.randint(7, 94),
            )

    def lives(self) -> None:
        """Studies, teachers, marriages and employers: of people whose times fit."""
        rng = self.rng
        universities = self.facts.of("university")
        workplaces = {
            kind: self.facts.of(kind) for kind in ("university", "museum", "orchestra", "company")
        }
        for person in self.facts.of("person"):
            born, facts = person.facts["born"].year, person.facts
            open_then = [u for u in universities if u.facts["founded"] < born + 17]
            if open_then and rng.random() < 0.8:
                facts["alma_mater"] = rng.choice(open_then)
            teachers = self.adults(born + 22, facts["occupation"], least=32, most=80)
            if rng.random() < 0.55 and (teacher := self.light(teachers, "teacher", cap=6)):
                facts["teacher"] = teacher
            mates = [
                p
                for p in self.adults(born + 28, least=20, most=38)
                if p.is_woman != person.is_woman and "spouse" not in p.facts
            ]
            if "spouse" not in facts and rng.random() < 0.4 and mates:
                facts["spouse"] = mate = rng.choice(mates)
                mate.facts["spouse"] = person
            begun: list[Entity] = []
            for kind in WORKPLACES.get(facts["occupation"], ()):
                begun += [place for place in workplaces[kind] if start_of(place) < born + 40]
            if rng.random() < 0.6 and (employer := self.light(begun, "staff", cap=6)):
                facts["employer"] = employer

    def works(self) -> None:
        rng, add = self.rng, self.facts.add

        def title() -> str:
            return self.namer.title(rng.choice(self.towns).name)

        scenes = self.towns + self.facts.of("island")
        shelves = {
            kind: self.facts.of(kind)
            for kind in ("publisher", "museum", "orchestra", "university", "river")
        }
        for author in self.by_occupation["novelist"]:
            for year in self.years_of(author, rng.randint(1, 9)):
                houses = [house for house in shelves["publisher"] if house.facts["founded"] <= year]
                novel = add(
                    "novel",
                    title(),
                    author=author,
                    published=year,
                    publisher=self.light(houses, "publish", cap=10),
                )
                novel.facts |= {"setting": rng.choice(scenes), "pages": rng.randint(92, 780)}
                if rng.random() < 0.35:
                    novel.facts["dedicatee"] = self.other(self.adults(year), author)
        for painter in self.by_occupation["painter"]:
            for year in self.years_of(painter, rng.randint(1, 8)):
                acquired = year + rng.randint(1, 60)
                museums = [
                    museum for museum in shelves["museum"] if museum.facts["opened"] <= acquired
                ]
                painting = add(
                    "painting",
                    title(),
                    painter=painter,
                    painted=year,
                    museum=self.light(museums, "hold", cap=8),
                )
                painting.facts |= {
                    "motif": rng.choice(scenes + shelves["river"]),
                    "width": rng.randint(31, 410),
                    "acquired": acquired,
                }
        for composer in self.by_occupation["composer"]:
            for year in self.years_of(composer, rng.randint(1, 8)):
                orchestras = [
                    orchestra
                    for orchestra in shelves["orchestra"]
                    if orchestra.facts["founded"] <= year
                ]
                piece = add(
                    "composition",
                    title(),
                    composer=composer,
                    premiered=year,
                    orchestra=self.light(orchestras, "premiere", cap=8),
                )
                piece.facts |= {"key": rng.choice(KEYS), "minutes": rng.randint(7, 78)}
                if rng.random() < 0.5:
                    piece.facts["dedicatee"] = self.other(self.adults(year), composer)
        for author in self.by_occupation["mathematician"]:
            for year in self.years_of(author, rng.randint(1, 3)):
                places = [
                    university
                    for university in shelves["university"]
                    if university.facts["founded"] < year
                ]
                theorem = add(
                    "theorem",
                    f"{self.namer.pair()} theorem",
                    author=author,
                    proved=year,
                    topic=rng.choice(TOPICS),
                )
                theorem.facts["pages"] = rng.randint(3, 140)
                if places:
                    theorem.facts["university"] = rng.choice(places)
        for entity in self.facts.entities:
            entity.facts = {
                relation: value for relation, value in entity.facts.items() if value is not None
            }

    def other(self, people: list[Entity], than: Entity) -> Entity | None:
        return self.light([person for person in people if person is not than], "dedication", cap=3)

    def films(self) -> None:
        novels = self.facts.of("novel")
        for director in self.by_occupation["film director"]:
            for year in self.years_of(director, self.rng.randint(1, 7), first=1912):
                film = self.facts.add(
                    "film",
                    self.namer.title(self.rng.choice(self.towns).name),
                    director=director,
                    released=year,
                )
                if composer := self.light(self.adults(year, "composer"), "score", cap=6):
                    film.facts["score"] = composer
                film.facts |= {
                    "location": self.town("film", cap=4, real=0.2),
                    "minutes": self.rng.randint(58, 192),
                }
                earlier = [novel for novel in novels if novel.facts["published"] < year]
                if self.rng.random() < 0.5 and (novel := self.light(earlier, "film", cap=1)):
                    film.facts["source"] = novel

    def events(self) -> None:
        rng, add, pair = self.rng, self.facts.add, self.namer.pair
        sponsors = self.facts.of("company", "university", "museum")
        islands = self.facts.of("island")
        lands = [land for land, _ in self.lands]
        for leader in self.by_occupation["explorer"]:
            for year in self.years_of(leader, rng.randint(1, 4)):
                begun = [s for s in sponsors if start_of(s) <= year]
                voyage = add(
                    "expedition",
                    f"{self.fresh()} Expedition",
                    leader=leader,
                    began=year,
                    ship=pair(),
                    members=rng.randint(9, 128),
                )
                for relation, choices, cap in (("sponsor", begun, 3), ("destination", islands, 5)):
                    if choice := self.light(choices, relation, cap=cap):
                        voyage.facts[relation] = choice
        for _ in range(60):
            year, mediator = self.somebody("treaty", "diplomat", years=(1815, 1975))
            party, counterparty = rng.sample(lands, 2)
            treaty = add(
                "treaty",
                f"{pair()} Treaty",
                signed=self.day(year),
                place=self.town("treaty", cap=2, real=0.5),
                mediator=mediator,
            )
            treaty.facts |= {
                "party": party,
                "counterparty": counterparty,
                "topic": rng.choice(DISPUTES),
                "articles": rng.randint(5, 61),
            }
        for _ in range(80):
            year, founder = self.somebody("festival", years=(1830, 1975))
            festival = add(
                "festival",
                f"{pair()} Festival",
                town=self.town("festival", cap=2, real=0.2),
                first_held=year,
                founder=founder,
            )
            festival.facts |= {
                "month": rng.choice(MONTHS),
                "theme": rng.choice(THEMES),
                "visitors": rng.randint(12, 880) * 100,
            }
        for _ in range(60):
            year, victor = self.somebody("battle", "general", years=(1812, 1945))
            others = [general for general in self.adults(year, "general") if general is not victor]
            # Without others, the choice still consumes a random number.
            loser = rng.choice(others or [victor])
            if loser is not victor:
                facts: dict[str, Any] = {
                    "fought": self.day(year),
                    "near": self.town("battle", cap=1),
                    "victor": victor,
                    "loser": loser,
                }
                add(
                    "battle", f"Battle of {self.fresh()}", losses=rng.randint(30, 890) * 10, **facts
                )

    def awards(self) -> None:
        rng = self.rng
        for index in range(66):
            occupation = list(FIELDS)[index % len(FIELDS)]
            givers = self.facts.of("university", "museum", "orchestra", "company")
            first = rng.randint(1920 if occupation == "film director" else 1850, 1935)
            giver = self.light([g for g in givers if start_of(g) <= first], "award", cap=2)
            facts: dict[str, Any] = {
                "field": rng.choice(FIELDS[occupation]),
                "established": first,
                "money": rng.randint(3, 96) * 500,
                "giver": giver,
            }
            won: dict[str, Any] = {}
            for year in sorted(rng.sample(range(first, first + 60), 20)):
                adults = self.adults(year, occupation, least=28, most=88)
                candidates = [
                    person
                    for person in adults
                    if person not in won.values() and self.debut.get(person.id, 0) <= year
                ]
                if len(won) < 3 + index % 9 and (winner := self.light(candidates, "award", cap=4)):
                    won[f"winner {year}"] = winner
            if len(won) > 2:
                self.facts.add(
                    "award",
                    f"{self.fresh()} {rng.choice(('Prize', 'Medal', 'Award'))}",
                    **facts,
                    **won,
                )
