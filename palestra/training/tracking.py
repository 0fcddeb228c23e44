"""Experiment trackers: metrics and evaluations of the run folder are also sent to TensorBoard,
Weights & Biases or MLflow.

The run folder remains the record of a run. Each tracker has its own thread: if it fails, hangs or
falls behind, training continues.
"""

from __future__ import annotations

import logging
import queue
import secrets
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from palestra.config.track import TrackSettings, trackers
from palestra.core.evaluation import EvalResult
from palestra.core.files import CannotRead, read_json
from palestra.core.registry import UnknownName

if TYPE_CHECKING:
    from palestra.runs.run import Run

log = logging.getLogger(__name__)

FILE = "track.json"
"""In the run folder: the run's token, and each tracker's id of the run, so that a resumed run
continues there.
"""
MOST_WAITING = 10_000
"""Messages that may be queued for a tracker before it is dropped."""


@dataclass(frozen=True, slots=True)
class RunInfo:
    """The run that a tracker records."""

    folder: Path
    project: str
    config: dict[str, Any]
    since: int
    """The training step after which rows follow: -1 in a new run, the checkpoint's step in a
    resumed one.
    """
    token: str
    """A name that no other run has. A resumed run keeps it."""
    id: str | None
    """The tracker's id of the run from before an interruption."""


class Tracker(ABC):
    """Override these. All are called in one thread that belongs to the tracker, and may raise."""

    package: ClassVar[str] = ""
    """The package that must be installed, by its import name."""

    @classmethod
    def objection(cls) -> str:
        """Why the tracker cannot be used here; empty if it can. Called before the run begins."""
        return ""

    @abstractmethod
    def begin(self, run: RunInfo) -> str:
        """Open a run, or resume the one called `run.id`; returns its id."""

    @abstractmethod
    def row(self, step: int, values: dict[str, float]) -> None:
        """The numbers of one row of the metrics."""

    @abstractmethod
    def result(self, result: EvalResult) -> None:
        """An evaluation, as it is stored in the run folder."""

    @abstractmethod
    def end(self, *, is_complete: bool) -> None:
        """Close the run. `is_complete`: the run reached its end."""


def objection(settings: TrackSettings) -> str:
    """Why a run cannot begin with these trackers; empty if it can."""
    for name in settings.names:
        try:
            tracker = trackers[name]
        except UnknownName as error:
            return f"track.names: {error}"
        if tracker.package and find_spec(tracker.package) is None:
            return (
                f"track.names: {name!r} needs the package {tracker.package}; pip install "
                "'palestra[track]'"
            )
        if reason := tracker.objection():
            return f"track.names: {name!r}: {reason}"
    return ""


class _Thread:
    """A tracker in its thread. Its first error ends it."""

    def __init__(self, name: str, info: RunInfo) -> None:
        self.name = name
        self.id = info.id
        self._info = info
        self._waiting: queue.Queue[tuple[str, tuple[Any, ...]] | bool] = queue.Queue(MOST_WAITING)
        self._is_dropped = False
        self._thread = threading.Thread(target=self._work, name=f"tracker {name}", daemon=True)
        self._thread.start()

    def tell(self, what: str, *values: Any) -> None:
        self._put((what, values))

    def end(self, *, is_complete: bool) -> None:
        self._put(is_complete)

    def wait(self, until: float) -> None:
        self._thread.join(max(until - time.monotonic(), 0))
        if self._thread.is_alive():
            self._drop("it has not come to its end in time; it may lack the last rows")

    def _put(self, message: tuple[str, tuple[Any, ...]] | bool) -> None:
        if self._is_dropped:
            return
        try:
            self._waiting.put_nowait(message)
        except queue.Full:
            self._drop(f"it is {MOST_WAITING} rows behind")

    def _drop(self, why: str) -> None:
        if not self._is_dropped:
            self._is_dropped = True
            log.error("tracker %s is left out from here on: %s", self.name, why)

    def _work(self) -> None:
        try:
            tracker = trackers[self.name]()
            self.id = tracker.begin(self._info)
            while not self._is_dropped:
                message = self._waiting.get()
                if isinstance(message, bool):
                    tracker.end(is_complete=message)
                    return
                what, values = message
                if what == "row":
                    tracker.row(*values)
                else:
                    tracker.result(*values)
        # Also SystemExit, which some libraries raise: no error of a tracker may reach training.
        except BaseException as error:  # noqa: BLE001
            self._drop(f"{type(error).__name__}: {error}")


class TrackerHub:
    """Passes the metrics and evaluations of a run on to all of its trackers."""

    def __init__(self, run: Run, since: int) -> None:
        settings, config = run.config.track, run.config.model_dump(mode="json", exclude_none=True)
        self._run, self._path = run, run.folder / FILE
        self._ids = {"token": secrets.token_hex(8)} | stored_ids(run.folder)
        run.write(self._path, msgspec.json.encode(self._ids))
        self._threads: list[_Thread] = []
        for name in dict.fromkeys(settings.names):
            token, known_id = self._ids["token"], self._ids.get(name)
            info = RunInfo(run.folder, settings.project, config, since, token, known_id)
            self._threads.append(_Thread(name, info))

    def row(self, row: dict[str, Any]) -> None:
        self._store_ids()
        values: dict[str, float] = {}
        for name, value in row.items():
            if isinstance(value, int | float) and name != "step":
                values[name] = float(value)
        for thread in self._threads:
            thread.tell("row", row["step"], values)

    def result(self, result: EvalResult) -> None:
        for thread in self._threads:
            thread.tell("result", result)

    def end(self, *, is_complete: bool, timeout_s: float) -> None:
        for thread in self._threads:
            thread.end(is_complete=is_complete)
        until = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.wait(until)
        self._store_ids()

    def _store_ids(self) -> None:
        ids = dict(self._ids)
        for thread in self._threads:
            if thread.id is not None:
                ids[thread.name] = thread.id
        if ids != self._ids:
            self._run.write(self._path, msgspec.json.encode(ids))
            self._ids = ids


def stored_ids(folder: Path) -> dict[str, str]:
    """The trackers' ids of the run in this folder. Empty if a crash left the file incomplete."""
    try:
        return msgspec.convert(read_json(folder / FILE), dict[str, str])
    except (CannotRead, msgspec.ValidationError):
        return {}


@contextmanager
def tracked(run: Run, *, since: int) -> Iterator[None]:
    """Around a run: its trackers receive every row of metrics and every evaluation from here on."""
    settings = run.config.track
    if not settings.names:
        yield
        return
    hub, is_complete = TrackerHub(run, since), False
    run.listeners.append(hub)
    try:
        yield
        is_complete = True
    finally:
        run.listeners.remove(hub)
        hub.end(is_complete=is_complete, timeout_s=settings.timeout_s)
