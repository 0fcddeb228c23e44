"""Tasks on the museum's website, and behind it."""

# The queries are put together from parts, of our own seed's data alone.
# ruff: noqa: S608

from __future__ import annotations

import calendar
import datetime
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar
from urllib.parse import quote

from palestra.envs.web.solutions import Solution, View, stop
from palestra.envs.web.tasks import Evaluation, answer_with, ends_at, rows
from palestra.envs.web.template import Slots, Template
from palestra_web.seeds import seed_rows
from palestra_web.templates.common import spellings

HOME = "http://cms.test/"
ADMIN = "http://cms.test/admin/"
TOUCHED = (
    "(page.latest_revision_created_at > '2026-06-15' OR page.last_published_at > '2026-06-15' OR "
    "page.id > {last})"
)
"""Whatever anybody has worked on since the seed, whose last day is the 13th."""
TEXT = "replace(substr(own.body, instr(own.body, '>') + 1), '</p>', '') AS text"
"""The text of a page with one paragraph. With several it contains tags."""


def pages(kind: str, where: str = "1", *, count: int = 8, skip: int = 0) -> list[dict[str, Any]]:
    """Published ones, mixed."""
    return seed_rows(
        "cms",
        f"SELECT page.title, page.slug, own.* FROM cms_{kind}page own "
        f"JOIN wagtailcore_page page ON page.id = own.page_ptr_id WHERE page.live AND {where} "
        "ORDER BY (page.id * 37) % 101, page.id LIMIT ? OFFSET ?",
        count,
        skip,
    )


def worked_on(kind: str, columns: str) -> str:
    """All pages that were edited since the seed: whether their latest version is live, and these
    columns of the kind.
    """
    last = seed_rows("cms", "SELECT max(id) AS last FROM wagtailcore_page")[0]["last"]
    return (
        "SELECT page.title, page.live AND NOT page.has_unpublished_changes AS published, "
        f"{columns} FROM wagtailcore_page page LEFT JOIN cms_{kind}page own ON own.page_ptr_id = "
        f"page.id WHERE {TOUCHED.format(last=last)} ORDER BY page.id"
    )


def find(page: View, title: str) -> Solution:
    """On the website."""
    yield page.type("searchbox", "Search", title, enter=True)
    yield page.click("link", title)


def edit(page: View, title: str) -> Solution:
    """Open a page in the editors' interface."""
    yield page.type("textbox", "Search term", title, enter=True)
    yield page.click("link", title)


def publish(page: View) -> Solution:
    yield page.click("button", "More actions")
    yield page.click("button", "Publish")


def value(page: View, label: str) -> str:
    return page.find("cell", after=label).name


def spoken(iso: str, *, weekday: bool = False) -> str:
    """2026-05-09 is written as 9 May 2026 on pages, and as Saturday 9 May 2026 for an event."""
    date = datetime.date.fromisoformat(iso)
    said = f"{date.day} {calendar.month_name[date.month]} {date.year}"
    return f"{calendar.day_name[date.weekday()]} {said}" if weekday else said


class EventRoom(Template):
    id, sites, split, start = "cms-event-room", ("cms",), "train", HOME
    intent = 'In which room of the museum is the event "{title}", and what does it cost?'

    def instances(self) -> Sequence[Slots]:
        return [
            {"title": row["title"], "room": row["room"], "price": row["price"]}
            for row in pages("event")
        ]

    def evaluation(self, slots: Slots) -> Evaluation:
        return answer_with(slots["room"], slots["price"])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from find(page, slots["title"])
        yield stop(f"{value(page, 'Room')}, {value(page, 'Price')}")


class Telephone(Template):
    id, sites, split, start = "cms-telephone", ("cms",), "train", HOME
    intent = "What is the telephone number of {name}, who works at the museum?"

    def instances(self) -> Sequence[Slots]:
        return [{"name": row["title"], "telephone": row["telephone"]} for row in pages("person")]

    def evaluation(self, slots: Slots) -> Evaluation:
        return answer_with(slots["telephone"])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield page.click("link", "People")
        yield page.click("link", slots["name"])
        yield stop(value(page, "Telephone"))


