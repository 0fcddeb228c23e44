"""Tasks that lead from one of the forum, the museum, the code host and the map to another."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

from palestra.envs.web.solutions import Solution, View, goto, stop
from palestra.envs.web.tasks import Evaluation, rows
from palestra.envs.web.template import Slots, Template
from palestra_web.seeds import seed_rows
from palestra_web.sites.map.geo import distance_km
from palestra_web.templates import cms as museum
from palestra_web.templates import code as code_host
from palestra_web.templates import forum as gardeners
from palestra_web.templates import map as world
from palestra_web.templates import map_own as own_map


def new_ticket(page: View, title: str, text: str) -> Solution:
    """A wish about harbours, from the code host's first page."""
    yield page.click("link", "Tickets")
    yield page.click("link", "New ticket")
    yield page.type("textbox", "Title", title)
    yield page.select("combobox", "Type", "Feature_Request")
    yield page.select("combobox", "Subsystem", "harbours")
    yield page.type("textbox", "Description", text)
    yield page.click("button", "Submit ticket")
    yield stop()


def ticket_made(title: str, text: str) -> Evaluation:
    said = "(SELECT icomment FROM ticketchng change WHERE change.tkt_id = ticket.tkt_id) AS said"
    return rows(
        "code",
        code_host.tickets_changed(f"type, subsystem, {said}"),
        [[title, "Feature_Request", "harbours", text]],
    )


class HarbourTicket(Template):
    id, sites, split, start, changes = (
        "code-map-harbour",
        ("code", "map"),
        "train",
        code_host.HOME,
        True,
    )
    intent = (
        'File a ticket on the code host with the title "Harbour of {town}", the type '
        "Feature_Request and the subsystem harbours. Its description is the latitude and the "
        "longitude of {town} ({country}) as the map at http://map.test/ shows them, written like "
        "54.3233, 10.1394"
    )
    users: ClassVar[Mapping[str, str]] = {"code": "oskar"}

    def instances(self) -> Sequence[Slots]:
        harbours = (
            "Odesa",
            "Durban",
            "Antwerpen",
            "Gdynia",
            "Izmir",
            "Busan",
            "Piraeus",
            "Gothenburg",
            "Trieste",
            "Recife",
        )
        found = []
        for name in harbours:
            places = world.towns(f"place.name = '{name}'")
            found += [
                {
                    "town": p["name"],
                    "country": p["country_name"],
                    "position": f"{p['latitude']:.4f}, {p['longitude']:.4f}",
                }
                for p in places
            ]
        return found[:8]

    def evaluation(self, slots: Slots) -> Evaluation:
        return ticket_made(f"Harbour of {slots['town']}", slots["position"])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield goto(world.HOME)
        yield from world.search(page, slots["town"], slots["country"])
        position = (
            f"{page.find('cell', after='Latitude').name}, "
            f"{page.find('cell', after='Longitude').name}"
        )
        yield goto(code_host.HOME)
        yield from new_ticket(page, f"Harbour of {slots['town']}", position)


class EventTicket(Template):
    id, sites, split, start, changes = (
        "cms-code-event",
        ("cms", "code"),
        "train",
        code_host.HOME,
        True,
    )
    intent = (
        'File a ticket on the code host with the title "Table for the museum", the type '
        "Feature_Request and the subsystem harbours. Its description is the date of the event "
        '"{title}" on the museum\'s website at http://cms.test/, written as it stands there.'
    )
    users: ClassVar[Mapping[str, str]] = {"code": "priya"}

    def instances(self) -> Sequence[Slots]:
        return [
            {"title": row["title"], "date": museum.spoken(row["date"], weekday=True)}
            for row in museum.pages("event", skip=4)
        ]

    def evaluation(self, slots: Slots) -> Evaluation:
        return ticket_made("Table for the museum", slots["date"])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield goto(museum.HOME)
        yield from museum.find(page, slots["title"])
        date = museum.value(page, "Date")
        yield goto(code_host.HOME)
        yield from new_ticket(page, "Table for the museum", date)


