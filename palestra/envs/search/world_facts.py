"""The facts of a generated encyclopedia: entities, their relations, and the lists derived from
these.
"""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

LISTS = {
    "natives": ("person", "birthplace"),
    "students": ("person", "teacher"),
    "staff": ("person", "employer"),
    "novels": ("novel", "author"),
    "catalogue": ("novel", "publisher"),
    "paintings": ("painting", "painter"),
    "holdings": ("painting", "museum"),
    "compositions": ("composition", "composer"),
    "premieres": ("composition", "orchestra"),
    "films": ("film", "director"),
    "scores": ("film", "score"),
    "films_here": ("film", "location"),
    "adaptations": ("film", "source"),
    "theorems": ("theorem", "author"),
    "expeditions": ("expedition", "leader"),
    "sponsored": ("expedition", "sponsor"),
    "visits": ("expedition", "destination"),
    "towns": ("town", "river"),
    "twins": ("town", "twin"),
    "mines": ("town", "mineral"),
    "bought": ("company", "buyer"),
}
"""By name of a list: the kind of its members, and the fact by which they belong to it.

`winners` and `awards` are maintained separately.
"""

YEARS = {
    "novel": "published",
    "film": "released",
    "painting": "painted",
    "composition": "premiered",
    "theorem": "proved",
    "expedition": "began",
}
MONTHS = (
    "January February March April May June July August September October November December".split()
)
"""Not the standard library's, which depend on the locale."""
REAL = ("city", "country", "airport", "element")


@dataclass(eq=False, slots=True)
class Entity:
    kind: str
    name: str
    facts: dict[str, Any]
    """By relation; an award's winner in 1951 is its `winner 1951`."""
    is_woman: bool = False

    id: str = field(init=False)

    def __post_init__(self) -> None:
        plain = unicodedata.normalize("NFKD", self.name).encode("ascii", "ignore").decode().lower()
        self.id = f"{self.kind}-" + re.sub(r"[^a-z0-9]+", "-", plain.replace("'", "")).strip("-")

    def year(self) -> int | None:
        relation = YEARS.get(self.kind)
        return None if relation is None else self.facts[relation]


@dataclass(slots=True)
class Facts:
    entities: list[Entity] = field(default_factory=list)
    lists: dict[tuple[str, str], list[tuple[Entity, int | None]]] = field(default_factory=dict)
    """By an entity's id and a list's name: its members, with the year by which they are ordered."""

    def add(self, kind: str, name: str, *, is_woman: bool = False, **facts: Any) -> Entity:
        entity = Entity(
            kind, name, {key: value for key, value in facts.items() if value is not None}, is_woman
        )
        self.entities.append(entity)
        return entity

    def of(self, *kinds: str) -> list[Entity]:
        return [entity for entity in self.entities if entity.kind in kinds]

    def make_lists(self) -> None:
        names = {(kind, relation): name for name, (kind, relation) in LISTS.items()}
        for entity in self.entities:
            for relation, value in entity.facts.items():
                if name := names.get((entity.kind, relation)):
                    self.lists.setdefault((value.id, name), []).append((entity, entity.year()))
                elif relation.startswith("winner "):
                    year = int(relation.split()[1])
                    self.lists.setdefault((entity.id, "winners"), []).append((value, year))
                    self.lists.setdefault((value.id, "awards"), []).append((entity, year))
        for members in self.lists.values():
            members.sort(key=lambda pair: (pair[1] or 0, pair[0].name))


@cache
def real_facts() -> dict[str, Any]:
    """What `benchmarks/search_facts.py` took from public packages."""
    return json.loads(files(__package__).joinpath("world_real.json").read_text(encoding="utf-8"))


def taken_names() -> frozenset[str]:
    """Every word of a real name in the world, and real places that the grammar could generate."""
    real = real_facts()
    countries = list(real["countries"].values())
    names = [row["capital"] for row in countries]
    for rows in (real["cities"], real["airports"], real["elements"], countries):
        names += [row["name"] for row in rows]
    words = set(real["taken"])
    for name in names:
        words.update(re.split(r"[ \-–/.,()']+", name.lower()))
    return frozenset(words)


def add_real(facts: Facts) -> None:
    """The same in every world: background that an invented fact can lead to."""
    real = real_facts()
    countries = {}
    for code, row in real["countries"].items():
        countries[code] = facts.add(
            "country", **(row | {"population": _rounded(row["population"])})
        )
    cities = {}
    for row in real["cities"]:
        side = "north" if row["latitude"] >= 0 else "south"
        latitude = f"{abs(row['latitude']):.1f} degrees {side}"
        cities[row["name"]] = facts.add(
            "city",
            row["name"],
            country=countries[row["country"]],
            population=_rounded(row["population"]),
            latitude=latitude,
        )
    for row in real["airports"]:
        city = cities[row["city"]]
        airport = facts.add(
            "airport",
            row["name"],
            iata=row["iata"],
            icao=row["icao"] or None,
            elevation=row["elevation"],
            city=city,
        )
        city.facts["airport"] = airport
    for row in real["elements"]:
        wanted = ("symbol", "number", "weight", "melting", "discovered")
        facts.add("element", row["name"], **{key: row[key] for key in wanted})


def _rounded(number: int) -> int:
    """Two or three figures are enough for a population that changes."""
    unit = 10 ** max(len(str(number)) - 3, 0)
    return round(number / unit) * unit
