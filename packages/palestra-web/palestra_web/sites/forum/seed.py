"""Fill the forum: `python -m forum.seed`."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from django_common.clock import NOW
from django_common.seeding import Clock, seed_site

TOPICS_PER_TALK = 8
FIRST = NOW - timedelta(days=400)


def fill(clock: Clock, chance: random.Random) -> None:
    people = _add_people(clock)
    talks = _talks(chance)
    moment = FIRST + timedelta(days=10)
    pause = (NOW - timedelta(days=3) - moment) / len(talks)
    for category, title, first, answers in talks:
        moment = min(moment, NOW - timedelta(days=2))
        moment += pause * chance.uniform(0.7, 1.3)
        _add_topic(clock, chance, people, moment, category, title, first, answers)
    _add_notices(clock, people)
    _name_site()
    _count()


def _add_people(clock: Clock) -> list[Any]:
    from django.contrib.auth import get_user_model

    clock.set(FIRST)
    people = []
    for name, entry in json.loads((Path(__file__).parent / "users.json").read_text()).items():
        user = get_user_model().objects.create_user(
            name, f"{name}@gardeners.example", entry["password"]
        )
        role = entry.get("role")
        user.st.location = entry["location"]
        user.st.is_verified = True
        user.st.is_moderator, user.st.is_administrator = role is not None, role == "administrator"
        user.st.save()
        people.append(user)
    return people


def _talks(chance: random.Random) -> list[tuple[Any, str, str, list[str]]]:
    """Category, title, first post and answers, shuffled. {town} stays open: it depends on who
    answers.
    """
    from forum.content import CATEGORIES, HARVEST, SPRING
    from spirit.category.models import Category

    Category.objects.filter(is_private=False).delete()  # "Uncategorized"
    talks = []
    for number, (name, about, things, kinds) in enumerate(CATEGORIES, 1):
        category = Category.objects.create(title=name, description=about, sort=number)
        for title, first, answers in kinds:
            for thing in chance.sample(things, min(TOPICS_PER_TALK, len(things))):
                gaps = {"thing": thing, "number": str(chance.randint(5, 40))}
                filled = [
                    answer.format(
                        **gaps,
                        town="{town}",
                        spring=chance.choice(SPRING),
                        harvest=chance.choice(HARVEST),
                    )
                    for answer in chance.sample(answers, chance.randint(0, len(answers)))
                ]
                talks.append((category, title.format(**gaps), first.format(**gaps), filled))
    chance.shuffle(talks)
    return talks


def _add_topic(
    clock: Clock,
    chance: random.Random,
    people: Sequence[Any],
    moment: datetime,
    category: Any,
    title: str,
    first: str,
    answers: Sequence[str],
) -> None:
    from spirit.topic.models import Topic

    author, *others = chance.sample(people, len(answers) + 1)
    clock.set(moment)
    topic = Topic.objects.create(
        user=author, category=category, title=title, view_count=chance.randint(5, 300)
    )
    _say(clock, topic, author, first, moment)
    for person, answer in zip(others, answers, strict=True):
        moment += timedelta(minutes=chance.randint(20, 1000))
        comment = _say(
            clock,
            topic,
            person,
            answer.format(town=person.st.location),
            min(moment, NOW - timedelta(minutes=5)),
        )
        _like(comment, chance.sample(people, chance.choice((0, 0, 0, 1, 2, 4))))


def _say(clock: Clock, topic: Any, person: Any, text: str, moment: datetime) -> Any:
    from spirit.comment.models import Comment
    from spirit.core.utils.markdown import Markdown

    clock.set(moment)
    topic.last_active = moment
    topic.save()
    return Comment.objects.create(
        user=person, topic=topic, comment=text, comment_html=Markdown().render(text), date=moment
    )


def _like(comment: Any, people: Sequence[Any]) -> None:
    from spirit.comment.like.models import CommentLike

    likes = [
        CommentLike(user=person, comment=comment, date=comment.date)
        for person in people
        if person != comment.user
    ]
    CommentLike.objects.bulk_create(likes)
    comment.likes_count = len(likes)
    comment.save()


def _add_notices(clock: Clock, people: Sequence[Any]) -> None:
    from forum.content import MEETING, WELCOME
    from spirit.category.models import Category
    from spirit.topic.models import Topic

    notices = Category.objects.create(
        title="Notices", description="From the people who run the forum", sort=9
    )
    for (title, text), state in (
        (WELCOME, {"is_globally_pinned": True, "is_closed": True}),
        (MEETING, {}),
    ):
        topic = Topic.objects.create(
            user=people[1], category=notices, title=title, view_count=900, **state
        )
        _say(clock, topic, people[1], text, NOW - timedelta(days=20))


def _name_site() -> None:
    from djconfig.models import Config

    for key, value in (
        ("site_name", "The Potting Shed"),
        ("site_description", "A forum of kitchen gardeners"),
        ("topics_per_page", "20"),
    ):
        Config.objects.create(key=key, value=value)


def _count() -> None:
    """What spirit counts as people post."""
    from django.contrib.auth import get_user_model
    from spirit.topic.models import Topic

    for topic in Topic.objects.all():
        Topic.objects.filter(pk=topic.pk).update(comment_count=topic.comment_set.count())
    for user in get_user_model().objects.all():
        user.st.topic_count, user.st.comment_count = (
            user.st_topics.count(),
            user.st_comments.count(),
        )
        user.st.save()


if __name__ == "__main__":
    seed_site("forum.settings", fill)
