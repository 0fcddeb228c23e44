"""Reads a run folder for display. Damage is reported, and what is not damaged is still shown."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from palestra.config.run_format import format_error
from palestra.core import untrusted
from palestra.core.evaluation import EvalResult
from palestra.core.untrusted import Unreadable, valid_utf8

T = TypeVar("T")

Signature = tuple[int, int, int] | None
"""Changes when a file does; None where there is no file."""

OBJECTIVE = "objective.txt"
"""The output of `palestra explain`, written when the run begins."""

LOG_LINES = 200
LOG_BYTES = 200_000
MOST_ROWS = 200_000
"""Rows of the metrics that are shown: a page with more would not open."""
METRICS_BYTES = 128_000_000
MOST_DAMAGED = 100
"""Damaged rows of the metrics that are listed; the others are counted."""
EVALS_BYTES = 64_000_000
"""Limit on all evaluations of a run. One has 2 KB, with a thousand categories 1 MB."""
LARGEST_STEP = 10**9

Damage = dict[str, Any]
"""`file`, `line` (from 1; None for the whole file) and `why`."""


def is_run(path: Path) -> bool:
    """Whether there is a config.toml, readable or not."""
    return os.path.lexists(path / "config.toml")


def runs_in(path: Path) -> list[Path]:
    """The folder itself if it is a run folder, else the run folders in it.

    Links are not followed, except for `path` itself.
    """
    if is_run(path):
        return [path]
    return sorted(folder for folder in _entries(path, stat.S_IFDIR) if is_run(folder))


def linked_runs(path: Path) -> list[Path]:
    """The links to run folders, which `runs_in` leaves out."""
    if is_run(path):
        return []
    return sorted(folder for folder in _entries(path, stat.S_IFLNK) if is_run(folder))


def _entries(path: Path, kind: int) -> Iterator[Path]:
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                with suppress(OSError):  # it was removed since the scan
                    if stat.S_IFMT(entry.stat(follow_symlinks=False).st_mode) == kind:
                        yield path / entry.name
    except OSError:
        return


def signature(path: Path) -> Signature:
    """Of the file itself, even if it is a link."""
    try:
        stat = path.lstat()
    except OSError:
        return None
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def readable_lines(top: Path, name: str, decoder: msgspec.json.Decoder[T]) -> Iterator[T]:
    """The readable lines of a file of JSON lines. `decoder`: of a type whose values have a bounded
    depth.
    """
    with suppress(FileNotFoundError, Unreadable), untrusted.open_file(top, name) as file:
        for line in untrusted.lines(file):
            with suppress(Unreadable):
                yield untrusted.decode(line, decoder, is_flat=True)


class Progress(NamedTuple):
    """A summary of the metrics, small enough to keep in memory."""

    rows: int
    step: int
    """The last training step."""
    is_over: bool


class RunFolder:
    """One run. Each file is cached until it changes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._kept: dict[Path, tuple[Signature, Any]] = {}

    def _read(self, path: Path, read: Callable[[Path], T]) -> T:
        now = signature(path)
        if path not in self._kept or self._kept[path][0] != now:
            self._kept[path] = (now, read(path))
        value: T = self._kept[path][1]
        return value

    def config(self) -> tuple[str, dict[str, Any], list[Damage]]:
        """As text, as nested tables (empty if it is not TOML), and what is wrong with it."""
        return self._read(self.path / "config.toml", read_config)

    def objective(self) -> str:
        """In words, from when the run began. Empty for runs of older versions."""
        return self._read(self.path / OBJECTIVE, read_tail)

    def progress(self) -> Progress:
        return self._read(self.path / "metrics.jsonl", _progress)

    def evals(self) -> tuple[list[dict[str, Any]], list[Damage]]:
        """In the order of their steps."""
        try:
            names = untrusted.names(self.path, "eval", ".json")
        except Unreadable as error:
            return [], [_whole_file("eval", str(error))]
        evals, damages, left = [], [], EVALS_BYTES
        for name in names:
            path = self.path / "eval" / name
            found = signature(path)
            size = found[1] if found else 0
            if size <= untrusted.RESULT_BYTES:  # `read_eval` refuses larger ones unread
                left -= size
            if left < 0:
                most = untrusted.size_text(EVALS_BYTES)
                why = f"expected at most {most} of evaluations; some are left out"
                damages.append(_whole_file("eval", why))
                break
            result, damage = read_eval(path)
            if result is not None:
                evals.append(result)
            damages += damage
        evals.sort(key=lambda result: result["step"])
        return evals, damages

    def summary(self) -> dict[str, Any]:
        """The run's entry in `runs.json`, without its id and its group."""
        _, tree, _ = self.config()
        progress = self.progress()
        return {
            "name": valid_utf8(self.path.name),
            "folder": valid_utf8(str(self.path)),
            "algo": _named(tree.get("algo"), "name"),
            "envs": [env.label or env.name for env in environments(tree)],
            "seed": tree.get("seed") if isinstance(tree.get("seed"), int) else None,
            "steps": tree.get("steps") if isinstance(tree.get("steps"), int) else None,
            "done": progress.step,
            "is_over": progress.is_over,
        }

    def about(self) -> dict[str, Any]:
        """The content of `run.json`, without the run's id."""
        text, _, config_damage = self.config()
        rows, metrics_damage = read_metrics(self.path / "metrics.jsonl", most=MOST_ROWS)
        evals, eval_damage = self.evals()
        return {
            "name": valid_utf8(self.path.name),
            "config": text,
            "rows": rows,
            "stages": stages(rows),
            "evals": evals,
            "log": read_tail(self.path / "log.txt"),
            "damaged": config_damage + metrics_damage + eval_damage + self._misplaced(),
            "has_token_stats": self._has_token_stats(),
        }

    def _has_token_stats(self) -> bool:
        with suppress(Unreadable):
            return bool(untrusted.names(self.path, "token_stats", ".jsonl"))
        return False

    def _misplaced(self) -> list[Damage]:
        """Files and folders that are something else, links above all."""
        found: dict[str, str | None] = {"log.txt": untrusted.trouble(self.path, "log.txt")}
        for folder in ("trajectories", "token_stats", "checkpoints"):
            found[folder] = untrusted.trouble(self.path, folder, folder=True)
            if folder == "checkpoints" or found[folder]:
                continue
            try:
                names = untrusted.names(self.path, folder, ".jsonl")
            except Unreadable as error:
                found[folder] = str(error)
                continue
            for name in names:
                file = f"{folder}/{name}"
                if not _is_plain(self.path / file):  # one `stat`: there may be thousands
                    found[file] = untrusted.trouble(self.path, file)
        damages = [_whole_file(valid_utf8(name), why) for name, why in found.items() if why]
        return damages[:MOST_DAMAGED]


