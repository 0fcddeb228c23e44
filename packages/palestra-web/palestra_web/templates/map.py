"""Tasks on the map."""

# The queries are put together from parts, of our own seed's data alone.
# ruff: noqa: S608

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from palestra.envs.web.solutions import Solution, View, stop
from palestra.envs.web.tasks import Evaluation, answer, answer_with, ends_at
from palestra.envs.web.template import Slots, Template
from palestra_web.seeds import seed_rows
from palestra_web.sites.map.geo import distance_km
from palestra_web.templates.common import called, number

HOME = "http://map.test/"
OTHER_TOWNS = (
    "Córdoba",
    "Granada",
    "Valencia",
    "Hyderabad",
    "Birmingham",
    "Santiago",
    "Barcelona",
    "Cartagena",
    "Guadalajara",
    "León",
)
"""Names that more than one town has."""


def towns(where: str = "1", count: int = 8, offset: int = 0) -> list[dict[str, Any]]:
    """Towns of some size whose names are the only ones of their kind, the largest first."""
    return seed_rows(
        "map",
        "SELECT place.*, country.name AS country_name FROM place "
        "JOIN country ON country.code = place.country WHERE folded IN (SELECT folded FROM place "
        "GROUP BY folded HAVING count(*) = 1) AND region = '' AND place.name GLOB '[A-Z]*[a-z]' "
        f"AND instr(place.name, '-') = 0 AND instr(place.name, '''') = 0 AND {where} "
        "ORDER BY place.population DESC LIMIT ? OFFSET ?",
        count,
        offset,
    )


def search(page: View, town: str, country: str) -> Solution:
    """To the town's page."""
    yield page.type("searchbox", "Search for a place", town, enter=True)
    yield page.click("link", f"{town}, {country}")


class Population(Template):
    id, sites, split, start = "map-population", ("map",), "train", HOME
    intent = "How many inhabitants does {town} in {country} have, according to the map?"

    def instances(self) -> Sequence[Slots]:
        return [
            {"town": t["name"], "country": t["country_name"], "population": t["population"]}
            for t in towns(count=8, offset=40)
        ]

    def evaluation(self, slots: Slots) -> Evaluation:
        return number(slots["population"])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from search(page, slots["town"], slots["country"])
        yield stop(page.find("cell", after="Population").name)


class TimeZone(Template):
    id, sites, split, start = "map-time-zone", ("map",), "train", HOME
    intent = (
        "In which time zone does the map put {town} ({country})? Answer with its name, such as "
        "Europe/Paris."
    )

    def instances(self) -> Sequence[Slots]:
        places = towns(
            "country.name IN ('Brazil', 'Russia', 'Kazakhstan', 'Indonesia', 'Mexico', "
            "'Argentina')",
            count=8,
            offset=30,
        )
        return [
            {"town": t["name"], "country": t["country_name"], "zone": t["timezone"]} for t in places
        ]

    def evaluation(self, slots: Slots) -> Evaluation:
        return answer(slots["zone"])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from search(page, slots["town"], slots["country"])
        yield stop(page.find("cell", after="Time zone").name)


class Distance(Template):
    id, sites, split, start = "map-distance", ("map",), "test", HOME
    intent = (
        "How many kilometres is it in a straight line from {start} to {finish}? Answer with the "
        "whole number that the map shows."
    )

    def instances(self) -> Sequence[Slots]:
        places = towns(count=16, offset=8)
        pairs = zip(places[:8], places[8:], strict=True)
        return [
            {
                "start": a["name"],
                "finish": b["name"],
                "km": round(
                    distance_km((a["latitude"], a["longitude"]), (b["latitude"], b["longitude"]))
                ),
            }
            for a, b in pairs
        ]

    def evaluation(self, slots: Slots) -> Evaluation:
        return number(slots["km"])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield page.type("textbox", "From", slots["start"])
        yield page.type("textbox", "To", slots["finish"])
        yield page.click("button", "Get directions")
        yield stop(page.find("cell", after="Total distance").name)


