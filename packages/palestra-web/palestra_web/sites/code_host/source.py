"""What was checked in, commit by commit: a program that prints tide tables.

`templates/trunk.txt` and `templates/calendar.txt` hold the commits: `=== user: comment [tag]`, then
for each file `+++ path` and the lines that are appended to it.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).parent / "templates"
BRANCH = "calendar"
_HEAD = re.compile(r"=== (\w+): (.*?)(?: \[(.*)\])?")


@dataclass
class Commit:
    user: str
    comment: str
    tag: str
    added: dict[str, str] = field(default_factory=dict)
    """The lines to append, by file."""


def commits(branch: str) -> list[Commit]:
    found: list[Commit] = []
    path = ""
    for line in (FOLDER / f"{branch}.txt").read_text().splitlines():
        head = _HEAD.fullmatch(line)
        if head:
            found.append(Commit(head[1], head[2], head[3] or ""))
        elif line.startswith("+++ "):
            path = line[4:]
            found[-1].added[path] = ""
        else:
            found[-1].added[path] += f"{line}\n"
    return found
