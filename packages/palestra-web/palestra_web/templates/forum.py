"""Tasks on the forum."""

# The queries are put together from parts, of our own seed's data alone.
# ruff: noqa: S608

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from palestra.envs.web.solutions import Solution, View, stop
from palestra.envs.web.tasks import Evaluation, answer, ends_at, rows
from palestra.envs.web.template import Slots, Template
from palestra_web.seeds import seed_rows
from palestra_web.templates.common import OfAUser

HOME = "http://forum.test/"
COMMENTS = (
    "SELECT user.username AS user, topic.title AS topic, comment.comment AS text "
    "FROM spirit_comment_comment comment JOIN auth_user user ON user.id = comment.user_id "
    "JOIN spirit_topic_topic topic ON topic.id = comment.topic_id"
)
TOPICS = (
    "SELECT topic.id, topic.title AS topic, topic.slug, user.username AS author, category.title "
    "AS category, topic.comment_count AS posts FROM spirit_topic_topic topic "
    "JOIN auth_user user ON user.id = topic.user_id "
    "JOIN spirit_category_category category ON category.id = topic.category_id "
    "WHERE category.title != 'Notices'"
)
READERS = ("odette", "hamish", "farid", "gwen", "marlow", "tilda", "piotr", "saskia")
SAYINGS = (
    "Thank you, I will try it this weekend.",
    "The same here, and it was gone by June.",
    "I would wait another week.",
    "Straw between the rows helped me.",
    "Write down what you did, next year you will be glad of it.",
    "My neighbour swears by eggshells.",
    "It depends on the soil. What is yours like?",
    "Half of mine went the same way.",
)


def topics(where: str = "1", *, count: int = 8, skip: int = 0) -> list[dict[str, Any]]:
    """Spread over the years of the forum, and so over its pages."""
    return seed_rows(
        "forum",
        f"{TOPICS} AND {where} ORDER BY (topic.id * 37) % 101, topic.id LIMIT ? OFFSET ?",
        count,
        skip,
    )


def last(table: str) -> int:
    """The last id of the seed: rows with higher ids are new."""
    return int(seed_rows("forum", f"SELECT max(id) AS last FROM {table}")[0]["last"] or 0)


def new_comments() -> str:
    return f"{COMMENTS} WHERE comment.id > {last('spirit_comment_comment')} ORDER BY comment.id"


def open_topic(page: View, title: str) -> Solution:
    """By the search in the forum's head."""
    yield page.click("link", "Search")
    yield page.type("searchbox", "Search:", title.rstrip("?"), enter=True)
    yield page.click("link", title)


class OnTheForum(OfAUser):
    sites, start = ("forum",), HOME


class Author(OnTheForum):
    id, split = "forum-author", "train"
    intent = 'Who started the topic "{topic}" on the forum? Answer with the user name.'

    def instances(self) -> Sequence[Slots]:
        return [
            {"user": reader, "topic": row["topic"], "author": row["author"]}
            for reader, row in zip(READERS, topics(), strict=True)
        ]

    def evaluation(self, slots: Slots) -> Evaluation:
        return answer(slots["author"])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from open_topic(page, slots["topic"])
        links = [line.name for line in page.all("link", after=f"{slots['topic']}")]
        yield stop(links[links.index("report") - 1])


class OpenTopic(OnTheForum):
    id, split = "forum-open-topic", "train"
    intent = 'Open the topic "{topic}" on the forum.'

    def instances(self) -> Sequence[Slots]:
        found = zip(READERS, topics(skip=8), strict=True)
        return [
            {
                "user": reader,
                "topic": row["topic"],
                "url": f"{HOME}topic/{row['id']}/{row['slug']}/",
            }
            for reader, row in found
        ]

    def evaluation(self, slots: Slots) -> Evaluation:
        return ends_at(slots["url"])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from open_topic(page, slots["topic"])
        yield stop()


class WhoSaid(OnTheForum):
    id, split = "forum-who-said", "test"
    intent = 'In the topic "{topic}", who wrote "{text}"? Answer with the user name.'

    def instances(self) -> Sequence[Slots]:
        found = []
        for reader, topic in zip(READERS, topics("topic.comment_count >= 4"), strict=True):
            said = seed_rows(
                "forum", f"{COMMENTS} WHERE topic.id = ? ORDER BY comment.id", topic["id"]
            )
            found.append(
                {
                    "user": reader,
                    "topic": topic["topic"],
                    "text": said[2]["text"],
                    "author": said[2]["user"],
                }
            )
        return found

    def evaluation(self, slots: Slots) -> Evaluation:
        return answer(slots["author"])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from open_topic(page, slots["topic"])
        lines = page.observation.elements
        said = next(n for n, line in enumerate(lines) if slots["text"] in line.name)
        yield stop([line.name for line in lines[:said] if line.role == "link"][-1])