class GettingHere(Template):
    id, sites, split, start, changes = (
        "cms-map-getting-here",
        ("cms", "map"),
        "test",
        museum.ADMIN,
        True,
    )
    intent = (
        'The museum\'s page "Getting here" shall say how far it is from {town}. Look it up on '
        "the map at http://map.test/: the distance in a straight line from {town} to Bremerhaven. "
        'Replace the text of the page with "It is N km from {town}." and publish it.'
    )
    users: ClassVar[Mapping[str, str]] = {"cms": "nadia"}

    def instances(self) -> Sequence[Slots]:
        (here,) = seed_rows("map", "SELECT * FROM place WHERE name = 'Bremerhaven'")
        towns = world.towns(
            "country.name IN ('Germany', 'Netherlands', 'Denmark', 'Belgium') AND "
            "place.population > 200000",
            count=8,
            offset=2,
        )
        ends = [
            ((town["latitude"], town["longitude"]), (here["latitude"], here["longitude"]))
            for town in towns
        ]
        return [
            {"town": town["name"], "km": round(distance_km(*pair))}
            for town, pair in zip(towns, ends, strict=True)
        ]

    def evaluation(self, slots: Slots) -> Evaluation:
        query = museum.worked_on("text", museum.TEXT)
        return rows(
            "cms", query, [["Getting here", 1, f"It is {slots['km']} km from {slots['town']}."]]
        )

    def solve(self, page: View, slots: Slots) -> Solution:
        yield goto(world.HOME)
        yield page.type("textbox", "From", slots["town"])
        yield page.type("textbox", "To", "Bremerhaven")
        yield page.click("button", "Get directions")
        distance = page.find("cell", after="Total distance").name
        yield goto(museum.ADMIN)
        yield from museum.edit(page, "Getting here")
        yield page.type("textbox", "Text", f"It is {distance} from {slots['town']}.")
        yield from museum.publish(page)
        yield stop()


class TownOfGardener(Template):
    id, sites, split, start, changes = (
        "forum-map-town",
        ("forum", "map"),
        "test",
        gardeners.HOME,
        True,
    )
    intent = (
        'In the topic "{topic}" on the forum, {author} names the town where they garden. Save '
        'that town, which is in the United Kingdom, to my list "Someday" on the map at '
        'http://map.test/, with the note "{author}".'
    )
    users: ClassVar[Mapping[str, str]] = {"forum": "rowan", "map": "noor"}

    def instances(self) -> Sequence[Slots]:
        known = {row["name"] for row in world.towns("country.name = 'United Kingdom'", count=200)}
        homes = seed_rows(
            "forum",
            "SELECT username, location FROM spirit_user_userprofile "
            "JOIN auth_user ON auth_user.id = user_id",
        )
        found = []
        for home in homes:
            said = seed_rows(
                "forum",
                f"{gardeners.COMMENTS} WHERE user.username = ? AND instr(comment.comment, ?) "
                "ORDER BY comment.id LIMIT 1",
                *(home["username"], home["location"]),
            )
            if said and home["location"] in known:
                found.append(
                    {
                        "topic": said[0]["topic"],
                        "author": home["username"],
                        "town": home["location"],
                        "text": said[0]["text"],
                    }
                )
        return found[:8]

    def evaluation(self, slots: Slots) -> Evaluation:
        query = f"{own_map.ITEMS} WHERE list_item.id > {own_map.last('list_item')}"
        return rows(
            "map",
            query,
            [["noor", "Someday", slots["town"], slots["author"]]],
            changed=["list_item"],
        )

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from gardeners.open_topic(page, slots["topic"])
        (town,) = re.findall(
            slots["town"], page.find("text", re.compile(re.escape(slots["text"]))).name
        )
        yield goto(world.HOME)
        yield from world.search(page, town, "United Kingdom")
        yield page.select("combobox", "List", "Someday")
        yield page.type("textbox", "Note", slots["author"])
        yield page.click("button", "Save to list")
        yield stop()


class WikiToForum(Template):
    id, sites, split, start, changes = (
        "code-forum-answer",
        ("code", "forum"),
        "train",
        gardeners.HOME,
        True,
    )
    intent = (
        'Somebody asks in the forum\'s topic "{topic}": {question} Find it out in the wiki at '
        'http://code.test/ and answer in the topic: "The wiki says: X", with the answer in the '
        "place of X."
    )

    def instances(self) -> Sequence[Slots]:
        facts = [fact for fact in code_host.WikiFact().instances() if " |OR| " not in fact["fact"]]
        pairs = zip(gardeners.READERS, facts, gardeners.topics(skip=60), strict=False)
        return [{"user": user, "topic": topic["topic"], **fact} for user, fact, topic in pairs]

    def logged_in(self, slots: Slots) -> Mapping[str, str]:
        return {"forum": slots["user"]}

    def evaluation(self, slots: Slots) -> Evaluation:
        return rows(
            "forum",
            gardeners.new_comments(),
            [[slots["user"], slots["topic"], f"The wiki says: {slots['fact']}"]],
        )

    def solve(self, page: View, slots: Slots) -> Solution:
        yield goto(code_host.HOME)
        yield page.click("link", "Wiki")
        yield page.click("link", slots["page"])
        (fact,) = {*re.findall(re.escape(slots["fact"]), page.text)}
        yield goto(gardeners.HOME)
        yield from gardeners.open_topic(page, slots["topic"])
        yield page.type("textbox", "Write comment...", f"The wiki says: {fact}")
        yield page.click("button", "Publish")
        yield stop()


TEMPLATES: tuple[Template, ...] = (
    HarbourTicket(),
    EventTicket(),
    GettingHere(),
    TownOfGardener(),
    WikiToForum(),
)
