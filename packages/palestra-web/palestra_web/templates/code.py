"""Tasks on the code host: tickets, wiki, forum and source of the program Tidewatch."""

# The queries are put together from parts, of our own seed's data alone.
# ruff: noqa: S608

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote_plus

from palestra.envs.web.solutions import Solution, View, stop
from palestra.envs.web.tasks import Evaluation, answer_with, ends_at, rows, shows
from palestra.envs.web.template import Slots, Template
from palestra_web.seeds import seed_rows
from palestra_web.templates.common import OfAUser, quoted

HOME = "http://code.test/"
DEVELOPERS = ("priya", "jonas", "oskar")
FIRST_WRITER = (
    "(SELECT tkt_user FROM ticketchng change WHERE change.tkt_id = ticket.tkt_id ORDER BY "
    "tkt_mtime LIMIT 1)"
)
TICKETS = f"SELECT ticket.*, {FIRST_WRITER} AS author FROM ticket"


def tickets(where: str = "1", *, count: int = 8, skip: int = 0) -> list[dict[str, Any]]:
    """Mixed."""
    return seed_rows(
        "code",
        f"{TICKETS} WHERE {where} ORDER BY (tkt_id * 17) % 41, tkt_id LIMIT ? OFFSET ?",
        count,
        skip,
    )


def events(columns: str = "type, user") -> str:
    """All that was recorded since the seed: check-ins, tickets, wiki pages, posts."""
    last = seed_rows("code", "SELECT max(objid) AS last FROM event")[0]["last"]
    return f"SELECT {columns} FROM event WHERE objid > {last} ORDER BY objid"


def tickets_changed(columns: str) -> str:
    last = seed_rows("code", "SELECT max(tkt_mtime) AS last FROM ticket")[0]["last"]
    return f"SELECT title, {columns} FROM ticket WHERE tkt_mtime > {last} ORDER BY tkt_id"


def searched(text: str) -> str:
    """The search words: fossil uses eight of them, and finds nothing if a word occurs twice."""
    words = dict.fromkeys(word.lower() for word in re.findall(r"\w+", text) if len(word) > 3)
    return " ".join([*words][:6])


def find(page: View, kind: str, title: str) -> Solution:
    """By the search in the menu. `kind` is Ticket, Wiki or Forum."""
    yield page.click("link", "Search")
    yield page.type("textbox", "", searched(title), enter=True)
    yield page.click("link", re.compile(f"^{kind}.*{re.escape(title)}"))


class OfADeveloper(OfAUser):
    sites, start, changes = ("code",), HOME, True


class TicketReporter(Template):
    id, sites, split, start = "code-ticket-reporter", ("code",), "train", HOME
    intent = (
        'Who reported the ticket "{title}" on the code host, and in which version was it found?'
    )

    def instances(self) -> Sequence[Slots]:
        return [
            {"title": row["title"], "author": row["author"], "version": row["foundin"]}
            for row in tickets()
        ]

    def evaluation(self, slots: Slots) -> Evaluation:
        return answer_with(slots["author"], slots["version"])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from find(page, "Ticket", slots["title"])
        said = page.find("cell", re.compile("added on"), after="User Comments:").name
        yield stop(f"{said.split()[0]}, {page.find('cell', after='Version Found In:', nth=1).name}")


class OpenTicket(Template):
    id, sites, split, start = "code-open-ticket", ("code",), "train", HOME
    intent = 'Open the ticket "{title}" on the code host.'

    def instances(self) -> Sequence[Slots]:
        return [{"title": row["title"], "hash": row["tkt_uuid"]} for row in tickets(skip=8)]

    def evaluation(self, slots: Slots) -> Evaluation:
        # Fossil accepts abbreviated hashes.
        names = [slots["hash"][:length] for length in (40, 20, 16, 10)]
        urls = [f"{HOME}tktview/{name}" for name in names]
        urls += [f"{HOME}info/{name}" for name in names]
        return ends_at(" |OR| ".join(urls))

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from find(page, "Ticket", slots["title"])
        yield stop()


class CheckedIn(Template):
    id, sites, split, start = "code-checked-in", ("code",), "test", HOME
    intent = (
        'Who made the check-in "{comment}" in the repository of Tidewatch, and on which date? '
        "Write the date as 2025-01-31."
    )

    def instances(self) -> Sequence[Slots]:
        return seed_rows(
            "code",
            "SELECT comment, user, date(mtime) AS date FROM event WHERE type = 'ci' "
            "ORDER BY (objid * 17) % 41, objid LIMIT 8",
        )

    def evaluation(self, slots: Slots) -> Evaluation:
        return answer_with(slots["user"], slots["date"])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield page.click("link", "Timeline")
        yield from page.reach("cell", re.compile(re.escape(slots["comment"])))
        lines = page.observation.elements
        own = next(n for n, line in enumerate(lines) if line.name.startswith(slots["comment"]))
        days = [line.name for line in lines[:own] if re.fullmatch(r"\d{4}-\d\d-\d\d", line.name)]
        (user,) = re.findall(r"user: (\w+)", lines[own].name)
        yield stop(f"{user}, {days[-1]}")