class MostLiked(OnTheForum):
    id, split = "forum-most-liked", "train"
    intent = 'In the topic "{topic}", whose answer has the most likes? Answer with the user name.'

    def instances(self) -> Sequence[Slots]:
        found: list[Slots] = []
        for topic in topics("topic.comment_count >= 3", count=80):
            said = seed_rows(
                "forum",
                "SELECT user.username AS user, comment.likes_count AS likes, comment.comment AS "
                "text FROM spirit_comment_comment comment "
                "JOIN auth_user user ON user.id = comment.user_id WHERE topic_id = ? "
                "ORDER BY likes DESC",
                topic["id"],
            )
            reader = READERS[len(found)]
            # On a user's own comment, the likes are labeled differently.
            is_outsider = reader not in {row["user"] for row in said}
            first, second = said[:2]
            if first["likes"] > second["likes"] and is_outsider:
                slots = {"user": reader, "topic": topic["topic"]}
                found.append(slots | {"author": first["user"], "text": first["text"]})
            if len(found) == len(READERS):
                break
        return found

    def evaluation(self, slots: Slots) -> Evaluation:
        return answer(slots["author"])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from open_topic(page, slots["topic"])
        authors: list[tuple[int, str]] = []
        writer = ""
        links = [line.name for line in page.observation.elements if line.role == "link"]
        for before, name in zip(links, [*links[1:], ""], strict=True):
            if name == "report":
                writer = before
            likes = re.search(r"like \((\d+)\)", name)
            if likes:
                authors.append((int(likes[1]), writer))
        yield stop(max(authors)[1])


class NewTopic(OnTheForum):
    id, split, changes = "forum-new-topic", "train", True
    intent = (
        'Start a topic in the category "{category}" with the title "{title}" and this text: '
        '"{text}"'
    )

    def instances(self) -> Sequence[Slots]:
        new = (
            (
                "Vegetables",
                "Celery without a trench",
                "Has anybody grown celery without digging a trench for it?",
            ),
            (
                "Fruit and berries",
                "A fig for a north wall",
                "Is there a fig that bears on a wall that gets no sun before noon?",
            ),
            ("Tools and sheds", "Sharpening a scythe", "Which stone do you use, and how often?"),
            (
                "Pests and diseases",
                "Something eats my rocket",
                "Small round holes in every leaf. What is it?",
            ),
            ("In the kitchen", "Green tomatoes", "Twelve kilos and the frost is coming. Ideas?"),
            ("Swap and share", "Jam jars wanted", "I need about forty jars. I can pay in jam."),
            (
                "Vegetables",
                "Does salsify pay?",
                "It stands in the bed for nine months. Is it worth it?",
            ),
            (
                "Tools and sheds",
                "A roof for the log store",
                "Tin or felt? The store is two metres wide.",
            ),
        )
        return [
            {"user": user, "category": c, "title": t, "text": x}
            for user, (c, t, x) in zip(READERS, new, strict=True)
        ]

    def evaluation(self, slots: Slots) -> Evaluation:
        query = (
            f"{TOPICS.replace('topic.id, ', '').replace('topic.slug, ', '')} AND topic.id > "
            f"{last('spirit_topic_topic')}"
        )
        made = rows("forum", query, [[slots["title"], slots["user"], slots["category"], 1]])
        return made & rows(
            "forum", new_comments(), [[slots["user"], slots["title"], slots["text"]]]
        )

    def solve(self, page: View, slots: Slots) -> Solution:
        yield page.click("link", "Create Topic")
        yield page.type("textbox", "Title:", slots["title"])
        yield page.select("combobox", "Category:", slots["category"])
        yield page.type("textbox", "Comment:", slots["text"])
        yield page.click("button", "Publish")
        yield stop()


class Reply(OnTheForum):
    id, split, changes = "forum-reply", "train", True
    intent = 'Answer in the topic "{topic}": "{text}"'

    def instances(self) -> Sequence[Slots]:
        found = zip(READERS, topics(skip=20), SAYINGS, strict=True)
        return [
            {"user": reader, "topic": row["topic"], "text": text} for reader, row, text in found
        ]

    def evaluation(self, slots: Slots) -> Evaluation:
        return rows("forum", new_comments(), [[slots["user"], slots["topic"], slots["text"]]])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from open_topic(page, slots["topic"])
        yield page.type("textbox", "Write comment...", slots["text"])
        yield page.click("button", "Publish")
        yield stop()


class Like(OnTheForum):
    id, split, changes = "forum-like", "train", True
    intent = 'In the topic "{topic}", like what {author} wrote.'

    def instances(self) -> Sequence[Slots]:
        found: list[Slots] = []
        for topic in topics("topic.comment_count >= 3", skip=10, count=40):
            said = seed_rows(
                "forum",
                f"{COMMENTS} WHERE topic.id = ? AND comment.likes_count = 0 ORDER BY comment.id "
                "DESC",
                topic["id"],
            )
            writers = {row["user"] for row in said}
            readers = [reader for reader in READERS if reader not in writers]
            if said and said[0]["user"] != topic["author"]:
                found.append(
                    {
                        "user": readers[len(found) % len(readers)],
                        "topic": topic["topic"],
                        "author": said[0]["user"],
                        "text": said[0]["text"],
                    }
                )
        return found[:8]

    def evaluation(self, slots: Slots) -> Evaluation:
        query = (
            "SELECT liker.username AS user, topic.title AS topic, writer.username AS author "
            "FROM spirit_comment_like_commentlike liked "
            "JOIN auth_user liker ON liker.id = liked.user_id "
            "JOIN spirit_comment_comment comment ON comment.id = liked.comment_id "
            "JOIN auth_user writer ON writer.id = comment.user_id "
            "JOIN spirit_topic_topic topic ON topic.id = comment.topic_id "
            f"WHERE liked.id > {last('spirit_comment_like_commentlike')}"
        )
        return rows("forum", query, [[slots["user"], slots["topic"], slots["author"]]])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from open_topic(page, slots["topic"])
        yield page.click("link", re.compile(r"^like \("), after=slots["text"])
        yield stop()


TEMPLATES: tuple[Template, ...] = (
    Author(),
    OpenTopic(),
    WhoSaid(),
    MostLiked(),
    NewTopic(),
    Reply(),
    Like(),
)