class WhoWrote(Template):
    id, sites, split, start = "cms-article-author", ("cms",), "test", HOME
    intent = 'Who wrote the museum\'s article "{title}", and on which date did it appear?'

    def instances(self) -> Sequence[Slots]:
        return [
            {"title": row["title"], "author": row["author"], "date": spoken(row["date"])}
            for row in pages("article")
        ]

    def evaluation(self, slots: Slots) -> Evaluation:
        return answer_with(" |OR| ".join(spellings(slots["author"])), slots["date"])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from find(page, slots["title"])
        yield stop(f"{value(page, 'Author')}, {value(page, 'Date')}")


class PersonOfRole(Template):
    id, sites, split, start = "cms-role", ("cms",), "train", HOME
    intent = "Open the page of the person who is the museum's {role}."

    def instances(self) -> Sequence[Slots]:
        people = pages("person", "own.role != 'Restorer'", count=12)
        return [
            {
                "role": row["role"].lower(),
                "name": row["title"],
                "url": f"{HOME}people/{quote(row['slug'])}/",
            }
            for row in people
        ][:8]

    def evaluation(self, slots: Slots) -> Evaluation:
        return ends_at(slots["url"])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield page.click("link", "People")
        yield page.click("link", slots["name"])
        yield stop()


class OfAnEditor(Template):
    sites, start, changes = ("cms",), ADMIN, True
    users: ClassVar[Mapping[str, str]] = {"cms": "nadia"}


class PublishDraft(OfAnEditor):
    id, split = "cms-publish-draft", "train"
    intent = 'Publish the draft "{title}" on the museum\'s website as it is.'

    def instances(self) -> Sequence[Slots]:
        return seed_rows("cms", "SELECT title FROM wagtailcore_page WHERE NOT live ORDER BY id")

    def evaluation(self, slots: Slots) -> Evaluation:
        return rows("cms", worked_on("article", "own.author"), [[slots["title"], 1, "Wen Zhao"]])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from edit(page, slots["title"])
        yield from publish(page)
        yield stop()


class ChangeEvent(OfAnEditor):
    id, split = "cms-change-event", "train"
    intent = (
        'The event "{title}" has been moved to the {room} and costs {price} now. Change its page '
        "and publish it."
    )

    def instances(self) -> Sequence[Slots]:
        rooms = ("Boat Hall", "Chart Room", "Net Loft", "Reading Room")
        prices = ("3 euros", "5 euros", "7 euros", "15 euros")
        found: list[Slots] = []
        for n, row in enumerate(pages("event", skip=8)):
            others = [room for room in rooms if room != row["room"]]
            found.append({"title": row["title"], "room": others[n % 3], "price": prices[n % 4]})
        return found

    def evaluation(self, slots: Slots) -> Evaluation:
        return rows(
            "cms",
            worked_on("event", "own.room, own.price"),
            [[slots["title"], 1, slots["room"], slots["price"]]],
        )

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from edit(page, slots["title"])
        yield page.type("textbox", "Room*", slots["room"])
        yield page.type("textbox", "Price*", slots["price"])
        yield from publish(page)
        yield stop()


class ChangeTelephone(OfAnEditor):
    id, split = "cms-change-telephone", "test"
    intent = "{name} has a new telephone number at the museum: {telephone}. Put it on the website."

    def instances(self) -> Sequence[Slots]:
        return [
            {"name": row["title"], "telephone": f"+49 471 56 {(n * 271) % 899 + 100}"}
            for n, row in enumerate(pages("person", skip=3))
        ]

    def evaluation(self, slots: Slots) -> Evaluation:
        return rows(
            "cms", worked_on("person", "own.telephone"), [[slots["name"], 1, slots["telephone"]]]
        )

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from edit(page, slots["name"])
        yield page.type("textbox", "Telephone", slots["telephone"])
        yield from publish(page)
        yield stop()


class Rename(OfAnEditor):
    id, split = "cms-rename", "train"
    intent = 'Change the title of the museum\'s article "{old}" to "{new}" and publish it.'

    def instances(self) -> Sequence[Slots]:
        found = pages("article", skip=10)
        return [
            {"old": row["title"], "new": f"{row['title']} ({word})"}
            for row, word in zip(
                found, 2 * ("updated", "archive", "in brief", "part one"), strict=True
            )
        ]

    def evaluation(self, slots: Slots) -> Evaluation:
        (row,) = pages("article", f"page.title = '{slots['old'].replace(chr(39), 2 * chr(39))}'")
        return rows("cms", worked_on("article", "own.summary"), [[slots["new"], 1, row["summary"]]])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from edit(page, slots["old"])
        yield page.type("textbox", "Title*", slots["new"])
        yield from publish(page)
        yield stop()


