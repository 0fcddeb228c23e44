"""The records that a fossil repository is made of: text with one card a line, named by their hash.

Written here and not by fossil's commands, because those stamp them with the present time.
https://fossil-scm.org/home/doc/trunk/www/fileformat.wiki
"""

import hashlib
import sqlite3
import struct
import zlib
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

ESCAPES = {"\\": "\\\\", " ": "\\s", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def escaped(text: str) -> str:
    return "".join(ESCAPES.get(letter, letter) for letter in text)


def date(moment: datetime) -> str:
    return f"D {moment:%Y-%m-%dT%H:%M:%S}.000"


class Records:
    """The artifacts of a repository in the order in which they came about."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}

    def add(self, content: bytes) -> str:
        name = hashlib.sha3_256(content).hexdigest()
        self.contents[name] = content
        return name

    def _add_cards(self, cards: Iterable[str]) -> str:
        text = "".join(f"{card}\n" for card in cards).encode()
        return self.add(
            text + f"Z {hashlib.md5(text, usedforsecurity=False).hexdigest()}\n".encode()
        )

    def checkin(
        self,
        moment: datetime,
        user: str,
        comment: str,
        files: dict[str, str],
        parents: list[str],
        tags: list[str],
    ) -> str:
        """`files` maps paths to hashes; `tags` are T cards without their T, in fossil's order."""
        cards = [f"C {escaped(comment)}", date(moment)]
        cards += [f"F {escaped(path)} {name}" for path, name in sorted(files.items())]
        cards += [f"P {' '.join(parents)}"] if parents else []
        return self._add_cards([*cards, *(f"T {tag}" for tag in tags), f"U {user}"])

    def wiki(
        self, moment: datetime, user: str, title: str, text: str, parent: str | None = None
    ) -> str:
        cards = [date(moment), f"L {escaped(title)}", "N text/x-markdown"]
        cards += [f"P {parent}"] if parent else []
        return self._add_cards([*cards, f"U {user}", _body(text)])

    def ticket(self, moment: datetime, user: str, ticket: str, fields: dict[str, str]) -> str:
        changes = [f"J {name} {escaped(value)}" for name, value in sorted(fields.items())]
        return self._add_cards([date(moment), *changes, f"K {ticket}", f"U {user}"])

    def post(
        self,
        moment: datetime,
        user: str,
        text: str,
        *,
        title: str = "",
        thread: str = "",
        reply_to: str = "",
    ) -> str:
        """A forum post: one with a title begins a thread, the others belong to one."""
        cards = [date(moment)]
        cards += [f"H {escaped(title)}"] if title else [f"G {thread}", f"I {reply_to}"]
        return self._add_cards([*cards, "N text/x-markdown", f"U {user}", _body(text)])

    def write(self, repository: Path) -> None:
        """Replace all artifacts. `fossil rebuild` derives the other tables from them."""
        base = sqlite3.connect(repository)
        with base:
            base.execute("DELETE FROM blob")
            for number, (name, content) in enumerate(self.contents.items(), 1):
                packed = struct.pack(">I", len(content)) + zlib.compress(content, 9)
                base.execute(
                    "INSERT INTO blob VALUES (?, 1, ?, ?, ?)", (number, len(content), name, packed)
                )
        base.close()


def _body(text: str) -> str:
    return f"W {len(text.encode())}\n{text}"
