"""The run folder: configuration, metrics, trajectories, checkpoints, evaluations.

It is what all other tools read.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import msgspec

from palestra.config import config as configs
from palestra.config.config import Config
from palestra.config.run_format import format_line
from palestra.core.errors import ConfigError
from palestra.core.evaluation import EvalResult
from palestra.core.files import CannotWrite, delete, open_regular, replace_file, writing
from palestra.core.folder_lock import NAME, FolderLock
from palestra.core.interrupts import Interrupts
from palestra.core.types import Trajectory
from palestra.learner.token_stats import EpisodeTokenStats
from palestra.rollout.metrics import of_eval
from palestra.runs.explain import explain
from palestra.runs.group_queue import GroupQueue
from palestra.runs.reader import OBJECTIVE, read_metrics
from palestra.runs.resume import refuse_changes, tree_of
from palestra.runs.trajectories import encode_trajectory, read_trajectories


class MetricsListener(Protocol):
    """Is told what goes into a run folder. It must neither raise nor take its time."""

    def row(self, row: dict[str, Any]) -> None: ...
    def result(self, result: EvalResult) -> None: ...


@dataclass
class Run:
    """A folder on disk and the configuration in it."""

    folder: Path
    config: Config
    seconds: dict[str, float] = field(default_factory=dict)
    """What `timed` has measured since the last `log`."""
    listeners: list[MetricsListener] = field(default_factory=list)
    interrupts: Interrupts = field(default_factory=Interrupts)
    began: float = field(default_factory=time.monotonic)
    opened_at: float = field(default_factory=time.time)
    is_complete: bool = False
    """Whether this process has made the final evaluation."""
    lock_name: str = NAME
    timeout_s: float = 0.0
    """How long to wait for a lock that another process holds."""
    _lock: FolderLock | None = None
    _identity: tuple[int, int] | None = None
    """Of the folder that was locked, wherever it is by now."""

    @classmethod
    def create(cls, folder: Path, config: Config) -> Run:
        run = cls(folder, config)
        run._refuse_another()
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        with run.locked():
            run._refuse_another()  # of two commands that begin in one folder only one does
            run.write_config()
        return run

    def _refuse_another(self) -> None:
        if os.path.lexists(self.folder / "config.toml"):
            raise ConfigError(
                f"{self.folder}: there is a run in this folder already; go on with it by "
                f"--resume {self.folder}, or choose another --out"
            )

    @classmethod
    def open(cls, folder: Path, overrides: dict[str, Any] | None = None) -> Run:
        """To go on with it, or to play in it: classes that its configuration names are imported."""
        if not (folder / "config.toml").is_file():
            raise ConfigError(f"{folder}: there is no run in this folder (no config.toml)")
        fixed = [
            name for name in overrides or {} if name.split(".")[0] in ("model", "dtype", "lora")
        ]
        if fixed:
            raise ConfigError(
                f"{fixed[0]} = {(overrides or {})[fixed[0]]!r}: a run's model cannot be "
                "changed when it is resumed"
            )
        after = configs.load(folder / "config.toml", overrides, imports=True)
        if overrides:
            refuse_changes(tree_of(configs.load(folder / "config.toml", imports=True)), after)
        return cls(folder, after)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else trains in the folder meanwhile.

        Raises FolderInUse where somebody does. May be nested.
        """
        if self._lock is not None:
            yield
            return
        lock = FolderLock(self.folder, self.lock_name)
        lock.take(timeout_s=self.timeout_s)
        self._lock, self._identity = lock, _identity_of(self.folder)
        try:
            yield
        finally:
            self._lock = self._identity = None
            lock.release()

    @property
    def is_gone(self) -> bool:
        """Whether the folder that was locked is no longer where it was."""
        return self._identity is not None and _identity_of(self.folder) != self._identity

    def check_folder(self) -> None:
        """Before each write: another run may have come to the same place since."""
        if self.is_gone:
            raise CannotWrite(
                f"{self.folder}: the run folder is gone: it was deleted or moved while "
                "the run was training"
            )

    def write(self, path: Path, content: bytes) -> None:
        """A file of the run, whole or not at all. The run folder itself is never made anew."""
        self.check_folder()
        replace_file(path, content, makes_folder=path.parent != self.folder)

    def write_config(self) -> None:
        """And the objective in words, so that nobody who reads the folder has to import an
        algorithm that it names.
        """
        self.write(
            self.folder / "config.toml",
            f"{format_line()}{configs.dump(self.config)}".encode(),
        )
        self.write(self.folder / OBJECTIVE, f"{explain(self.config)}\n".encode())

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    @property
    def queue(self) -> Path:
        """Groups that were played and not yet learned from (`rollout.max_staleness`)."""
        return self.folder / "queue"

    def checkpoint(self, step: int) -> Path:
        return self.checkpoints / f"step-{step:06d}"

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds[what] = self.seconds.get(what, 0.0) + time.monotonic() - began

    def log(self, step: int, metrics: dict[str, Any]) -> dict[str, Any]:
        """Append one row to the metrics, with the seconds measured since the last one under
        `time/`.
        """
        row = {
            "step": step,
            **metrics,
            **{f"time/{what}": seconds for what, seconds in self.seconds.items()},
        }
        self.seconds.clear()
        path = self.folder / "metrics.jsonl"
        self.check_folder()
        with writing(path), path.open("ab") as file:
            file.write(msgspec.json.encode(row) + b"\n")
        for watcher in self.listeners:
            watcher.row(row)
        return row

    def metrics(self) -> list[dict[str, Any]]:
        """All rows; one that a crash cut short or left garbled is passed over."""
        path = self.folder / "metrics.jsonl"
        try:
            open_regular(path).close()  # a pipe would be waited for
        except OSError:
            return []
        rows, _ = read_metrics(path)
        return rows

    def trajectory_file(self, name: str) -> Path:
        return self.folder / "trajectories" / f"{name}.jsonl"

    def keep(self, name: str, trajectories: Iterable[Trajectory]) -> None:
        """Store episodes, one a line."""
        self.write(
            self.trajectory_file(name),
            b"".join(encode_trajectory(trajectory) + b"\n" for trajectory in trajectories),
        )

    def kept(self, name: str) -> list[Trajectory]:
        """What `keep` stored. Raises ConfigError where it cannot be read any more."""
        path = self.trajectory_file(name)
        try:
            return list(read_trajectories(path))
        except (OSError, ValueError, RecursionError) as error:
            raise ConfigError(f"{path} is damaged, and the run learns from it: {error}") from error

    def write_token_stats(self, step: int, episodes: Iterable[EpisodeTokenStats]) -> None:
        """Store what a step made of the tokens that it learned from, one episode a line.

        What is not a number becomes null.
        """
        path = self.folder / "token_stats" / f"step-{step:06d}.jsonl"
        self.write(path, b"".join(msgspec.json.encode(episode) + b"\n" for episode in episodes))

    def keep_eval(self, result: EvalResult, trajectories: Iterable[Trajectory]) -> None:
        """An evaluation: its result, its episodes, and a row of the metrics."""
        step, phase = result.step, result.phase
        with self.interrupts.held():  # all of it, or nothing: then the run is over, or it is not
            self.write_eval(result)
            self.keep(f"eval-{result.name}", trajectories)
            self.log(step, {"phase": phase, **of_eval(result)})
            self.is_complete = phase == "final"

    def write_eval(self, result: EvalResult) -> Path:
        path = self.folder / "eval" / f"{result.name}.json"
        self.write(path, msgspec.json.format(msgspec.json.encode(result)) + b"\n")
        for watcher in self.listeners:
            watcher.result(result)
        return path

    def rewind(self, step: int) -> None:
        """Forget what was recorded after `step` and the final evaluation, so that going on records
        each thing once.
        """
        rows = [
            row for row in self.metrics() if row["step"] <= step and row.get("phase") != "final"
        ]
        self.write(
            self.folder / "metrics.jsonl",
            b"".join(msgspec.json.encode(row) + b"\n" for row in rows),
        )
        for path in self.folder.glob("*/step-*.jsonl"):
            number = path.stem[5:]
            if (
                path.parent.name in ("trajectories", "token_stats")
                and number.isdecimal()
                and int(number) > step
            ):
                delete(path)
        GroupQueue(self.queue).rewind(step)


class ReadOnlyRun(Run):
    """The run folder as a rank sees it that is not the first: what all of them know is written
    once.
    """

    def check_folder(self) -> None: ...
    def write_config(self) -> None: ...
    def keep(self, name: str, trajectories: Iterable[Trajectory]) -> None: ...
    def write_token_stats(self, step: int, episodes: Iterable[EpisodeTokenStats]) -> None: ...
    def rewind(self, step: int) -> None: ...

    def log(self, step: int, metrics: dict[str, Any]) -> dict[str, Any]:
        row = {
            "step": step,
            **metrics,
            **{f"time/{what}": seconds for what, seconds in self.seconds.items()},
        }
        self.seconds.clear()
        return row

    def write_eval(self, result: EvalResult) -> Path:
        return self.folder / "eval" / f"{result.name}.json"


def _identity_of(folder: Path) -> tuple[int, int] | None:
    try:
        found = folder.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