class Unpublish(OfAnEditor):
    id, split = "cms-unpublish", "test"
    intent = 'Take the event "{title}" off the museum\'s website, but keep its page as a draft.'

    def instances(self) -> Sequence[Slots]:
        return [{"title": row["title"]} for row in pages("event", skip=18)]

    def evaluation(self, slots: Slots) -> Evaluation:
        live = "SELECT title FROM wagtailcore_page WHERE NOT live ORDER BY title"
        drafts = [row["title"] for row in seed_rows("cms", live)]
        return rows("cms", live, [[title] for title in sorted([*drafts, slots["title"]])])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from edit(page, slots["title"])
        yield page.click("button", "More actions")
        yield page.click("link", "Unpublish")
        yield page.click("button", "Yes, unpublish it")
        yield stop()


class ReplaceText(OfAnEditor):
    id, split = "cms-replace-text", "train"
    intent = 'Replace the text of the museum\'s page "{title}" with "{text}" and publish it.'

    def instances(self) -> Sequence[Slots]:
        texts = {
            "Opening hours": "We are open every day from 9:00 to 18:00.",
            "Prices": "Everybody comes in free this year.",
            "Getting here": "Trams 4 and 7 stop at Quayside.",
            "Café": "The café is closed until the end of July.",
            "Groups and schools": "Please book 5 weeks ahead.",
            "Access": "All floors can be reached by lift.",
            "House rules": "Please leave umbrellas at the cloakroom.",
        }
        return [{"title": title, "text": text} for title, text in texts.items()]

    def evaluation(self, slots: Slots) -> Evaluation:
        return rows("cms", worked_on("text", TEXT), [[slots["title"], 1, slots["text"]]])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from edit(page, slots["title"])
        yield page.type("textbox", "Text", slots["text"])
        yield from publish(page)
        yield stop()


class NewEvent(OfAnEditor):
    id, split = "cms-new-event", "test"
    intent = (
        'Add an event to the museum\'s website and publish it: the title is "{title}", the date '
        "{date}, it begins at {time}, the room is {room}, the price {price}, and the text is "
        '"{text}"'
    )

    def instances(self) -> Sequence[Slots]:
        titles = (
            "Knots for beginners",
            "An evening of shanties",
            "How to read a chart",
            "Night at the museum",
            "Rope in ten minutes",
            "Tea with the director",
            "Flags and signals",
            "The museum in the dark",
        )
        texts = (
            "Bring nothing but your hands.",
            "Doors open half an hour before.",
            "There is room for twenty people.",
            "For everybody over ten.",
        )
        rooms = ("Boat Hall", "Chart Room", "Net Loft", "Reading Room")
        return [
            {
                "title": title,
                "date": f"2026-0{7 + n % 3}-{11 + n}",
                "time": f"{14 + n % 5}:30",
                "room": rooms[n % 4],
                "price": f"{3 + n} euros",
                "text": texts[n % 4],
            }
            for n, title in enumerate(titles)
        ]

    def evaluation(self, slots: Slots) -> Evaluation:
        columns = (
            "own.date, own.starts_at, own.room, own.price, own.body LIKE '%' || {text} || '%' AS "
            "body"
        )
        query = worked_on("event", columns.format(text="'" + slots["text"] + "'"))
        return rows(
            "cms",
            query,
            [[slots["title"], 1, slots["date"], slots["time"], slots["room"], slots["price"], 1]],
        )

    def solve(self, page: View, slots: Slots) -> Solution:
        yield page.click("button", "Pages")
        yield page.click("link", "Quayside Museum", after="Page explorer")
        yield page.click("link", "Explore child pages of 'Events'")
        yield page.click("link", "Add child page")
        yield page.click("link", "Event page")
        yield page.type("textbox", "Title*", slots["title"])
        yield page.type("textbox", "Date*", slots["date"])
        yield page.type("textbox", "Starts at*", slots["time"])
        yield page.type("textbox", "Room*", slots["room"])
        yield page.type("textbox", "Price*", slots["price"])
        yield page.type("textbox", "Text", slots["text"])
        yield from publish(page)
        yield stop()


TEMPLATES: tuple[Template, ...] = (
    EventRoom(),
    Telephone(),
    WhoWrote(),
    PersonOfRole(),
    PublishDraft(),
    ChangeEvent(),
    ChangeTelephone(),
    Rename(),
    Unpublish(),
    ReplaceText(),
    NewEvent(),
)