class Harbour(Template):
    id, sites, split, start = "code-harbour", ("code",), "train", HOME
    intent = (
        "Look into the source of Tidewatch: what are the mean level and the spring range of "
        "{harbour} in data/harbours.csv, in metres?"
    )

    def instances(self) -> Sequence[Slots]:
        table = (
            ("Brest", "4.1", "6.1"),
            ("Dover", "3.7", "6.0"),
            ("Cascais", "2.0", "3.1"),
            ("Cobh", "2.3", "3.7"),
            ("Bergen", "0.9", "1.2"),
            ("Narvik", "1.8", "2.9"),
            ("Valparaiso", "0.9", "1.5"),
            ("Nelson", "2.3", "3.9"),
        )
        return [{"harbour": name, "level": level, "range": spring} for name, level, spring in table]

    def evaluation(self, slots: Slots) -> Evaluation:
        return answer_with(slots["level"], slots["range"])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield page.click("link", "Files")
        yield page.click("link", "data")
        yield page.click("link", "harbours.csv")
        found = re.search(rf"{slots['harbour']},\w+,([\d.]+),([\d.]+)", page.text)
        yield stop(f"{found[1]}, {found[2]}" if found else "N/A")


class WikiFact(Template):
    id, sites, split, start = "code-wiki-fact", ("code",), "test", HOME
    intent = "{question} The answer is in the wiki of Tidewatch."

    def instances(self) -> Sequence[Slots]:
        facts = (
            ("Testing", "How many seconds does Tidewatch's whole test suite take?", "40"),
            ("Constituents", "How many constituents does Tidewatch use?", "37"),
            ("Cache", "For how many days does Tidewatch keep tables?", "90"),
            (
                "Release checklist",
                "On which day of the week are releases of Tidewatch made?",
                "Tuesday |OR| Tuesdays",
            ),
            (
                "Style guide",
                "How many characters may a line of Tidewatch's code have at most?",
                "100",
            ),
            (
                "Contact",
                "To which e-mail address do security matters of Tidewatch go?",
                "security@tidewatch.example",
            ),
            ("Supported systems", "Who tests Tidewatch on Windows?", "Sam Okafor"),
            ("Adding a harbour", "Who looks after Tidewatch's list of harbours?", "Oskar Lund"),
        )
        return [
            {"page": page, "question": question, "fact": fact} for page, question, fact in facts
        ]

    def evaluation(self, slots: Slots) -> Evaluation:
        return answer_with(slots["fact"])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield page.click("link", "Wiki")
        yield page.click("link", slots["page"])
        fact = next(fact for fact in slots["fact"].split(" |OR| ") if fact in page.text)
        yield stop(fact)


class NewTicket(OfADeveloper):
    id, split = "code-new-ticket", "train"
    intent = (
        'File a ticket on the code host: the title is "{title}", the type {type}, the severity '
        '{severity}, the subsystem {subsystem}, and the description "{text}"'
    )

    def instances(self) -> Sequence[Slots]:
        new = (
            (
                "Tables of the Baltic show no tide",
                "Code_Defect",
                "Minor",
                "tables",
                "A line that says so would be kinder than an empty table.",
            ),
            (
                "Harbours of Brittany",
                "Feature_Request",
                "Minor",
                "harbours",
                "Saint-Malo and Roscoff would be a beginning.",
            ),
            (
                "The help text is in two languages",
                "Documentation",
                "Cosmetic",
                "cli",
                "The last three options are in Norwegian.",
            ),
            (
                "Export stops at 1000 lines",
                "Code_Defect",
                "Important",
                "export",
                "The file just ends, without a message.",
            ),
            (
                "Cache on a network drive is slow",
                "Incident",
                "Important",
                "cache",
                "It took four minutes this morning.",
            ),
            (
                "Wheel cannot be built from the archive",
                "Build_Problem",
                "Severe",
                "docs",
                "The licence file is missing in it.",
            ),
            (
                "Say which datum a table uses",
                "Feature_Request",
                "Important",
                "tables",
                "It could stand below the heading.",
            ),
            (
                "Unknown harbours should offer the nearest name",
                "Feature_Request",
                "Minor",
                "cli",
                "I type Brst all the time.",
            ),
        )
        return [
            {
                "user": DEVELOPERS[n % 3],
                "title": title,
                "type": kind,
                "severity": severity,
                "subsystem": part,
                "text": text,
            }
            for n, (title, kind, severity, part, text) in enumerate(new)
        ]

    def evaluation(self, slots: Slots) -> Evaluation:
        said = (
            "(SELECT icomment FROM ticketchng change WHERE change.tkt_id = ticket.tkt_id) AS said"
        )
        query = tickets_changed(f"type, severity, subsystem, status, {said}")
        made = rows(
            "code",
            query,
            [
                [
                    *(slots[name] for name in ("title", "type", "severity", "subsystem")),
                    "Open",
                    slots["text"],
                ]
            ],
        )
        return made & rows("code", events(), [["t", slots["user"]]])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield page.click("link", "Tickets")
        yield page.click("link", "New ticket")
        yield page.type("textbox", "Title", slots["title"])
        yield page.select("combobox", "Type", slots["type"])
        yield page.select("combobox", "Severity", slots["severity"])
        yield page.select("combobox", "Subsystem", slots["subsystem"])
        yield page.type("textbox", "Description", slots["text"])
        yield page.click("button", "Submit ticket")
        yield stop()


