"""The spellings in which an answer is right,
and the check that a question does not give it away.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from datetime import date

from palestra.envs.search.world_articles import date_styles
from palestra.envs.search.world_facts import Entity

ONES = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen
fifteen sixteen seventeen eighteen
nineteen""".split()
TENS = "- - twenty thirty forty fifty sixty seventy eighty ninety".split()


def in_words(number: int) -> str:
    """Below a hundred."""
    if number < 20:
        return ONES[number]
    return TENS[number // 10] + ("" if number % 10 == 0 else f"-{ONES[number % 10]}")


def surname_counts(entities: list[Entity]) -> Counter[str]:
    return Counter(entity.name.split()[-1] for entity in entities if entity.kind == "person")


def spellings(
    value: Entity | int | str | date, surnames: Counter[str], *, is_year: bool
) -> tuple[str, ...]:
    """The answer, followed by other accepted spellings. A surname alone is accepted if it is
    unique.
    """
    if isinstance(value, date):
        found = date_styles(value)
    elif isinstance(value, int):
        found = [str(value)] if is_year or value < 1000 else [f"{value:,}", str(value)]
        found += [in_words(value)] if 0 <= value < 100 else []
    else:
        name = value.name if isinstance(value, Entity) else value
        found = [name, name.removeprefix("The ").removeprefix("the ")]
        if isinstance(value, Entity) and value.kind == "person" and surnames[name.split()[-1]] == 1:
            found.append(name.split()[-1])
        if isinstance(value, Entity) and value.kind == "element":
            found.append(name.lower())
        found.append(unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode())
    return tuple(dict.fromkeys(found))


def gives_away(question: str, answers: tuple[str, ...]) -> bool:
    words = f" {_plain(question)} "
    return any(f" {_plain(answer)} " in words for answer in answers)


def _plain(text: str) -> str:
    return " ".join(re.findall(r"[^\W_]+", text.lower()))
