"""The episodes of a run as columns, with their texts for searching. Follows the folder of a run
that is still training.
"""

from __future__ import annotations

import logging
import re
import threading
import time
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import msgspec

from palestra.core import untrusted
from palestra.core.types import Stop
from palestra.core.untrusted import Unreadable, valid_utf8
from palestra.runs.reader import Signature, readable_lines, signature

log = logging.getLogger(__name__)

FORMAT = 1
POLL_S = 1.0
WAIT_S = 60.0
UNPACKED_TEXT_BYTES = 200_000_000
PART_LINES = 2000
"""Lines of a part. The lines of a part become visible together."""
PART_TEXT_BYTES = 64_000_000
"""A part is closed at this size of its texts, since a search unpacks one part at a time."""
MOST_EPISODES = 1_000_000
"""Of a run. Each takes some 200 bytes here, and in a bundle two files."""
MOST_DAMAGED = 1000
"""The rest of a file is not read after this many damaged lines."""
SEPARATOR = b"\xff"
"""Between texts. The byte does not occur in UTF-8, so no match spans two texts."""

FAULTS = frozenset(stop.value for stop in Stop if stop.is_fault)
Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class _Task(msgspec.Struct):
    env: str
    split: str
    id: str
    category: str = ""


class _Turn(msgspec.Struct):
    observation: str
    reply: str
    span: tuple[Count, Count]
    invalid: bool = False


class _Episode(msgspec.Struct):
    """The fields of a line that the columns need. The rest of the line is skipped."""

    format: int
    id: str
    task: _Task
    turns: list[_Turn]
    stop: str
    reward: float | None
    success: bool | None
    step: Count = 0
    stage: Count = 0
    is_baseline: bool = False
    attempt: Count = 0
    final_observation: str = ""
    fault: str = ""

    @property
    def may_be_learned_from(self) -> bool:
        return not self.is_baseline and self.stop not in FAULTS

    @property
    def text(self) -> str:
        """The text that a search looks at."""
        texts = [self.task.id]
        for turn in self.turns:
            texts += (turn.observation, turn.reply)
        return "\n".join([*texts, self.final_observation, self.fault])


class _TokenStats(msgspec.Struct):
    id: str
    advantage: list[float | None]


_episodes = msgspec.json.Decoder(_Episode)
_token_stats = msgspec.json.Decoder(_TokenStats)

NUMBERS = (
    "step",
    "stage",
    "env",
    "split",
    "category",
    "success",
    "stop",
    "turns",
    "tokens",
    "invalid",
    "attempt",
    "baseline",
    "damaged",
)
COLUMNS = ("file", "line", "id", "task", "reward", "advantage", *NUMBERS)
NOTHING = float("nan")
"""A missing value in a column of numbers; null in JSON."""


@dataclass(slots=True)
class Part:
    """Consecutive lines of one file. Filled once, then only read."""

    file: str
    read_as: Signature
    """The file's signature when it was read."""
    first_line: int
    starts: array[int]
    """The offset of each line in the file, and the end of the last one."""
    ids: list[str] = field(default_factory=list)
    tasks: list[str] = field(default_factory=list)
    rewards: array[float] = field(default_factory=lambda: array("d"))
    advantages: array[float] = field(default_factory=lambda: array("d"))
    numbers: dict[str, array[int]] = field(
        default_factory=lambda: {name: array("q") for name in NUMBERS}
    )
    kept_text: bytes = b""
    is_packed: bool = False
    text_starts: array[int] = field(default_factory=lambda: array("q", [0]))

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def text(self) -> bytes:
        """The texts of all lines in lower case, each followed by a separator."""
        return zlib.decompress(self.kept_text) if self.is_packed else self.kept_text

    def close(self, text: bytes, *, pack: bool) -> Part:
        self.is_packed, self.kept_text = pack, zlib.compress(text, level=1) if pack else text
        return self

    def columns(self, file: int, skip: int) -> dict[str, list[Any]]:
        count = len(self) - skip
        columns: dict[str, list[Any]] = {
            "file": [file] * count,
            "line": list(range(self.first_line + skip, self.first_line + len(self))),
            "id": self.ids[skip:],
            "task": self.tasks[skip:],
            "reward": self.rewards[skip:].tolist(),
            "advantage": self.advantages[skip:].tolist(),
        }
        return columns | {name: numbers[skip:].tolist() for name, numbers in self.numbers.items()}

    def search(self, wanted: bytes) -> Iterator[int]:
        if not wanted:
            yield from range(len(self))
            return
        text = self.text
        position = text.find(wanted)
        while position >= 0:
            row = bisect_right(self.text_starts, position) - 1
            yield row
            position = text.find(wanted, self.text_starts[row + 1])

    def task_key(self, row: int) -> tuple[str, int, int] | None:
        """What episodes of the same task have in common; None for a damaged line."""
        if self.numbers["damaged"][row]:
            return None
        return self.tasks[row], self.numbers["env"][row], self.numbers["split"][row]