def _is_plain(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def read_config(path: Path) -> tuple[str, dict[str, Any], list[Damage]]:
    """As text, as nested tables, and what is wrong with it."""
    try:
        content = untrusted.read_file(path.parent, path.name, untrusted.CONFIG_BYTES)
    except FileNotFoundError as error:
        return "", {}, [_whole_file(path.name, str(error.strerror))]
    except Unreadable as error:
        return "", {}, [_whole_file(path.name, str(error))]
    text = content.decode(errors="replace")
    if reason := format_error(text):
        return text, {}, [_whole_file(path.name, reason)]
    try:
        return text, untrusted.read_toml(text), []
    except Unreadable as error:
        return text, {}, [_whole_file(path.name, str(error))]


def read_metrics(
    path: Path, *, most: int | None = None
) -> tuple[list[dict[str, Any]], list[Damage]]:
    """All rows, or the first `most`, and what is wrong with the others."""
    rows: list[dict[str, Any]] = []
    damages: list[Damage] = []
    unnamed = 0
    try:
        for number, row in _metrics_rows(path, most):
            if isinstance(row, dict):
                rows.append(row)
            elif len(damages) < MOST_DAMAGED:
                damages.append({"file": path.name, "line": number, "why": row})
            else:
                unnamed += 1
    except FileNotFoundError:  # a run that has just begun
        return [], []
    except Unreadable as error:
        damages.append(_whole_file(path.name, str(error)))
    if unnamed:
        damages.append(_whole_file(path.name, f"{unnamed:,} more damaged lines"))
    return rows, damages


def _progress(path: Path) -> Progress:
    count, step, over = 0, 0, False
    with suppress(FileNotFoundError, Unreadable):
        for _, row in _metrics_rows(path, MOST_ROWS):
            if isinstance(row, dict):
                count += 1
                step = max(step, row["step"])
                over = over or is_over([row])
    return Progress(count, step, over)


def _metrics_rows(path: Path, most: int | None) -> Iterator[tuple[int, dict[str, Any] | str]]:
    """Each line's number, and its row or what is wrong with it.

    Raises FileNotFoundError and Unreadable.
    """
    size = 0
    with untrusted.open_file(path.parent, path.name) as file:
        for number, line in enumerate(untrusted.lines(file), start=1):
            size += len(line)
            if most is not None and (number > most or size > METRICS_BYTES):
                raise Unreadable(
                    f"expected at most {most:,} lines and "
                    f"{untrusted.size_text(METRICS_BYTES)}; the rest is left out"
                )
            yield number, _metrics_row(line)


def _metrics_row(line: bytes) -> dict[str, Any] | str:
    why = "the line is incomplete"
    try:
        row = untrusted.decode(line, _rows, is_flat=True)
    except Unreadable as error:
        return str(error) if line.endswith(b"\n") else why
    step = row.get("step")
    if isinstance(step, int) and not isinstance(step, bool) and 0 <= step <= LARGEST_STEP:
        return row
    return "expected a row with a step" if line.endswith(b"\n") else why


_rows = msgspec.json.Decoder(dict[str, float | int | bool | str | None])
"""Numbers and names alone: nested values could take twenty times the memory of their text."""


def read_eval(path: Path) -> tuple[dict[str, Any] | None, list[Damage]]:
    """`path`: in the folder eval/ of a run."""
    name = f"eval/{path.name}"
    try:
        text = untrusted.read_file(path.parents[1], name, untrusted.RESULT_BYTES)
        result = untrusted.decode(text, _results)
    except (FileNotFoundError, Unreadable) as error:
        return None, [_whole_file(valid_utf8(name), str(error))]
    return msgspec.to_builtins(result) | {"file": valid_utf8(name)}, []


_results = msgspec.json.Decoder(EvalResult)


def load_evals(run: Path) -> list[EvalResult]:
    """The evaluations in a run folder that can be read, in the order of their steps.

    The final one comes last where it was made after the same step as others.
    """
    found = []
    try:
        names = untrusted.names(run, "eval", ".json")
    except Unreadable:
        return []
    for name in names:
        with suppress(FileNotFoundError, Unreadable):
            text = untrusted.read_file(run, f"eval/{name}", untrusted.RESULT_BYTES)
            found.append(untrusted.decode(text, _results))
    return sorted(found, key=lambda result: (result.step, result.phase in LAST_PHASES))


def _whole_file(file: str, why: str) -> Damage:
    return {"file": file, "line": None, "why": why}


def read_tail(path: Path) -> str:
    """The last lines of a log."""
    try:
        with untrusted.open_file(path.parent, path.name) as file:
            file.seek(max(os.fstat(file.fileno()).st_size - LOG_BYTES, 0))
            text = file.read(LOG_BYTES).decode(errors="replace")
    except (OSError, Unreadable):
        return ""
    return "\n".join(text.splitlines()[-LOG_LINES:])


LAST_PHASES = ("final", "eval", "expert", "random")
"""Evaluations that end a run folder: a run's final one, and those of `palestra eval --keep`."""


def is_over(rows: list[dict[str, Any]]) -> bool:
    """Whether the last evaluation was made."""
    return any(row.get("phase") in LAST_PHASES for row in reversed(rows))


def stages(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Consecutive training steps with the same stage and horizon."""

    def stage_and_horizon(row: dict[str, Any]) -> tuple[Any, Any]:
        return row.get("stage", 1), row["horizon"]

    played = [row for row in rows if "horizon" in row]
    found = []
    for (stage, horizon), members in groupby(played, key=stage_and_horizon):
        steps = [row["step"] for row in members]
        found.append(
            {"first_step": steps[0], "last_step": steps[-1], "stage": stage, "horizon": horizon}
        )
    return found


def _named(table: Any, key: str) -> str:
    name = table.get(key) if isinstance(table, dict) else None
    return name if isinstance(name, str) else ""


class RunEnvironment(NamedTuple):
    """An environment of a run's configuration."""

    label: str
    """Empty if it has none of its own."""
    name: str
    options: dict[str, Any]
    sandbox: str = ""
    sandbox_read: tuple[str, ...] = ()


def environments(tree: dict[str, Any]) -> list[RunEnvironment]:
    """The environments of the mixture, or the one of `env`. Ignores values of a wrong type."""
    mixture = tree.get("mixture")
    members = mixture if isinstance(mixture, list) and mixture else [tree.get("env")]
    found: list[RunEnvironment] = []
    for member in members:
        if isinstance(member, dict):
            options, paths = member.get("options"), member.get("sandbox_read")
            environment = RunEnvironment(
                label=_named(member, "label"),
                name=_named(member, "name"),
                options=options if isinstance(options, dict) else {},
                sandbox=_named(member, "sandbox"),
                sandbox_read=_texts(paths) if isinstance(paths, list) else (),
            )
            found.append(environment)
    return found


def _texts(values: list[Any]) -> tuple[str, ...]:
    return tuple(value for value in values if isinstance(value, str))


def without_time(name: str) -> str:
    """A run's name without the time that `palestra train` appends to it."""
    return re.sub(r"-\d{8}-\d{6}$", "", name) or name


def settings_that_count(config: dict[str, Any]) -> dict[str, Any]:
    """All settings but the seed and the trackers: runs that share these are one experiment."""
    return {name: value for name, value in config.items() if name not in ("seed", "track")}


def group_names(runs: Sequence[tuple[str, dict[str, Any]]]) -> list[str]:
    """A group's name for each run, given by name and configuration. The runs of one experiment are
    a group, and a run whose configuration cannot be read is a group of its own.
    """
    members: dict[str, list[int]] = {}
    for number, (_, config) in enumerate(runs):
        key = str(number)
        if config:
            key = json.dumps(settings_that_count(config), sort_keys=True, default=str)
        members.setdefault(key, []).append(number)
    names = [""] * len(runs)
    taken: dict[str, int] = {}
    for numbers in members.values():
        name = _common_name([runs[number][0] for number in numbers])
        taken[name] = taken.get(name, 0) + 1
        name = name if taken[name] == 1 else f"{name} ({taken[name]})"
        for number in numbers:
            names[number] = name
    return names


def _common_name(names: list[str]) -> str:
    """The common beginning of the names, without a seed's number and the time at the end."""
    plain = sorted(without_time(name) for name in names)
    # Of sorted texts, the first and the last share the least.
    first, last = plain[0], plain[-1]
    if first == last:
        return first
    length = 0
    while first[: length + 1] == last[: length + 1]:
        length += 1
    return re.sub(r"([-_. ]+(seed|s)?[-_. ]*\d*)$", "", first[:length]) or first
