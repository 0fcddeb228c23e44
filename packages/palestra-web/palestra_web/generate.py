"""`python -m palestra_web.generate`: writes the tasks of all templates to JSON files, one for
each combination of sites.
"""

from __future__ import annotations

from collections import defaultdict

import msgspec

from palestra.envs.web.tasks import WebTask
from palestra_web.tasks import FOLDER
from palestra_web.templates import all_templates


def generated() -> dict[str, bytes]:
    """What the files hold, by name."""
    by_file: dict[str, list[WebTask]] = defaultdict(list)
    for template in all_templates().values():
        by_file["-".join(sorted(template.sites))] += template.tasks()
    return {f"{name}.json": _encoded(tasks) for name, tasks in sorted(by_file.items())}


def _encoded(tasks: list[WebTask]) -> bytes:
    """A task a line."""
    return b"[\n" + b",\n".join(map(msgspec.json.encode, tasks)) + b"\n]\n"


def main() -> None:
    files = generated()
    FOLDER.mkdir(exist_ok=True)
    for stale in {path.name for path in FOLDER.glob("*.json")} - {*files}:
        (FOLDER / stale).unlink()
    for name, content in files.items():
        (FOLDER / name).write_bytes(content)


if __name__ == "__main__":
    main()
