"""What a run folder says about its run, read so that damage is shown and never stops the rest from being shown."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

T = TypeVar("T")

Signature = tuple[int, int, int] | None
"""Changes when a file does; None where there is no file."""

OBJECTIVE = "objective.txt"
"""What `palestra explain` says of the run, written when it begins."""

LOG_LINES = 200
LOG_BYTES = 200_000

Damage = dict[str, Any]
"""`file`, `line` (from 1; None where the whole file is meant) and `why`."""


def runs_in(path: Path) -> list[Path]:
    """The folder itself where it is a run's, else the runs' folders in it."""
    return [path] if (path / "config.toml").is_file() else sorted(config.parent for config in path.glob("*/config.toml"))


def printable(text: str) -> str:
    """A name may have bytes in it that are no text."""
    return text.encode(errors="replace").decode()


def signature(path: Path) -> Signature:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


DAMAGE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding JSON from anywhere can raise."""


def explain_damage(error: Exception) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)


def readable_lines(path: Path, decoder: msgspec.json.Decoder[T]) -> Iterator[T]:
    """What can be read of a file of JSON lines."""
    try:
        with path.open("rb") as file:
            for line in file:
                with suppress(*DAMAGE):
                    yield decoder.decode(line)
    except OSError:
        return


class RunFolder:
    """One run. What was read is kept until its file changes."""

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
        """As text, as nested tables (empty where it is no TOML), and what is wrong with it."""
        return self._read(self.path / "config.toml", read_config)

    def objective(self) -> str:
        """In words, as it was when the run began; empty in runs of older versions."""
        return read_tail(self.path / OBJECTIVE)

    def metrics(self) -> tuple[list[dict[str, Any]], list[Damage]]:
        return self._read(self.path / "metrics.jsonl", read_metrics)

    def evals(self) -> tuple[list[dict[str, Any]], list[Damage]]:
        """In the order of their steps."""
        read = [self._read(path, read_eval) for path in sorted((self.path / "eval").glob("*.json"))]
        evals = [result for result, _ in read if result is not None]
        evals.sort(key=lambda result: step if isinstance(step := result.get("step"), int) else -1)
        return evals, [damage for _, damages in read for damage in damages]

    def summary(self) -> dict[str, Any]:
        """What `runs.json` says of it, but for its id and its group."""
        _, tree, _ = self.config()
        rows, _ = self.metrics()
        return {
            "name": printable(self.path.name),
            "folder": printable(str(self.path)),
            "algo": _named(tree.get("algo"), "name"),
            "envs": [env.label or env.name for env in environments(tree)],
            "seed": tree.get("seed") if isinstance(tree.get("seed"), int) else None,
            "steps": tree.get("steps") if isinstance(tree.get("steps"), int) else None,
            "done": max((row["step"] for row in rows), default=0),
            "is_over": is_over(rows),
        }

    def about(self) -> dict[str, Any]:
        """What `run.json` says of it, but for its id."""
        text, _, config_damage = self.config()
        rows, metrics_damage = self.metrics()
        evals, eval_damage = self.evals()
        return {
            "name": printable(self.path.name),
            "config": text,
            "rows": rows,
            "stages": stages(rows),
            "evals": evals,
            "log": read_tail(self.path / "log.txt"),
            "damaged": config_damage + metrics_damage + eval_damage,
            "has_learnt": any((self.path / "learnt").glob("*.jsonl")),
        }


def read_config(path: Path) -> tuple[str, dict[str, Any], list[Damage]]:
    try:
        text = path.read_bytes().decode(errors="replace")
    except OSError as error:
        return "", {}, [_whole_file(path.name, error.strerror or str(error))]
    try:
        return text, tomllib.loads(text), []
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        return text, {}, [_whole_file(path.name, f"not TOML: {explain_damage(error)}")]


