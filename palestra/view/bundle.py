"""The viewer as a folder of files that any web server can host: the page, and all answers that it
may request.
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
"""Marks a folder as a bundle, which may be overwritten."""


class BundleError(ValueError):
    """No bundle can be written here; the message says why in one line."""


def write_bundle(
    answers: Answers, out: Path, *, episodes: int | None, on_run: Callable[[Path, int], None]
) -> None:
    """Write a bundle of all runs to `out`.

    `episodes`: the number of episodes of each run, the newest ones of training, and as many of
    evaluations. `on_run` is called with each run's folder and the number of episodes written.
    """
    if out.exists():
        is_usable = out.is_dir() and ((out / MARK).is_file() or not any(out.iterdir()))
        if not is_usable:
            raise BundleError(f"--bundle {out}: expected a new or empty folder, or an older bundle")
    for path in (out / "api", out / MARK, *(out / page.name for page in PAGE.iterdir())):
        if path.is_symlink():
            raise BundleError(
                f"--bundle {out}: {path.name} in it is a link, and nothing is written through it"
            )
    # Only what a bundle writes is replaced: the folder may be part of a repository.
    shutil.rmtree(out / "api", ignore_errors=True)
    shutil.copytree(PAGE, out, dirs_exist_ok=True)
    _write(out / MARK, {"format": 1})
    _write(out / "api" / "runs.json", answers.runs())
    for id in answers.ids:
        folder = answers.folder(id)
        try:
            written = _write_run(answers, id, out / "api" / "runs" / id, episodes)
        except NotThere as error:
            raise BundleError(
                f"{folder}: the run was rewound while the bundle was written ({error})"
            ) from None
        on_run(folder, written)


def _write_run(answers: Answers, id: str, out: Path, limit: int | None) -> int:
    """Returns the number of episodes."""
    columns = answers.episodes(id)
    kept = _newest(columns, limit)
    rows: dict[str, list[Any]] = {}
    for column, values in columns["rows"].items():
        rows[column] = [values[row] for row in kept]
    files = [columns["files"][number] for number in rows["file"]]
    names = list(zip(files, rows["line"], strict=True))
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
    """The numbers of the rows to keep, in order."""
    everything = range(columns["total"])
    if limit is None:
        return list(everything)
    is_eval = [name.startswith("eval-") for name in columns["files"]]
    training: list[int] = []
    evaluation: list[int] = []
    for row in everything:
        kind = evaluation if is_eval[columns["rows"]["file"][row]] else training
        kind.append(row)
    return sorted([*training[-limit:], *evaluation[-limit:]])


def _write(path: Path, answer: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.encode(answer))