class CloseTicket(OfADeveloper):
    id, split = "code-close-ticket", "train"
    intent = 'Close the ticket "{title}" on the code host, with the resolution {resolution}.'

    def instances(self) -> Sequence[Slots]:
        resolutions = ("Fixed", "Rejected", "Workaround", "Duplicate")
        found = enumerate(tickets("status = 'Open'"))
        return [
            {"user": DEVELOPERS[n % 3], "title": row["title"], "resolution": resolutions[n % 4]}
            for n, row in found
        ]

    def evaluation(self, slots: Slots) -> Evaluation:
        done = rows(
            "code",
            tickets_changed("status, resolution"),
            [[slots["title"], "Closed", slots["resolution"]]],
        )
        return done & rows("code", events(), [["t", slots["user"]]])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from find(page, "Ticket", slots["title"])
        yield page.click("link", "Edit")
        yield page.select("combobox", "Status", "Closed")
        yield page.select("combobox", "Resolution", slots["resolution"])
        yield page.click("button", "Submit changes")
        yield stop()


class Priority(OfADeveloper):
    id, split = "code-priority", "train"
    intent = (
        'Give the ticket "{title}" on the code host the priority {priority} and the severity '
        "{severity}."
    )

    def instances(self) -> Sequence[Slots]:
        found = tickets(
            "status = 'Open' AND priority != 'Immediate' AND severity != 'Critical'", skip=8
        )
        return [
            {
                "user": DEVELOPERS[n % 3],
                "title": row["title"],
                "priority": "Low" if row["priority"] != "Low" else "Immediate",
                "severity": "Severe" if row["severity"] != "Severe" else "Minor",
            }
            for n, row in enumerate(found)
        ]

    def evaluation(self, slots: Slots) -> Evaluation:
        query = tickets_changed("priority, severity, status")
        return rows("code", query, [[slots["title"], slots["priority"], slots["severity"], "Open"]])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from find(page, "Ticket", slots["title"])
        yield page.click("link", "Edit")
        yield page.select("combobox", "Priority", slots["priority"])
        yield page.select("combobox", "Severity", slots["severity"])
        yield page.click("button", "Submit changes")
        yield stop()


class Remark(OfADeveloper):
    id, split = "code-remark", "test"
    intent = 'Add this remark to the ticket "{title}" on the code host: "{text}"'

    def instances(self) -> Sequence[Slots]:
        remarks = (
            "I have seen it too, on a Tuesday.",
            "A fix is ready, please test it.",
            "This depends on the list of harbours.",
            "Not before the summer, I am afraid.",
        )
        return [
            {"user": DEVELOPERS[n % 3], "title": row["title"], "text": remarks[n % 4]}
            for n, row in enumerate(tickets(skip=20))
        ]

    def evaluation(self, slots: Slots) -> Evaluation:
        (seed,) = tickets(f"title = {quoted(slots['title'])}")
        said = (
            "(SELECT icomment FROM ticketchng change WHERE change.tkt_id = ticket.tkt_id ORDER BY "
            "tkt_mtime DESC LIMIT 1) AS said"
        )
        return rows(
            "code",
            tickets_changed(f"status, {said}"),
            [[slots["title"], seed["status"], slots["text"]]],
        )

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from find(page, "Ticket", slots["title"])
        yield page.click("link", "Edit")
        yield page.type("textbox", "Remark", slots["text"])
        yield page.click("button", "Submit changes")
        yield stop()


