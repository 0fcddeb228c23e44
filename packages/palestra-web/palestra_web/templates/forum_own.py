"""Tasks on the forum that change accounts, private topics and moderated content."""

# The queries are put together from parts, of our own seed's data alone.
# ruff: noqa: S608

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import ClassVar

from palestra.envs.web.solutions import Solution, View, goto, stop
from palestra.envs.web.tasks import Evaluation, rows
from palestra.envs.web.template import Slots, Template
from palestra_web.seeds import seed_rows
from palestra_web.sites.catalogue import SOURCE
from palestra_web.templates.forum import (
    COMMENTS,
    HOME,
    READERS,
    OnTheForum,
    last,
    new_comments,
    open_topic,
    topics,
)

PASSWORDS = {
    name: entry["password"]
    for name, entry in json.loads((SOURCE / "forum" / "users.json").read_text()).items()
}


class Register(Template):
    id, sites, split, start, changes = "forum-register", ("forum",), "train", HOME, True
    intent = (
        'Register on the forum as "{name}", with the e-mail address {address} and the password '
        '"{password}".'
    )

    def instances(self) -> Sequence[Slots]:
        names = ("orla", "bastian", "petra", "quentin", "zadie", "ulrich", "mabel", "tomoko")
        return [
            {"name": n, "address": f"{n}@example.org", "password": f"{n}-grows-{len(n)}{i}"}
            for i, n in enumerate(names)
        ]

    def evaluation(self, slots: Slots) -> Evaluation:
        query = f"SELECT username, email FROM auth_user WHERE id > {last('auth_user')}"
        return rows("forum", query, [[slots["name"], slots["address"]]])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield page.click("link", "Log in")
        yield page.click("link", "Create an account")
        yield page.type("textbox", "Username:", slots["name"])
        yield page.type("textbox", "Email address:", slots["address"])
        yield page.type("textbox", "Email confirmation:", slots["address"])
        yield page.type("textbox", "Password:", slots["password"])
        yield page.click("button", "Register")
        yield stop()


class Location(Template):
    id, sites, split, start, changes = "forum-location", ("forum",), "test", HOME, True
    intent = (
        'Log in to the forum as {user} with the password "{password}" and change your location to '
        "{town}."
    )

    def instances(self) -> Sequence[Slots]:
        towns = ("Whitby", "Penzance", "Kendal", "Cromer", "Ullapool", "Tenby", "Ripon", "Wells")
        return [
            {"user": user, "password": PASSWORDS[user], "town": town}
            for user, town in zip(READERS, towns, strict=True)
        ]

    def evaluation(self, slots: Slots) -> Evaluation:
        query = (
            "SELECT username, location FROM spirit_user_userprofile profile "
            "JOIN auth_user user ON user.id = user_id ORDER BY username"
        )
        seed = seed_rows("forum", query)
        expected = [
            [
                row["username"],
                slots["town"] if row["username"] == slots["user"] else row["location"],
            ]
            for row in seed
        ]
        return rows("forum", query, expected)

    def solve(self, page: View, slots: Slots) -> Solution:
        yield page.click("link", "Log in")
        yield page.type("textbox", "Username:", slots["user"])
        yield page.type("textbox", "Password:", slots["password"])
        yield page.click("button", "Login")
        yield goto(f"{HOME}user/")
        yield page.type("textbox", "Location:", slots["town"])
        yield page.click("button", "Save")
        yield stop()


class PrivateTopic(OnTheForum):
    id, split, changes = "forum-private-topic", "test", True
    intent = 'Write a private topic to {friend}, with the title "{title}" and the text "{text}"'

    def instances(self) -> Sequence[Slots]:
        friends = ("desmond", "ines", "callum", "yuki", "bronwen", "amara", "felix", "greta")
        letters = (
            ("Your seed potatoes", "They have arrived. Shall I bring them on Saturday?"),
            ("A ladder", "May I borrow your long ladder for a day?"),
            ("Open gardens", "Would you open yours with us this year?"),
            ("Thank you", "The rhubarb was the best I ever had."),
        )
        return [
            {"user": user, "friend": friend, "title": letters[n % 4][0], "text": letters[n % 4][1]}
            for n, (user, friend) in enumerate(zip(READERS, friends, strict=True))
        ]

    def evaluation(self, slots: Slots) -> Evaluation:
        query = (
            "SELECT topic.title, user.username FROM spirit_topic_private_topicprivate shared"
            " JOIN auth_user user ON user.id = shared.user_id"
            " JOIN spirit_topic_topic topic ON topic.id = shared.topic_id ORDER BY user.username"
        )
        members = sorted([slots["user"], slots["friend"]])
        told = rows("forum", query, [[slots["title"], member] for member in members])
        return told & rows(
            "forum", new_comments(), [[slots["user"], slots["title"], slots["text"]]]
        )

    def solve(self, page: View, slots: Slots) -> Solution:
        yield page.click("link", slots["user"])
        yield page.click("link", "Private topics")
        yield page.click("link", "Create private topic")
        yield page.type("textbox", "Title:", slots["title"])
        yield page.type("textbox", "Invite users:", slots["friend"])
        yield page.type("textbox", "Comment:", slots["text"])
        yield page.click("button", "Publish")
        yield stop()


