"""What templates have in common."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping

from palestra.envs.web.tasks import Evaluation, answer_with, rows
from palestra.envs.web.template import Slots, Template
from palestra_web.seeds import seed_rows

TEMPLATES = ()


def quoted(text: str) -> str:
    """As a text in SQL."""
    return "'" + text.replace("'", "''") + "'"


def number(value: int) -> Evaluation:
    """The answer is this number, with or without commas."""
    return answer_with(f"{value:,} |OR| {value}")


def spellings(name: str) -> list[str]:
    """With accents, and as people type it."""
    plain = "".join(
        letter
        for letter in unicodedata.normalize("NFKD", name)
        if not unicodedata.combining(letter)
    )
    return list(dict.fromkeys([name, plain]))


def called(name: str) -> Evaluation:
    """The answer is this name, with or without accents."""
    return answer_with(" |OR| ".join(spellings(name)))


def unchanged(site: str, query: str) -> Evaluation:
    """The database answers as the seed did: nothing else of the kind was touched."""
    return rows(site, query, [list(row.values()) for row in seed_rows(site, query)])


class OfAUser(Template):
    """Whoever the slot `user` names is logged in on the first site."""

    def logged_in(self, slots: Slots) -> Mapping[str, str]:
        return {self.sites[0]: slots["user"]}
