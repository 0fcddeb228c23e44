"""Helpers that templates share."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Any

from palestra.envs.web.tasks import Evaluation, answer_with, rows
from palestra.envs.web.template import Slots, Template
from palestra_web.seeds import seed_rows

TEMPLATES = ()


def quoted(text: str) -> str:
    """An SQL string literal."""
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
    """The query returns the same rows as on the seed: nothing else of the kind has changed."""
    return rows(site, query, [list(row.values()) for row in seed_rows(site, query)])


def only(row: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """The named columns of a row."""
    return {name: row[name] for name in names}


class OfAUser(Template):
    """The user in the slot `user` is logged in on the first site."""

    def logged_in(self, slots: Slots) -> Mapping[str, str]:
        return {self.sites[0]: slots["user"]}
