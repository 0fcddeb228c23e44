"""Tasks on the map that change a user's data."""

# The queries are put together from parts, of our own seed's data alone.
# ruff: noqa: S608

from __future__ import annotations

from collections.abc import Sequence

from palestra.envs.web.solutions import Solution, View, stop
from palestra.envs.web.tasks import Evaluation, rows
from palestra.envs.web.template import Slots, Template
from palestra_web.seeds import seed_rows
from palestra_web.templates.common import OfAUser
from palestra_web.templates.map import HOME, search, towns

ITEMS = (
    "SELECT user.login AS user, list.name AS list, place.name AS town, list_item.note "
    "FROM list_item JOIN list ON list.id = list_item.list JOIN user ON user.id = list.user "
    "JOIN place ON place.id = list_item.place"
)
NOTES = (
    "Ask for the night train",
    "In October",
    "Ferry at noon",
    "Only by day",
    "Bring the camera",
    "Two nights",
    "With Ida",
)
USERS = ("emma", "noor", "tomas")
WAYS = ("foot", "bicycle", "car", "plane")


def last(table: str) -> int:
    """The last id of the seed: rows with higher ids are new."""
    return int(seed_rows("map", f"SELECT max(id) AS last FROM {table}")[0]["last"] or 0)


class OnTheMap(OfAUser):
    sites, start, changes = ("map",), HOME, True


class SavePlace(OnTheMap):
    id, split = "map-save-place", "train"
    intent = 'Save {town} ({country}) to my list "{list}", with the note "{note}".'

    def instances(self) -> Sequence[Slots]:
        lists = seed_rows(
            "map",
            "SELECT user.login AS user, list.name AS list FROM list "
            "JOIN user ON user.id = list.user ORDER BY list.id",
        )
        places = towns("place.population < 800000", 7, 100)
        return [
            {**own, "town": town["name"], "country": town["country_name"], "note": note}
            for own, town, note in zip(lists, places, NOTES, strict=True)
        ]

    def evaluation(self, slots: Slots) -> Evaluation:
        expected = [[slots["user"], slots["list"], slots["town"], slots["note"]]]
        return rows(
            "map",
            f"{ITEMS} WHERE list_item.id > {last('list_item')}",
            expected,
            changed=["list_item"],
        )

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from search(page, slots["town"], slots["country"])
        yield page.select("combobox", "List", slots["list"])
        yield page.type("textbox", "Note", slots["note"])
        yield page.click("button", "Save to list")
        yield stop()


class RemovePlace(OnTheMap):
    id, split = "map-remove-place", "test"
    intent = 'Take {town} off my list "{list}".'

    def instances(self) -> Sequence[Slots]:
        return seed_rows("map", f"{ITEMS} WHERE list_item.id % 2 ORDER BY list_item.id")

    def evaluation(self, slots: Slots) -> Evaluation:
        others = [row for row in seed_rows("map", f"{ITEMS} ORDER BY list_item.id") if row != slots]
        return rows(
            "map",
            f"{ITEMS} ORDER BY list_item.id",
            [list(row.values()) for row in others],
            changed=["list_item"],
        )

    def solve(self, page: View, slots: Slots) -> Solution:
        yield page.click("link", "My lists")
        yield page.click("link", slots["list"])
        yield page.click("button", f"Remove {slots['town']}")
        yield stop()


class ChangeNote(OnTheMap):
    id, split = "map-change-note", "train"
    intent = 'On my list "{list}", change the note for {town} to "{new}".'

    def instances(self) -> Sequence[Slots]:
        found = seed_rows(
            "map", f"{ITEMS} WHERE list_item.note != '' ORDER BY list_item.id LIMIT 7"
        )
        return [{**row, "new": f"{note} (changed)"} for row, note in zip(found, NOTES, strict=True)]

    def evaluation(self, slots: Slots) -> Evaluation:
        expected = []
        for row in seed_rows("map", f"{ITEMS} ORDER BY list_item.id"):
            is_changed = (row["list"], row["town"]) == (slots["list"], slots["town"])
            note = slots["new"] if is_changed else row["note"]
            expected.append([row["user"], row["list"], row["town"], note])
        return rows("map", f"{ITEMS} ORDER BY list_item.id", expected, changed=["list_item"])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield page.click("link", "My lists")
        yield page.click("link", slots["list"])
        yield page.type("textbox", f"Note for {slots['town']}", slots["new"])
        yield page.click("button", "Save note", after=f"Note for {slots['town']}")
        yield stop()