class CloseTopic(Template):
    id, sites, split, start, changes = "forum-close-topic", ("forum",), "train", HOME, True
    intent = 'You are the moderator. Close the topic "{topic}", so that nobody can answer any more.'
    users: ClassVar[Mapping[str, str]] = {"forum": "beatrix"}

    def instances(self) -> Sequence[Slots]:
        return [{"topic": row["topic"], "id": row["id"]} for row in topics(skip=40)]

    def evaluation(self, slots: Slots) -> Evaluation:
        query = (
            "SELECT title, is_removed, is_pinned FROM spirit_topic_topic WHERE is_closed "
            "ORDER BY title != 'Read this first'"
        )
        return rows("forum", query, [["Read this first", 0, 0], [slots["topic"], 0, 0]])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from open_topic(page, slots["topic"])
        yield page.click("link", "Moderate")
        yield page.click("link", "Close topic")
        yield stop()


class MoveTopic(Template):
    id, sites, split, start, changes = "forum-move-topic", ("forum",), "test", HOME, True
    intent = (
        'You are the moderator. The topic "{topic}" is in the wrong place: move it to the category '
        '"{category}".'
    )
    users: ClassVar[Mapping[str, str]] = {"forum": "beatrix"}

    def instances(self) -> Sequence[Slots]:
        categories = ("Vegetables", "Tools and sheds", "In the kitchen", "Swap and share")
        found = [row for row in topics(skip=50, count=20) if row["category"] not in categories[:1]]
        chosen: list[Slots] = []
        for n, row in enumerate(found[:8]):
            others = [name for name in categories if name != row["category"]]
            chosen.append({"topic": row["topic"], "category": others[n % 3]})
        return chosen

    def evaluation(self, slots: Slots) -> Evaluation:
        query = (
            "SELECT topic.title AS topic, category.title AS category "
            "FROM spirit_topic_topic topic JOIN spirit_category_category category ON category.id "
            "= topic.category_id ORDER BY topic.id"
        )
        seed = seed_rows("forum", query)
        return rows(
            "forum",
            query,
            [
                [
                    row["topic"],
                    slots["category"] if row["topic"] == slots["topic"] else row["category"],
                ]
                for row in seed
            ],
        )

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from open_topic(page, slots["topic"])
        yield page.click("link", "edit")
        yield page.select("combobox", "Category:", slots["category"])
        yield page.click("button", "Update")
        yield stop()


class EditComment(OnTheForum):
    id, split, changes = "forum-edit-comment", "train", True
    intent = 'I was wrong in the topic "{topic}". Change my answer there to: "{text}"'

    def instances(self) -> Sequence[Slots]:
        corrections = (
            "I was wrong, wait until May.",
            "On second thoughts: do nothing.",
            "Ask me again next year.",
            "Sorry, that was another plant.",
        )
        found = seed_rows(
            "forum",
            f"{COMMENTS} WHERE topic.user_id != user.id AND user.username IN ('odette', 'gwen', "
            "'piotr', 'amara') GROUP BY topic.id ORDER BY (comment.id * 31) % 97 LIMIT 8",
        )
        return [
            {**row, "old": row["text"], "text": corrections[n % 4]} for n, row in enumerate(found)
        ]

    def evaluation(self, slots: Slots) -> Evaluation:
        return rows(
            "forum",
            f"{COMMENTS} WHERE comment.modified_count > 0",
            [[slots["user"], slots["topic"], slots["text"]]],
        )

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from open_topic(page, slots["topic"])
        yield page.click("link", "edit", after=slots["old"])
        yield page.type("textbox", "Comment:", slots["text"])
        yield page.click("button", "Publish")
        yield stop()


TEMPLATES: tuple[Template, ...] = (
    Register(),
    Location(),
    PrivateTopic(),
    CloseTopic(),
    MoveTopic(),
    EditComment(),
)
