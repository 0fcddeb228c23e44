"""A run folder as a report sees it: read-only, perhaps still being written, perhaps damaged in places."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from palestra.config import ConfigError
from palestra.run_folder import is_over, read_config, read_metrics, runs_in, stages

Row = dict[str, Any]


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
    """What a report tells of an episode; the tokens are left where they are."""

    id: str
    task: Task
    turns: list[Turn]
    stop: str
    success: bool | None
    horizon: int
    reward: float
    final_observation: str = ""
    is_baseline: bool = False

    @property
    def is_fault(self) -> bool:
        return self.stop in ("env_fault", "timeout", "cancelled")


class _Score(msgspec.Struct):
    tasks: int
    episodes: int
    success: float
    success_interval: tuple[float, float]
    pass_at_k: float
    pass_interval: tuple[float, float]
    reward: float
    turns: float
    tokens: float
    reward_interval: tuple[float, float] | None = None
    """Not there in older folders."""


class _Scores(msgspec.Struct):
    all: _Score
    categories: dict[str, _Score]


class _Eval(msgspec.Struct):
    """The result of an evaluation, as `evaluate.summarise` makes it."""

    phase: str
    step: int
    k: int
    all: _Score
    envs: dict[str, dict[str, _Scores]]
    faults: int = 0


@dataclass
class Record:
    """All that a report says of a run is in here, or is read from its trajectories."""

    folder: Path
    config: Row
    config_text: str
    rows: list[Row]
    evals: list[Row]
    """Those that the metrics have a row of, in that order."""
    notes: list[str]
    """What could not be read."""

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @property
    def seed(self) -> int:
        return int(self.config.get("seed", 0))

    @property
    def steps(self) -> list[Row]:
        """The rows of training steps."""
        return [row for row in self.rows if "phase" not in row]

    @property
    def planned(self) -> int:
        return int(self.config.get("steps", 0))

    @property
    def is_over(self) -> bool:
        return is_over(self.rows)

    @property
    def last_eval(self) -> Row | None:
        return self.evals[-1] if self.evals else None

    @property
    def is_mixture(self) -> bool:
        return len(self.config.get("mixture", [])) > 1

    @property
    def stages(self) -> list[Row]:
        """Of one environment's horizon: those of a mixture have each their own."""
        return [] if self.is_mixture else stages(self.steps)

    @property
    def seconds(self) -> dict[str, float]:
        """By phase. Play that learning hid took no time of its own."""
        total: dict[str, float] = {}
        for row in self.rows:
            for name, value in row.items():
                if name.startswith("time/") and name != "time/collect_hidden":
                    total[name[5:]] = total.get(name[5:], 0.0) + value
        return total

    @property
    def sampled_tokens(self) -> int:
        return round(sum(row.get("tokens/sampled", 0) for row in self.steps))

    def count_episodes(self) -> int:
        """Training episodes that are stored, faults and repetitions included."""
        return sum(_count_lines(path) for path in (self.folder / "trajectories").glob("step-*.jsonl"))

    def told(self, count: int) -> tuple[str, list[Episode], list[Episode]]:
        """Where episodes are from, the best and the worst: of the last evaluation, else of the last step."""
        name = f"eval-{self.last_eval['file']}" if self.last_eval else ""
        path = self.folder / "trajectories" / f"{name}.jsonl"
        if not path.is_file():
            stored = sorted((self.folder / "trajectories").glob("step-*.jsonl"))
            if not stored:
                return "", [], []
            path = stored[-1]
        sound = [episode for episode in self._episodes(path) if not episode.is_fault and not episode.is_baseline and episode.turns]
        ordered = sorted(sound, key=lambda episode: (-episode.reward, len(episode.turns), episode.id))
        half = min(count, (len(ordered) + 1) // 2)
        return path.stem, _varied(ordered, half), _varied(ordered[::-1], min(half, len(ordered) - half))

    def _episodes(self, path: Path) -> Iterator[Episode]:
        for number, line in enumerate(path.read_bytes().splitlines(), 1):
            try:
                yield msgspec.json.decode(line, type=Episode)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                self.note(f"trajectories/{path.name}, line {number}: {error}")

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def _varied(episodes: list[Episode], count: int) -> list[Episode]:
    """The first ones, of different categories while there are any."""
    seen: set[tuple[str, str]] = set()
    fresh: list[Episode] = []
    others: list[Episode] = []
    for episode in episodes:
        kind = (episode.task.env, episode.task.category)
        (others if kind in seen else fresh).append(episode)
        seen.add(kind)
    return [*fresh, *others][:count]


def _count_lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(piece.count(b"\n") for piece in iter(lambda: file.read(1 << 20), b""))


def find_runs(folders: list[Path]) -> list[Path]:
    """The run folders that are meant: each of them, or all in a folder of runs. None twice."""
    found: dict[Path, Path] = {}
    for folder in folders:
        inside = runs_in(folder)
        if not inside:
            raise ConfigError(f"{folder}: there is no run in this folder (no config.toml), nor in the folders in it")
        for run in inside:
            found.setdefault(run.resolve(), run)
    return list(found.values())


def read_run(folder: Path) -> Record:
    text, config, damages = read_config(folder / "config.toml")
    if damages:
        raise ConfigError(f"{folder / 'config.toml'}: {damages[0]['why']}")
    rows, damages = read_metrics(folder / "metrics.jsonl")
    record = Record(folder, config, text, [_numbers_of(row) for row in rows], [], [])
    for damage in damages:
        record.note(f"metrics.jsonl{f', line {line}' if (line := damage['line']) else ''}: {damage['why']}")
    record.evals = [found for row in record.rows if "eval/success" in row and (found := _eval(record, row)) is not None]
    return record


def _numbers_of(row: Row) -> Row:
    """Numbers only, save for the phase; what was not a number (null) is left out."""
    return {name: value for name, value in row.items() if isinstance(value, float | int) or name == "phase"}


def _eval(record: Record, row: Row) -> Row | None:
    name = f"step-{row['step']:06d}-{str(row.get('phase')).replace(' ', '-')}"
    path = record.folder / "eval" / f"{name}.json"
    try:
        return {**msgspec.to_builtins(msgspec.json.decode(path.read_bytes(), type=_Eval)), "file": name}
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        record.note(f"eval/{name}.json: {error}")
        return None
