"""The viewer as a folder of files that any web server can host: the page, and every answer that it
may ask for.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from palestra.view.answers import Answers
from palestra.view.index import NotThere
from palestra.view.server import PAGE

MARK = "palestra-bundle.json"
"""Says that a folder is a bundle, so that it may be written over."""


class BundleError(ValueError):
    """One line: why there can be no bundle here."""


def write_bundle(
    answers: Answers, out: Path, *, episodes: int | None, on_run: Callable[[Path, int], None]
) -> None:
    """`episodes`: of each run only the newest so many of training, and as many of evaluations.

    `on_run` is told what was written.
    """
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not (out / MARK).is_file())):
        raise BundleError(f"--bundle {out}: expected a new or empty folder, or an older bundle")
    for path in (out / "api", out / MARK, *(out / page.name for page in PAGE.iterdir())):
        if path.is_symlink():
            raise BundleError(
                f"--bundle {out}: {path.name} in it is a link, and nothing is written through it"
            )
    shutil.rmtree(
        out / "api", ignore_errors=True
    )  # the rest stays: a bundle may be part of a repository
    shutil.copytree(PAGE, out, dirs_exist_ok=True)
    _write(out / MARK, {"format": 1})
    _write(out / "api" / "runs.json", answers.runs())
    for id in answers.ids:
        try:
            on_run(answers.folder(id), _write_run(answers, id, out / "api" / "runs" / id, episodes))
        except NotThere as error:
            raise BundleError(
                f"{answers.folder(id)}: the run was rewound meanwhile ({error})"
            ) from None


def _write_run(answers: Answers, id: str, out: Path, limit: int | None) -> int:
    """How many episodes were written."""
    columns = answers.episodes(id)
    kept = _newest(columns, limit)
    names = [
        (columns["files"][columns["rows"]["file"][row]], columns["rows"]["line"][row])
        for row in kept
    ]
    rows = {name: [values[row] for row in kept] for name, values in columns["rows"].items()}
    texts = answers.texts(id)["texts"]
    _write(out / "run.json", answers.run(id))
    _write(out / "objective.json", answers.objective(id))
    _write(out / "episodes.json", columns | {"total": len(kept), "rows": rows})
    _write(out / "texts.json", {"texts": [texts[row] for row in kept]})
    is_there = set(names)
    for file, line in names:
        episode = answers.episode(id, file, line)
        if "group" in episode:
            episode["group"] = [other for other in episode["group"] if tuple(other) in is_there]
        _write(out / "episodes" / file / f"{line}.json", episode)
        _write(out / "scenes" / file / f"{line}.json", answers.scenes(id, file, line))
    return len(kept)


def _newest(columns: dict[str, Any], limit: int | None) -> list[int]:
    """Row numbers, in order."""
    everything = range(columns["total"])
    if limit is None:
        return list(everything)
    is_eval = [name.startswith("eval-") for name in columns["files"]]
    kinds: tuple[list[int], list[int]] = ([], [])
    for row in everything:
        kinds[is_eval[columns["rows"]["file"][row]]].append(row)
    return sorted(row for kind in kinds for row in kind[-limit:])


def _write(path: Path, answer: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.encode(answer))
