"""Fill the museum's website: `python -m cms.seed`."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any

from django_common.clock import NOW
from django_common.seeding import Clock, seed_site

FIRST = NOW - timedelta(days=700)


def fill(clock: Clock, chance: random.Random) -> None:
    clock.set(FIRST)
    users = _add_users()
    sections = _add_sections()
    for pages in (_news(chance), _events(chance), _people(chance), _visit()):
        for moment, section, page in pages:
            clock.set(moment)
            _publish(sections[section], page, users[chance.choice(("nadia", "paul"))])
    clock.set(NOW - timedelta(days=2))
    _add_drafts(sections, users["wen"], chance)


def _add_users() -> dict[str, Any]:
    from django.contrib.auth import get_user_model
    from django.contrib.auth.models import Group

    users = {}
    for login, entry in json.loads((Path(__file__).parent / "users.json").read_text()).items():
        first, last = entry["name"].split()
        user = get_user_model().objects.create_user(
            login, f"{login}@quayside.example", entry["password"], first_name=first, last_name=last
        )
        if entry["group"]:
            user.groups.add(Group.objects.get(name=entry["group"]))
        else:
            user.is_staff = user.is_superuser = True
            user.save()
        users[login] = user
    return users


def _add_sections() -> dict[str, Any]:
    from cms.models import HomePage, SectionPage
    from wagtail.models import Page, Site

    Site.objects.all().delete()
    Page.objects.filter(depth=2).delete()
    root = Page.objects.get(depth=1)
    home = root.add_child(
        instance=HomePage(
            title="Quayside Museum",
            slug="home",
            intro="Ships, charts and the people who lived by them.",
        )
    )
    Site.objects.create(
        hostname="cms.test", root_page=home, is_default_site=True, site_name="Quayside Museum"
    )
    intros = {
        "News": "What is new in the house.",
        "Events": "Tours, workshops and talks.",
        "People": "Who works here.",
        "Visit": "Before you come.",
    }
    return {
        title: home.add_child(instance=SectionPage(title=title, intro=intro))
        for title, intro in intros.items()
    }


def _publish(section: Any, page: Any, user: Any) -> None:
    page.owner = user
    section.add_child(instance=page)
    page.save_revision(user=user).publish(user=user)


def _paragraphs(texts: Iterable[str], gaps: dict[str, str]) -> str:
    return "".join(
        f'<p data-block-key="p{n}">{text.format(**gaps)}</p>' for n, text in enumerate(texts)
    )


def _gaps(chance: random.Random, thing: str) -> dict[str, str]:
    from cms.content import ROOMS, TOWNS

    return {
        "thing": thing,
        "room": chance.choice(ROOMS),
        "town": chance.choice(TOWNS),
        "weeks": str(chance.randint(3, 30)),
        "years": str(chance.randint(12, 90)),
        "money": f"{chance.randint(4, 90)},{chance.randint(1, 9)}00",
        "minutes": str(chance.choice((45, 60, 75, 90))),
        "places": str(chance.randint(8, 40)),
    }


def _news(chance: random.Random) -> Iterable[tuple[Any, str, Any]]:
    from cms.content import AUTHORS, NEWS, THINGS
    from cms.models import ArticlePage

    pairs = list(product(NEWS, THINGS))
    chance.shuffle(pairs)
    for number, ((title, summary, texts), thing) in enumerate(pairs):
        moment = FIRST + timedelta(
            days=15 * number + chance.randint(3, 12), hours=chance.randint(0, 7)
        )
        gaps = _gaps(chance, thing)
        page = ArticlePage(
            title=title.format(**gaps),
            date=moment.date(),
            author=chance.choice(AUTHORS),
            summary=summary.format(**gaps),
            body=_paragraphs(texts, gaps),
        )
        yield moment, "News", page


def _events(chance: random.Random) -> Iterable[tuple[Any, str, Any]]:
    from cms.content import EVENTS, PRICES, ROOMS, THINGS, TIMES
    from cms.models import EventPage

    pairs: list[tuple[Any, Any]] = []
    for kind in EVENTS:
        pairs += [(kind, thing) for thing in chance.sample(THINGS, 12)]
    chance.shuffle(pairs)
    for number, ((title, text), thing) in enumerate(pairs):
        when = NOW + timedelta(days=6 * number - 90 + chance.randint(0, 5))
        gaps = _gaps(chance, thing)
        page = EventPage(
            title=title.format(**gaps),
            date=when.date(),
            starts_at=chance.choice(TIMES),
            room=chance.choice(ROOMS).removeprefix("the "),
            price=chance.choice(PRICES),
            body=_paragraphs([text], gaps),
        )
        yield min(when, NOW) - timedelta(days=30, hours=number), "Events", page


def _people(chance: random.Random) -> Iterable[tuple[Any, str, Any]]:
    from cms.content import PEOPLE
    from cms.models import PersonPage

    for name, role, text in PEOPLE:
        address = f"{name.split()[0].lower()}@quayside.example"
        telephone = f"+49 471 55 {chance.randint(100, 999)}"
        yield (
            FIRST + timedelta(days=2),
            "People",
            PersonPage(
                title=name,
                role=role,
                email=address,
                telephone=telephone,
                body=_paragraphs([text], {}),
            ),
        )


def _visit() -> Iterable[tuple[Any, str, Any]]:
    from cms.content import VISIT
    from cms.models import TextPage

    for title, texts in VISIT:
        yield FIRST + timedelta(days=3), "Visit", TextPage(title=title, body=_paragraphs(texts, {}))


def _add_drafts(sections: dict[str, Any], user: Any, chance: random.Random) -> None:
    """Pages that wait to be published."""
    from cms.models import ArticlePage

    for thing in (
        "ice yacht",
        "harbour crane",
        "ferry bell",
        "sail maker's bench",
        "cork float",
        "customs seal",
        "cabin stove",
        "ship's biscuit",
    ):
        page = ArticlePage(
            title=f"Draft: the {thing}",
            date=(NOW - timedelta(days=2)).date(),
            author="Wen Zhao",
            summary=f"A first text about the {thing}.",
            body=_paragraphs(
                ["The {thing} came to us {years} years ago and has not been shown since."],
                _gaps(chance, thing),
            ),
            live=False,
            owner=user,
        )
        sections["News"].add_child(instance=page)
        page.save_revision(user=user)


if __name__ == "__main__":
    seed_site("cms.settings", fill)