def read_metrics(path: Path) -> tuple[list[dict[str, Any]], list[Damage]]:
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except FileNotFoundError:  # a run that has only begun
        return [], []
    except OSError as error:
        return [], [_whole_file(path.name, error.strerror or str(error))]
    rows, damages = [], []
    for number, line in enumerate(lines, start=1):
        row = _read_object(line)
        if isinstance(row, dict) and not isinstance(row.get("step"), int):
            row = "expected a row with a step"
        if not isinstance(row, dict):
            row = row if line.endswith(b"\n") else "the line is incomplete"
            damages.append({"file": path.name, "line": number, "why": row})
        else:
            rows.append(row)
    return rows, damages


def read_eval(path: Path) -> tuple[dict[str, Any] | None, list[Damage]]:
    name = printable(f"eval/{path.name}")
    try:
        result = _read_object(path.read_bytes())
    except OSError as error:
        result = error.strerror or str(error)
    return (None, [_whole_file(name, result)]) if isinstance(result, str) else (result | {"file": name}, [])


def _read_object(text: bytes) -> dict[str, Any] | str:
    """What it holds, or what is wrong with it."""
    try:
        value = msgspec.json.decode(text)
    except DAMAGE as error:
        return explain_damage(error)
    return value if isinstance(value, dict) else f"expected an object, got {type(value).__name__}"


def _whole_file(file: str, why: str) -> Damage:
    return {"file": file, "line": None, "why": why}


def read_tail(path: Path) -> str:
    """The last lines of a log."""
    try:
        with path.open("rb") as file:
            file.seek(max(path.stat().st_size - LOG_BYTES, 0))
            text = file.read(LOG_BYTES).decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-LOG_LINES:])


LAST_PHASES = ("final", "eval", "expert", "random")
"""What nothing comes after: the final evaluation of a run, and those of `palestra eval --keep`."""


def is_over(rows: list[dict[str, Any]]) -> bool:
    """Whether the last evaluation was made."""
    return any(row.get("phase") in LAST_PHASES for row in reversed(rows))


def stages(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Stretches of training steps with the same stage and horizon."""
    played = [row for row in rows if "horizon" in row]
    found = []
    for (stage, horizon), members in groupby(played, key=lambda row: (row.get("stage", 0), row["horizon"])):
        steps = [row["step"] for row in members]
        found.append({"first_step": steps[0], "last_step": steps[-1], "stage": stage, "horizon": horizon})
    return found


def _named(table: Any, key: str) -> str:
    name = table.get(key) if isinstance(table, dict) else None
    return name if isinstance(name, str) else ""


class RunEnvironment(NamedTuple):
    """As a configuration names it."""

    label: str
    """Empty where it has none of its own."""
    name: str
    options: dict[str, Any]


def environments(tree: dict[str, Any]) -> list[RunEnvironment]:
    """Those of the mixture, else the one."""
    mixture = tree.get("mixture")
    members = mixture if isinstance(mixture, list) and mixture else [tree.get("env")]
    return [RunEnvironment(_named(m, "label"), _named(m, "name"), _options(m)) for m in members if isinstance(m, dict)]


def _options(member: dict[str, Any]) -> dict[str, Any]:
    options = member.get("options")
    return options if isinstance(options, dict) else {}


def without_time(name: str) -> str:
    """A run's name without the time that `palestra train` puts behind it."""
    return re.sub(r"-\d{8}-\d{6}$", "", name) or name


def settings_that_count(config: dict[str, Any]) -> dict[str, Any]:
    """All but the seed, and whom the run was reported to: runs that have these in common are one experiment."""
    return {name: value for name, value in config.items() if name not in ("seed", "track")}


def group_names(runs: Sequence[tuple[str, dict[str, Any]]]) -> list[str]:
    """One for each run, given by name and configuration: runs of one experiment have the same. What cannot be read stands alone."""
    members: dict[str, list[int]] = {}
    for number, (_, config) in enumerate(runs):
        key = json.dumps(settings_that_count(config), sort_keys=True, default=str) if config else str(number)
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
    """What the names begin with, without a seed's number and the time at their ends."""
    plain = sorted(without_time(name) for name in names)
    first, last = plain[0], plain[-1]
    if first == last:
        return first
    shared = next((place for place, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return re.sub(r"([-_. ]+(seed|s)?[-_. ]*\d*)$", "", first[:shared]) or first