class WikiEdit(OfADeveloper):
    id, split = "code-wiki-edit", "train"
    intent = 'Replace the text of the wiki page "{title}" of Tidewatch with "{text}"'

    def instances(self) -> Sequence[Slots]:
        texts = {
            "Cache": "Tables are kept for 30 days now.",
            "Constituents": "We use 62 constituents since the last release.",
            "Contact": "Write to the forum. There is no other address any more.",
            "Export formats": "CSV, JSON and calendar files.",
            "Supported systems": "Linux, macOS and Windows are tested at each release.",
            "Testing": "Run make test. It takes two minutes.",
            "Style guide": "Whatever the formatter does is right.",
        }
        return [
            {"user": DEVELOPERS[n % 3], "title": title, "text": text}
            for n, (title, text) in enumerate(texts.items())
        ]

    def evaluation(self, slots: Slots) -> Evaluation:
        saved = rows(
            "code",
            events("DISTINCT type, user, comment"),
            [["w", slots["user"], f":{slots['title']}"]],
        )
        return saved & shows(f"{HOME}wiki?name={quote_plus(slots['title'])}", slots["text"])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield page.click("link", "Wiki")
        yield page.click("link", slots["title"])
        yield page.click("link", "Edit")
        yield page.type("textbox", "", slots["text"])
        yield page.click("button", "Save & Close")
        yield stop()


class ForumReply(OfADeveloper):
    id, split = "code-forum-reply", "train"
    intent = 'Answer the first post of the thread "{title}" in the forum of Tidewatch: "{text}"'

    def instances(self) -> Sequence[Slots]:
        answers = (
            "I agree with that.",
            "Please give me until Friday.",
            "The table in the docs has the figures.",
            "I have asked the harbour office about it.",
        )
        threads = seed_rows(
            "code",
            "SELECT substr(comment, 7) AS title, blob.uuid AS hash FROM event "
            "JOIN blob ON blob.rid = objid WHERE type = 'f' AND comment LIKE 'Post: %' "
            "ORDER BY objid LIMIT 8",
        )
        return [
            {"user": DEVELOPERS[n % 3], **thread, "text": answers[n % 4]}
            for n, thread in enumerate(threads)
        ]

    def evaluation(self, slots: Slots) -> Evaluation:
        answered = rows(
            "code",
            events("type, user, comment"),
            [["f", slots["user"], f"Reply: {slots['title']}"]],
        )
        return answered & shows(f"{HOME}forumthread/{slots['hash']}", slots["text"])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield page.click("link", "Forum")
        yield page.click("link", slots["title"])
        yield page.click("button", "Reply")
        yield page.type("textbox", "Content:", slots["text"])
        yield page.click("button", "Preview")
        yield page.click("button", "Submit")
        yield stop()


class ForumThread(OfADeveloper):
    id, split = "code-forum-thread", "test"
    intent = (
        'Begin a thread in the forum of Tidewatch with the title "{title}" and the text "{text}"'
    )

    def instances(self) -> Sequence[Slots]:
        threads = (
            ("Meeting in June", "Would 10 June suit everybody?"),
            ("Who knows the Azores?", "I look for tables of Horta."),
            ("Release on Tuesday", "Please finish your tickets by Monday evening."),
            ("Printing in colour", "Is it worth the ink?"),
            ("New reference tables", "They came in the post today."),
            ("A logo for Tidewatch", "A wave, or a watch, or both?"),
            ("Tests on Windows", "They pass, but two are slow."),
            ("Names of harbours", "English or local? We have both in the list."),
        )
        return [
            {"user": DEVELOPERS[n % 3], "title": title, "text": text}
            for n, (title, text) in enumerate(threads)
        ]

    def evaluation(self, slots: Slots) -> Evaluation:
        posted = rows(
            "code", events("type, user, comment"), [["f", slots["user"], f"Post: {slots['title']}"]]
        )
        return posted & shows(
            f"{HOME}search?s={quote_plus(searched(slots['text']))}&y=f", slots["title"]
        )

    def solve(self, page: View, slots: Slots) -> Solution:
        yield page.click("link", "Forum")
        yield page.click("link", "New Thread")
        yield page.type("textbox", "", slots["title"])
        yield page.type("textbox", "Content:", slots["text"])
        yield page.click("button", "Preview")
        yield page.click("button", "Submit")
        yield stop()


TEMPLATES: tuple[Template, ...] = (
    TicketReporter(),
    OpenTicket(),
    CheckedIn(),
    Harbour(),
    WikiFact(),
    NewTicket(),
    CloseTicket(),
    Priority(),
    Remark(),
    WikiEdit(),
    ForumReply(),
    ForumThread(),
)