class NotThere(LookupError):
    """What was asked for does not exist; the message is one line."""


class Index:
    """The episodes of one run. One thread reads files; any thread may query."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.generation = 0
        """Increases whenever rows are removed, which changes the numbers of the others."""
        self.is_complete = False
        self._parts: list[Part] = []
        self._read_as: dict[str, tuple[Signature, Signature]] = {}
        """The signatures of each file in the parts, from when it was read."""
        self.unread: dict[str, str] = {}
        """Why a file, or the rest of it, was not read."""
        self._texts: dict[str, int] = {"": 0}
        self._text_bytes = 0
        self._rows = 0
        self._lock = threading.Lock()
        self._reader: threading.Thread | None = None
        self._stopped = threading.Event()

    # reading

    def start(self) -> None:
        """Start to read, and follow the folder from now on."""
        with self._lock:
            if self._reader is None:
                self._reader = threading.Thread(
                    target=self._follow, daemon=True, name=f"index {self.folder.name}"
                )
                self._reader.start()

    def stop(self) -> None:
        self._stopped.set()

    def _follow(self) -> None:
        while not self._stopped.is_set():
            try:
                self.refresh()
            except Exception:
                log.exception("%s: reading episodes failed; trying again", self.folder)
            self._stopped.wait(POLL_S)

    def refresh(self) -> None:
        """Read new files and those that were replaced, and forget those that are gone."""
        found: dict[str, tuple[Signature, Signature]] = {}
        for name in self._names():
            found[name] = signature(self.path(name)), signature(self.token_stats_path(name))
        stale = {name for name, before in self._read_as.items() if found.get(name) != before}
        if stale:
            with self._lock:
                self._parts = [part for part in self._parts if part.file not in stale]
                self._rows = sum(map(len, self._parts))
                self.generation += 1
            for name in stale:
                del self._read_as[name]
        new = sorted(found.keys() - self._read_as.keys(), key=_when)
        self.is_complete = self.is_complete and not new
        for name in new:
            self._read_as[name] = found[name]
            for part in self._read(name, found[name][0]):
                with self._lock:
                    self._parts.append(part)
                    self._rows += len(part)
            if self._stopped.is_set():
                return
        self.is_complete = True

    def _names(self) -> set[str]:
        try:
            names = untrusted.names(self.folder, "trajectories", ".jsonl")
        except Unreadable:  # the run's page reports it
            return set()
        return {name.removesuffix(".jsonl") for name in names if name == valid_utf8(name)}

    def path(self, file: str) -> Path:
        return self.folder / "trajectories" / f"{file}.jsonl"

    def token_stats_path(self, file: str) -> Path:
        return self.folder / "token_stats" / f"{file}.jsonl"

    def _read(self, name: str, read_as: Signature) -> Iterator[Part]:
        advantages = self._advantages(name)
        part, texts = Part(name, read_as, 0, array("q", [0])), bytearray()
        self.unread.pop(name, None)
        try:
            with untrusted.open_file(self.folder, f"trajectories/{name}.jsonl") as file:
                for line in self._lines(file):
                    self._add(part, texts, line, advantages)
                    if len(part) == PART_LINES or len(texts) > PART_TEXT_BYTES:
                        yield self._close(part, texts)
                        next_line = part.first_line + len(part)
                        part = Part(name, read_as, next_line, part.starts[-1:])
                        texts = bytearray()
        except FileNotFoundError:  # the run was rewound since the file was listed
            return
        except Unreadable as error:
            self.unread[name] = str(error)
            self._add(part, texts, b"", advantages)
        if len(part):
            yield self._close(part, texts)

    def _lines(self, file: BinaryIO) -> Iterator[bytes]:
        """Raises Unreadable if there are too many lines, or too many damaged ones."""
        damaged = 0
        for number, line in enumerate(untrusted.lines(file), start=self._rows):
            if number >= MOST_EPISODES:
                raise Unreadable(
                    f"expected at most {MOST_EPISODES:,} episodes; the rest of the file is not read"
                )
            damaged += not line.startswith(b"{")
            if damaged > MOST_DAMAGED:
                raise Unreadable(
                    f"more than {MOST_DAMAGED:,} lines are no JSON objects; the rest of "
                    "the file is not read"
                )
            yield line

    def _close(self, part: Part, texts: bytearray) -> Part:
        """Close a part. Once a run has many texts, further parts are compressed: slower to search,
        but a fraction of the memory.
        """
        self._text_bytes += len(texts)
        return part.close(bytes(texts), pack=self._text_bytes > UNPACKED_TEXT_BYTES)

    def _advantages(self, name: str) -> dict[str, float]:
        """The mean advantage of each episode that this file's step trained on."""
        means: dict[str, float] = {}
        for stats in readable_lines(self.folder, f"token_stats/{name}.jsonl", _token_stats):
            values = [value for value in stats.advantage if value is not None]
            if values and len(means) < MOST_EPISODES:
                means[stats.id] = sum(values) / len(values)
        return means

    def _add(self, part: Part, texts: bytearray, line: bytes, advantages: dict[str, float]) -> None:
        part.starts.append(part.starts[-1] + len(line))
        episode = read_line(line)
        if isinstance(episode, str):
            id, task, reward, advantage, text = "", "", NOTHING, NOTHING, ""
            numbers: dict[str, int] = dict.fromkeys(NUMBERS, 0) | {"success": -1, "damaged": 1}
        else:
            id, task, text = episode.id, episode.task.id, episode.text
            reward = NOTHING if episode.reward is None else round(episode.reward, 6)
            advantage = advantages.get(id, NOTHING) if episode.may_be_learned_from else NOTHING
            numbers = self._numbers(episode)
        numbers["step"] = numbers["step"] if (step := _step_of(part.file)) is None else step
        part.ids.append(id)
        part.tasks.append(task)
        part.rewards.append(reward)
        part.advantages.append(advantage)
        for name, number in numbers.items():
            part.numbers[name].append(number)
        texts += text.lower().encode() + SEPARATOR
        part.text_starts.append(len(texts))

    def _numbers(self, episode: _Episode) -> dict[str, int]:
        task, turns = episode.task, episode.turns
        return {
            "step": episode.step,
            "stage": episode.stage,
            "env": self._number_of(task.env),
            "split": self._number_of(task.split),
            "category": self._number_of(task.category),
            "success": -1 if episode.success is None else int(episode.success),
            "stop": self._number_of(episode.stop),
            "turns": len(turns),
            "tokens": sum(turn.span[1] - turn.span[0] for turn in turns),
            "invalid": sum(turn.invalid for turn in turns),
            "attempt": episode.attempt,
            "baseline": int(episode.is_baseline),
            "damaged": 0,
        }

    def _number_of(self, text: str) -> int:
        return self._texts.setdefault(text, len(self._texts))

    # asking

    @property
    def total(self) -> int:
        return self._rows

    def _snapshot(self) -> list[Part]:
        with self._lock:
            return list(self._parts)

    def columns(self, first: int = 0) -> dict[str, Any]:
        """All rows from number `first` on, as `episodes.json` has them."""
        # Read before the parts: a complete index must not come with parts from before it was.
        is_complete = self.is_complete
        with self._lock:
            parts, generation = list(self._parts), self.generation
        files: dict[str, int] = {}
        for part in parts:
            files.setdefault(part.file, len(files))
        rows: dict[str, list[Any]] = {name: [] for name in COLUMNS}
        total = 0
        for part in parts:
            skip = max(first - total, 0)
            total += len(part)
            if skip < len(part):
                for name, values in part.columns(files[part.file], skip).items():
                    rows[name] += values
        about = {
            "from": first,
            "total": total,
            "is_complete": is_complete,
            "generation": generation,
        }
        return about | {"files": list(files), "texts": list(self._texts), "rows": rows}

    def search(self, query: str) -> list[int]:
        """The rows whose texts contain `query`, ignoring case."""
        wanted = query.lower().encode(errors="replace")
        rows: list[int] = []
        first = 0
        for part in self._snapshot():
            rows += (first + row for row in part.search(wanted))
            first += len(part)
        return rows

    def texts(self) -> list[str]:
        """The texts that `search` looks at, one string for each row."""
        texts: list[str] = []
        for part in self._snapshot():
            texts += [text.decode() for text in part.text.split(SEPARATOR)[:-1]]
        return texts

    def line(self, file: str, number: int) -> bytes:
        """A line as it stands in its file. Raises `NotThere`."""
        part = self._part_of(file, number)
        row = number - part.first_line
        if signature(self.path(file)) != part.read_as:
            raise NotThere(f"{file}: the file has changed; ask again")
        try:
            with untrusted.open_file(self.folder, f"trajectories/{file}.jsonl") as source:
                source.seek(part.starts[row])
                return source.read(part.starts[row + 1] - part.starts[row])
        except (OSError, Unreadable):
            return b""

    def _part_of(self, file: str, number: int) -> Part:
        """Waits until the file has been read, since the page may be opened on any episode."""
        until = time.monotonic() + WAIT_S
        while True:
            is_last_try = self.is_complete or time.monotonic() > until
            for part in self._snapshot():
                if part.file == file and 0 <= number - part.first_line < len(part):
                    return part
            if is_last_try or file not in self._names():
                raise NotThere(f"{file}, line {number}: there is no such episode")
            time.sleep(0.02)

    def others_of_task(self, file: str, number: int) -> list[tuple[str, int]]:
        """The other episodes of the same task in the same file."""
        keys: dict[int, tuple[str, int, int] | None] = {}
        for part in self._snapshot():
            if part.file == file:
                for row in range(len(part)):
                    keys[part.first_line + row] = part.task_key(row)
        same_task = [line for line, key in keys.items() if key == keys.get(number)]
        return [(file, line) for line in same_task if line != number]


def read_line(line: bytes) -> _Episode | str:
    """An episode, or what is wrong with the line."""
    if not line.endswith(b"\n"):
        return "the line is incomplete" if line else "the file cannot be read"
    try:
        episode = untrusted.decode(line, _episodes, is_flat=True)
    except Unreadable as error:
        return str(error)
    if episode.format != FORMAT:
        return f"trajectory format {episode.format}; this version reads format {FORMAT}"
    return episode


def _step_of(file: str) -> int | None:
    """The training step that a file belongs to.

    An episode of a partial rollout is in the file of the step that trained on it.
    """
    match = re.match(r"(?:eval-)?step-(\d{1,9})(?:-|$)", file)
    return int(match[1]) if match else None


def _when(file: str) -> tuple[int, bool, str]:
    """The sort key of a file by when it was written: a step's evaluation follows its training."""
    step = _step_of(file)
    return (2**31 if step is None else step, file.startswith("eval-"), file)
