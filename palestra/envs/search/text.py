"""Parsing the agent's commands, and preparing texts for display."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

_COMMAND = re.compile(
    r"\s*+(?:<(?P<tag>[a-z]+)>(?P<tagged>.*)</(?P=tag)>|(?P<name>[a-z]++)\s*+(?:\[(?P<bracketed>.*)\]|:(?P<plain>.*)|))[\s.]*",
    re.DOTALL | re.IGNORECASE,
)
_WORD = re.compile(r"\w+")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=\S)|\n+")


class Command(NamedTuple):
    name: str
    argument: str


def read_command(action: str) -> Command | None:
    """`search[words]`, `search: words` and `<search>words</search>` say the same; a name alone has
    an empty argument.
    """
    match = _COMMAND.fullmatch(action)
    if match is None:
        return None
    name = match["tag"] or match["name"]
    argument = match["tagged"] or match["bracketed"] or match["plain"] or ""
    return Command(name.lower(), unescaped(argument).strip())


def printable(text: str) -> str:
    """Without halves of surrogate pairs, which JSON can carry and no file or
    search engine takes.
    """
    return text.encode("utf-8", "replace").decode()


def escaped(text: str) -> str:
    """So that no article can close the block that it is shown in, or look like a tag of the agent's
    or of a chat template's.
    """
    return text.replace("<", "&lt;").replace(">", "&gt;")


def unescaped(text: str) -> str:
    """What an agent copied from a page that was shown to it."""
    return text.replace("&lt;", "<").replace("&gt;", ">")


def information(text: str) -> str:
    return f"<information>\n{escaped(text)}\n</information>"


def snippet(text: str, query: str, chars: int) -> str:
    """The stretch of at most `chars` that has most of the query's words, from the start of a
    sentence on.
    """
    text = text.strip()
    if len(text) <= chars:
        return text
    best = _start_with_most(text, {word.lower() for word in _WORD.findall(query)}, chars)
    shown = text[best : best + chars].strip()
    return f"{'... ' if best else ''}{shown}{' ...' if best + chars < len(text) else ''}"


def _start_with_most(text: str, wanted: set[str], chars: int) -> int:
    """The first of the sentences from which on most of these words are found.

    A window is moved along: long texts are read once.
    """
    found = [
        (match.start(), match.end(), word)
        for match in _WORD.finditer(text)
        if (word := match[0].lower()) in wanted
    ]
    inside: Counter[str] = Counter()
    best = most = entered = left = 0
    for start in (0, *(match.end() for match in _SENTENCE.finditer(text))):
        while entered < len(found) and found[entered][1] <= start + chars:
            inside[found[entered][2]] += 1
            entered += 1
        while left < entered and found[left][0] < start:
            inside[found[left][2]] -= 1
            left += 1
        if (number := sum(count > 0 for count in inside.values())) > most:
            best, most = start, number
    return best


def pages(text: str, chars: int) -> Sequence[str]:
    """Split a text into pages of at most `chars`, between words if possible."""
    parts: list[str] = []
    rest = text.strip()
    while len(rest) > chars:
        cut = max(rest.rfind(" ", 0, chars + 1), rest.rfind("\n", 0, chars + 1))
        cut = cut if cut > 0 else chars
        parts.append(rest[:cut].strip())
        rest = rest[cut:].strip()
    return [*parts, rest]
