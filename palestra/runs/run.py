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
from typing import TYPE_CHECKING, Any, Protocol

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
from palestra.rollout.metrics import of_eval
from palestra.runs.explain import explain
from palestra.runs.group_queue import GroupQueue
from palestra.runs.reader import OBJECTIVE, read_metrics
from palestra.runs.resume import refuse_changes, tree_of
from palestra.runs.trajectories import encode_trajectory, read_trajectories

if TYPE_CHECKING:
    from palestra.learner.token_stats import EpisodeTokenStats


class MetricsListener(Protocol):
    """Called for every metrics row and every evaluation. Must be fast and must not raise."""

    def row(self, row: dict[str, Any]) -> None: ...
    def result(self, result: EvalResult) -> None: ...


@dataclass
class Run:
    """A folder on disk and the configuration in it."""

    folder: Path
    config: Config
    seconds: dict[str, float] = field(default_factory=dict)
    """The times that `timed` has measured since the last `log`."""
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
    """The device and inode of the locked folder, which may have been moved since."""

    @classmethod
    def create(cls, folder: Path, config: Config) -> Run:
        run = cls(folder, config)
        cls.check_new(folder)
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        with run.locked():
            cls.check_new(folder)  # of two commands that start in one folder, one must fail
            run.write_config()
        return run

    @staticmethod
    def check_new(folder: Path) -> None:
        """Raise ConfigError where no new run can be written."""
        if os.path.lexists(folder / "config.toml"):
            raise ConfigError(
                f"{folder}: there is a run in this folder already; resume it with "
                f"--resume {folder}, or choose another --out"
            )
        if os.path.lexists(folder) and not folder.is_dir():
            raise ConfigError(f"{folder}: is a file; expected a new folder for the run (--out)")

    @classmethod
    def open(cls, folder: Path, overrides: dict[str, Any] | None = None) -> Run:
        """Open a run to resume it, or to play in it. Imports the classes that its configuration
        names.
        """
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
        """Hold the folder's lock: no other process trains in it.

        Raises FolderInUse if one does. May be nested.
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
        """Called before each write: the folder may have been deleted, and another run created at
        the same path.
        """
        if self.is_gone:
            raise CannotWrite(
                f"{self.folder}: the run folder is gone: it was deleted or moved while "
                "the run was training"
            )

    def write(self, path: Path, content: bytes) -> None:
        """Write a file of the run atomically. Does not create the run folder if it is gone."""
        self.check_folder()
        replace_file(path, content, makes_folder=path.parent != self.folder)

    def write_config(self) -> None:
        """Write the configuration, and the objective in words: a reader of the folder need not
        import the algorithm.
        """
        text = f"{format_line()}{configs.dump(self.config)}"
        self.write(self.folder / "config.toml", text.encode())
        self.write(self.folder / OBJECTIVE, f"{explain(self.config)}\n".encode())

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    @property
    def queue(self) -> Path:
        """Groups that were played and not yet trained on (`rollout.max_staleness`)."""
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
        row = self._row(step, metrics)
        path = self.folder / "metrics.jsonl"
        self.check_folder()
        with writing(path), path.open("ab") as file:
            file.write(msgspec.json.encode(row) + b"\n")
        for listener in self.listeners:
            listener.row(row)
        return row

    def _row(self, step: int, metrics: dict[str, Any]) -> dict[str, Any]:
        times = {f"time/{what}": seconds for what, seconds in self.seconds.items()}
        self.seconds.clear()
        return {"step": step, **metrics, **times}

    def metrics(self) -> list[dict[str, Any]]:
        """All rows. One that a crash left incomplete or garbled is skipped."""
        path = self.folder / "metrics.jsonl"
        try:
            open_regular(path).close()  # refuses a pipe, which would block
        except OSError:
            return []
        rows, _ = read_metrics(path)
        return rows

    def trajectory_file(self, name: str) -> Path:
        return self.folder / "trajectories" / f"{name}.jsonl"

    def keep(self, name: str, trajectories: Iterable[Trajectory]) -> None:
        """Store episodes, one a line."""
        lines = [encode_trajectory(trajectory) + b"\n" for trajectory in trajectories]
        self.write(self.trajectory_file(name), b"".join(lines))

    def kept(self, name: str) -> list[Trajectory]:
        """The episodes that `keep` stored. Raises ConfigError if they can no longer be read."""
        path = self.trajectory_file(name)
        try:
            return list(read_trajectories(path))
        except (OSError, ValueError, RecursionError) as error:
            raise ConfigError(f"{path} is damaged, and the run learns from it: {error}") from error

    def write_token_stats(self, step: int, episodes: Iterable[EpisodeTokenStats]) -> None:
        """Store the statistics of a step's action tokens, one episode a line.

        NaN and infinity become null.
        """
        path = self.folder / "token_stats" / f"step-{step:06d}.jsonl"
        self.write(path, b"".join(msgspec.json.encode(episode) + b"\n" for episode in episodes))

    def keep_eval(self, result: EvalResult, trajectories: Iterable[Trajectory]) -> None:
        """Store an evaluation: its result, its episodes, and a row of the metrics."""
        step, phase = result.step, result.phase
        # All of it or nothing: the final evaluation decides whether the run is over.
        with self.interrupts.held():
            self.write_eval(result)
            self.keep(f"eval-{result.name}", trajectories)
            self.log(step, {"phase": phase, **of_eval(result)})
            self.is_complete = phase == "final"

    def write_eval(self, result: EvalResult) -> Path:
        path = self.folder / "eval" / f"{result.name}.json"
        self.write(path, msgspec.json.format(msgspec.json.encode(result)) + b"\n")
        for listener in self.listeners:
            listener.result(result)
        return path

    def rewind(self, step: int) -> None:
        """Delete what was recorded after `step`, and the final evaluation, so that a resumed run
        records each thing once.
        """
        lines: list[bytes] = []
        for row in self.metrics():
            if row["step"] <= step and row.get("phase") != "final":
                lines.append(msgspec.json.encode(row) + b"\n")
        self.write(self.folder / "metrics.jsonl", b"".join(lines))
        for folder in ("trajectories", "token_stats"):
            for path in (self.folder / folder).glob("step-*.jsonl"):
                number = path.stem.removeprefix("step-")
                if number.isdecimal() and int(number) > step:
                    delete(path)
        GroupQueue(self.queue).rewind(step)


class ReadOnlyRun(Run):
    """The run folder of all ranks but the first, which alone writes it."""

    def check_folder(self) -> None: ...
    def write_config(self) -> None: ...
    def keep(self, name: str, trajectories: Iterable[Trajectory]) -> None: ...
    def write_token_stats(self, step: int, episodes: Iterable[EpisodeTokenStats]) -> None: ...
    def rewind(self, step: int) -> None: ...

    def log(self, step: int, metrics: dict[str, Any]) -> dict[str, Any]:
        return self._row(step, metrics)

    def write_eval(self, result: EvalResult) -> Path:
        return self.folder / "eval" / f"{result.name}.json"


def _identity_of(folder: Path) -> tuple[int, int] | None:
    try:
        found = folder.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