class NewList(OnTheMap):
    id, split = "map-new-list", "train"
    intent = 'Make a new list called "{list}" and save {town} ({country}) to it, without a note.'

    def instances(self) -> Sequence[Slots]:
        names = (
            "Spring 2027",
            "Quiet places",
            "Good bread",
            "Old bridges",
            "By night bus",
            "Language courses",
            "Friends of friends",
        )
        return [
            {
                "user": USERS[n % 3],
                "list": name,
                "town": town["name"],
                "country": town["country_name"],
            }
            for n, (name, town) in enumerate(
                zip(names, towns("place.population < 400000", 7, 300), strict=True)
            )
        ]

    def evaluation(self, slots: Slots) -> Evaluation:
        expected = [[slots["user"], slots["list"], slots["town"], ""]]
        return rows(
            "map",
            f"{ITEMS} WHERE list.id > {last('list')}",
            expected,
            changed=["list", "list_item"],
        )

    def solve(self, page: View, slots: Slots) -> Solution:
        yield page.click("link", "My lists")
        yield page.type("textbox", "New list", slots["list"])
        yield page.click("button", "Create list")
        yield page.click("link", "Wayfinder")
        yield from search(page, slots["town"], slots["country"])
        yield page.select("combobox", "List", slots["list"])
        yield page.click("button", "Save to list")
        yield stop()


class SaveRoute(OnTheMap):
    id, split = "map-save-route", "train"
    intent = "Save the route from {start} to {finish} by way of {via}, by {travel}."

    def instances(self) -> Sequence[Slots]:
        places = [town["name"] for town in towns(count=24, offset=60)]
        return [
            {
                "user": USERS[n % 3],
                "start": places[n],
                "via": places[n + 8],
                "finish": places[n + 16],
                "travel": WAYS[n % 4],
            }
            for n in range(8)
        ]

    def evaluation(self, slots: Slots) -> Evaluation:
        query = (
            "SELECT user.login AS user, a.name AS start, b.name AS via, c.name AS finish, travel "
            "FROM route JOIN user ON user.id = route.user JOIN place a ON a.id = start "
            "JOIN place b ON b.id = via JOIN place c ON c.id = finish "
            f"WHERE route.id > {last('route')}"
        )
        expected = [[slots[name] for name in ("user", "start", "via", "finish", "travel")]]
        return rows("map", query, expected, changed=["route"])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield page.type("textbox", "From", slots["start"])
        yield page.type("textbox", "Via", slots["via"])
        yield page.type("textbox", "To", slots["finish"])
        yield page.select("combobox", "Travel by", slots["travel"].capitalize())
        yield page.click("button", "Get directions")
        yield page.click("button", "Save this route")
        yield stop()


class Settings(OnTheMap):
    id, split = "map-settings", "test"
    intent = "Set my home town to {town} and let the map show distances in miles."

    def instances(self) -> Sequence[Slots]:
        return [
            {"user": USERS[n % 3], "town": town["name"]}
            for n, town in enumerate(towns("place.population < 600000", 8, 200))
        ]

    def evaluation(self, slots: Slots) -> Evaluation:
        query = (
            "SELECT login, units, place.name AS home FROM user JOIN place ON place.id = home "
            "WHERE units = 'miles'"
        )
        return rows("map", query, [[slots["user"], "miles", slots["town"]]], changed=["user"])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield page.click("link", "Settings")
        yield page.type("textbox", "Home town", slots["town"])
        yield page.select("combobox", "Units", "Miles")
        yield page.click("button", "Save settings")
        yield stop()


class Report(OnTheMap):
    id, split = "map-report", "test"
    intent = (
        "Report to the map that {town} ({country}) has this problem: {kind}. Give as details: "
        '"{text}"'
    )

    def instances(self) -> Sequence[Slots]:
        reports = (
            ("Wrong name", "The town was renamed last year."),
            ("Wrong position", "The marker stands in the river."),
            ("Wrong population", "The figure is from an old census."),
            ("Wrong time zone", "It keeps the time of the capital."),
        )
        places = enumerate(towns("place.population < 300000", 8, 400))
        return [
            {
                "user": USERS[n % 3],
                "town": town["name"],
                "country": town["country_name"],
                "kind": reports[n % 4][0],
                "text": reports[n % 4][1],
            }
            for n, town in places
        ]

    def evaluation(self, slots: Slots) -> Evaluation:
        query = (
            "SELECT user.login AS user, place.name AS town, kind, text FROM report"
            " JOIN user ON user.id = report.user JOIN place ON place.id = report.place"
        )
        return rows(
            "map",
            query,
            [[slots[name] for name in ("user", "town", "kind", "text")]],
            changed=["report"],
        )

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from search(page, slots["town"], slots["country"])
        yield page.select("combobox", "What is wrong", slots["kind"])
        yield page.type("textbox", "Details", slots["text"])
        yield page.click("button", "Send report")
        yield stop()


TEMPLATES: tuple[Template, ...] = (
    SavePlace(),
    RemovePlace(),
    ChangeNote(),
    NewList(),
    SaveRoute(),
    Settings(),
    Report(),
)