class Nearest(Template):
    id, sites, split, start = "map-nearest", ("map",), "train", HOME
    intent = (
        "Which town on the map with at least {population} inhabitants is nearest to {town}? Answer "
        "with its name."
    )

    def instances(self) -> Sequence[Slots]:
        everything = seed_rows("map", "SELECT * FROM place")
        return [
            self._slots(town, everything)
            for town in towns("country.name IN ('Germany', 'Poland', 'Spain', 'Italy')", 8, 10)
        ]

    def _slots(self, town: dict[str, Any], everything: list[dict[str, Any]]) -> Slots:
        own, population = (town["latitude"], town["longitude"]), 300_000
        others = [
            other
            for other in everything
            if other["population"] >= population and other["id"] != town["id"]
        ]
        nearest = min(
            others, key=lambda other: distance_km(own, (other["latitude"], other["longitude"]))
        )
        return {
            "town": town["name"],
            "country": town["country_name"],
            "population": population,
            "nearest": nearest["name"],
        }

    def evaluation(self, slots: Slots) -> Evaluation:
        return called(slots["nearest"])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from search(page, slots["town"], slots["country"])
        yield page.click("link", "Nearest towns")
        yield page.type("textbox", "Within (km)", "900")
        yield page.type("textbox", "At least so many inhabitants", str(slots["population"]))
        yield page.click("button", "Show")
        yield stop(page.all("link", after="The nearest towns")[0].name.partition(",")[0])


class LargestTown(Template):
    id, sites, split, start = "map-country-towns", ("map",), "test", HOME
    intent = (
        "Of all towns of {country}, which has the third largest population on the map? Answer with "
        "its name."
    )

    def instances(self) -> Sequence[Slots]:
        found = []
        for country in (
            "Norway",
            "Portugal",
            "Hungary",
            "Vietnam",
            "Kenya",
            "Chile",
            "Finland",
            "Ecuador",
        ):
            (row,) = seed_rows(
                "map",
                "SELECT place.name, continent FROM place JOIN country ON code = place.country "
                "WHERE country.name = ? ORDER BY place.population DESC LIMIT 1 OFFSET 2",
                country,
            )
            found.append({"country": country, "continent": row["continent"], "town": row["name"]})
        return found

    def evaluation(self, slots: Slots) -> Evaluation:
        return called(slots["town"])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield page.click("link", "Countries")
        yield page.click("link", slots["continent"])
        yield from page.reach("link", slots["country"])
        yield page.click("link", slots["country"])
        yield stop(page.all("link", after="The largest towns")[2].name.partition(",")[0])


class OpenPlace(Template):
    id, sites, split, start = "map-open-place", ("map",), "train", HOME
    intent = "Open the map's page of {town} in {country}."

    def instances(self) -> Sequence[Slots]:
        """The second largest of a name: the first result is another one."""
        found = []
        for name in OTHER_TOWNS:
            same = seed_rows(
                "map",
                "SELECT place.id, place.name, place.region, country.name AS country_name "
                "FROM place JOIN country ON code = place.country WHERE place.name = ? "
                "ORDER BY place.population DESC",
                name,
            )
            others = [
                row
                for row in same[1:]
                if row["country_name"] not in {same[0]["country_name"], "United States"}
            ]
            if others:
                found.append(
                    {
                        "town": name,
                        "country": others[0]["country_name"],
                        "url": f"{HOME}place/{others[0]['id']}",
                    }
                )
        return found

    def evaluation(self, slots: Slots) -> Evaluation:
        return ends_at(slots["url"])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from search(page, slots["town"], slots["country"])
        yield stop()


class Neighbours(Template):
    id, sites, split, start = "map-neighbours", ("map",), "train", HOME
    intent = (
        "Which currency is used in the country whose capital is {capital}? And how many countries "
        "does it border, according to the map?"
    )

    def instances(self) -> Sequence[Slots]:
        capitals = ("Vienna", "Nairobi", "Lima", "Hanoi", "Warsaw", "Accra", "Kyiv", "Santiago")
        found = []
        for capital in capitals:
            (row,) = seed_rows("map", "SELECT * FROM country WHERE capital = ?", capital)
            count = len([code for code in row["neighbours"].split(",") if code])
            found.append(
                {
                    "capital": capital,
                    "country": row["name"],
                    "currency": row["currency"],
                    "count": count,
                }
            )
        return found

    def evaluation(self, slots: Slots) -> Evaluation:
        return answer_with(slots["currency"], str(slots["count"]))

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from search(page, slots["capital"], slots["country"])
        yield page.click("link", slots["country"])
        neighbours = page.find("cell", after="Neighbours").name.split(", ")
        yield stop(f"{page.find('cell', after='Currency').name}, {len(neighbours)}")


TEMPLATES: tuple[Template, ...] = (
    Population(),
    TimeZone(),
    Distance(),
    Nearest(),
    LargestTown(),
    OpenPlace(),
    Neighbours(),
)
