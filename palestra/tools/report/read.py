"""Reads a run folder for a report. The run may be in progress, and files may be damaged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from palestra.core import untrusted
from palestra.core.errors import UserError
from palestra.core.evaluation import LARGEST, EvalResult
from palestra.core.untrusted import Unreadable
from palestra.runs.reader import (
    EVALS_BYTES,
    MOST_ROWS,
    environments,
    is_over,
    read_config,
    read_metrics,
    runs_in,
    stages,
)

Row = dict[str, Any]

MOST_NOTES = 200
"""Notes of a run that are kept; further ones are dropped."""
MOST_EPISODES = 1_000_000


class ReportError(UserError, ValueError):
    """There is no report; the message says why in one line."""


class Task(msgspec.Struct):
    env: str
    id: str
    category: str = ""


class Turn(msgspec.Struct):
    observation: str
    reply: str
    action: str | None
    reward: float
    invalid: bool = False


class Episode(msgspec.Struct):
    """What a report shows of an episode; the tokens are not read."""

    id: str
    task: Task
    turns: list[Turn]
    stop: str
    success: bool | None
    horizon: int
    reward: float
    final_observation: str = ""
    is_baseline: bool = False


class _Brief(msgspec.Struct):
    """What an episode is selected by."""

    id: str
    task: Task
    turns: list[dict[str, msgspec.Raw]]
    stop: str
    reward: float
    is_baseline: bool = False


class _Position(NamedTuple):
    """The position of an episode in its file. Sorts from the best to the worst."""

    loss: float
    turns: int
    id: str
    kind: tuple[str, str]
    start: int
    size: int


_episodes = msgspec.json.Decoder(Episode)
_briefs = msgspec.json.Decoder(_Brief)
_results = msgspec.json.Decoder(EvalResult)


@dataclass
class Record:
    """All that a report needs of a run, except for its trajectories."""

    folder: Path
    config: Row
    config_text: str
    rows: list[Row]
    evals: list[EvalResult]
    """The evaluations that the metrics have a row of, in that order."""
    notes: list[str]
    """Descriptions of what could not be read."""

    @property
    def name(self) -> str:
        return untrusted.terminal_safe(self.folder.resolve().name)

    @property
    def seed(self) -> int:
        return _integer(self.config.get("seed"))

    @property
    def steps(self) -> list[Row]:
        """The rows of training steps."""
        return [row for row in self.rows if "phase" not in row]

    @property
    def planned(self) -> int:
        return _integer(self.config.get("steps"))

    @property
    def is_over(self) -> bool:
        return is_over(self.rows)

    @property
    def last_eval(self) -> EvalResult | None:
        return self.evals[-1] if self.evals else None

    @property
    def is_mixture(self) -> bool:
        return len(environments(self.config)) > 1

    @property
    def stages(self) -> list[Row]:
        """The stages of the horizon. Empty for a mixture, whose environments have their own."""
        return [] if self.is_mixture else stages(self.steps)

    @property
    def seconds(self) -> dict[str, float]:
        """By phase. Collecting that overlapped with learning took no time of its own."""
        total: dict[str, float] = {}
        for row in self.rows:
            for name, value in row.items():
                if name.startswith("time/") and name != "time/collect_hidden":
                    phase = name.removeprefix("time/")
                    total[phase] = total.get(phase, 0.0) + value
        return total

    @property
    def sampled_tokens(self) -> int:
        return round(sum(row.get("tokens/sampled", 0) for row in self.steps))

    def count_episodes(self) -> int:
        """Training episodes that are stored, faults and repetitions included."""
        return sum(self._count_lines(name) for name in self._stored("step-"))

    def _count_lines(self, name: str) -> int:
        count = 0
        with self._noting(name), untrusted.open_file(self.folder, name) as file:
            for _ in untrusted.lines(file):
                count += 1
        return count

    def told(self, count: int) -> tuple[str, list[Episode], list[Episode]]:
        """The name of the file, and its best and worst episodes: of the last evaluation, else of
        the last step.
        """
        name = f"trajectories/eval-{self.last_eval.name}.jsonl" if self.last_eval else ""
        if name not in self._stored("eval-"):
            stored = self._stored("step-")
            if not stored:
                return "", [], []
            name = stored[-1]
        ordered = sorted(self._positions(name))
        half = min(count, (len(ordered) + 1) // 2)
        best = _varied(ordered, half)
        worst = _varied(ordered[::-1], min(half, len(ordered) - half))
        return Path(name).stem, self._episodes(name, best), self._episodes(name, worst)

    def _stored(self, kind: str) -> list[str]:
        names: list[str] = []
        with self._noting("trajectories"):
            names = untrusted.names(self.folder, "trajectories", ".jsonl")
        return [f"trajectories/{name}" for name in names if name.startswith(kind)]

    def _positions(self, name: str) -> Iterator[_Position]:
        """The positions of the episodes that can be shown. The episodes themselves may be too many
        to keep.
        """
        start = damaged = 0
        with self._noting(name), untrusted.open_file(self.folder, name) as file:
            for number, line in enumerate(untrusted.lines(file), 1):
                try:
                    untrusted.decode(line, _episodes, is_flat=True)
                    brief = untrusted.decode(line, _briefs, is_flat=True)
                    if not _is_fault(brief.stop) and not brief.is_baseline and brief.turns:
                        kind = (brief.task.env[:100], brief.task.category[:100])
                        yield _Position(
                            -brief.reward, len(brief.turns), brief.id[:100], kind, start, len(line)
                        )
                except Unreadable as error:
                    self.note(f"{name}, line {number}: {error}")
                    damaged += 1
                start += len(line)
                if number >= MOST_EPISODES or damaged >= MOST_NOTES:
                    raise Unreadable(
                        "too many lines, or too many that are damaged; the rest is passed over"
                    )

    def _episodes(self, name: str, positions: list[_Position]) -> list[Episode]:
        found = []
        with self._noting(name), untrusted.open_file(self.folder, name) as file:
            for position in positions:
                file.seek(position.start)
                found.append(untrusted.decode(file.read(position.size), _episodes))
        return found

    @contextmanager
    def _noting(self, name: str) -> Iterator[None]:
        """Around reading the file `name`: adds a note if it cannot be read."""
        try:
            yield
        except (OSError, Unreadable) as error:
            self.note(f"{name}: {error}")

    def note(self, text: str) -> None:
        text = untrusted.terminal_safe(text)
        if len(self.notes) < MOST_NOTES and text not in self.notes:
            self.notes.append(text)


def _is_fault(stop: str) -> bool:
    return stop in ("env_fault", "timeout", "cancelled")


def _integer(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _varied(positions: list[_Position], count: int) -> list[_Position]:
    """The first `count`, preferring the first of each category."""
    seen: set[tuple[str, str]] = set()
    first_of_kind: list[_Position] = []
    others: list[_Position] = []
    for position in positions:
        if position.kind in seen:
            others.append(position)
        else:
            first_of_kind.append(position)
            seen.add(position.kind)
    return [*first_of_kind, *others][:count]


def find_runs(folders: list[Path]) -> list[Path]:
    """All run folders among and in these folders, each once."""
    found: dict[Path, Path] = {}
    for folder in folders:
        inside = runs_in(folder)
        if not inside:
            raise ReportError(
                f"{untrusted.terminal_safe(str(folder))}: there is no run in this folder (no "
                "config.toml), nor in the folders in it"
            )
        for run in inside:
            found.setdefault(run.resolve(), run)
    return list(found.values())


def read_run(folder: Path) -> Record:
    """Raises Unreadable if the configuration cannot be read."""
    text, config, damages = read_config(folder / "config.toml")
    if damages:
        raise Unreadable(f"config.toml: {damages[0]['why']}")
    rows, damages = read_metrics(folder / "metrics.jsonl", most=MOST_ROWS)
    record = Record(folder, config, text, [_numbers_of(row) for row in rows], [], [])
    for damage in damages:
        line = f", line {damage['line']}" if damage["line"] else ""
        record.note(f"metrics.jsonl{line}: {damage['why']}")
    names = dict.fromkeys(_eval_name(row) for row in record.rows if "eval/success" in row)
    left = EVALS_BYTES
    for name in names:
        found, size = _eval(record, name)
        left -= size
        if left < 0:
            record.note(
                f"eval: expected at most {untrusted.size_text(EVALS_BYTES)} of "
                "evaluations; some are left out"
            )
            break
        if found is not None:
            record.evals.append(found)
    return record


def _numbers_of(row: Row) -> Row:
    """The phase and the numbers of a row. Nulls and numbers that are too large are left out."""
    numbers: Row = {}
    for name, value in row.items():
        if isinstance(value, float | int) and abs(value) <= LARGEST:
            numbers[name] = value
    if "phase" in row:
        numbers["phase"] = str(row["phase"])
    return numbers


def _eval_name(row: Row) -> str:
    return f"step-{row['step']:06d}-{str(row.get('phase')).replace(' ', '-')}"


def _eval(record: Record, name: str) -> tuple[EvalResult | None, int]:
    """An evaluation, and the number of bytes that were read."""
    try:
        text = untrusted.read_file(record.folder, f"eval/{name}.json", untrusted.RESULT_BYTES)
        return untrusted.decode(text, _results), len(text)
    except (OSError, Unreadable) as error:
        record.note(f"eval/{name}.json: {error}")
        return None, 0
