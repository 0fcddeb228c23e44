"""Experiment trackers: what goes into the run folder is sent to TensorBoard, Weights & Biases or
MLflow as well.

The run folder stays the record of a run. A tracker works in a thread of its own: if it fails, hangs
or falls behind, training goes on.
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
"""In the run folder: the run's token, and what each tracker calls the run, so that it goes on there
when it is resumed.
"""
MOST_WAITING = 10_000
"""Messages that a tracker may be behind before it is given up."""


@dataclass(frozen=True, slots=True)
class RunInfo:
    """The run that a tracker is told about."""

    folder: Path
    project: str
    config: dict[str, Any]
    since: int
    """The training step after which rows follow: -1 from the very first, else where the run was
    resumed.
    """
    token: str
    """A name that no other run has; the same when the run is resumed."""
    id: str | None
    """What the tracker called it before it was interrupted."""


class Tracker(ABC):
    """Override these. All are called in one thread that is the tracker's own, and may raise."""

    package: ClassVar[str] = ""
    """What must be installed, by the name that it is imported by."""

    @classmethod
    def objection(cls) -> str:
        """Why it cannot be used here and now; empty where it can. Asked before the run begins."""
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
        """Nothing more will come. `is_complete`: the run reached its end."""


def objection(settings: TrackSettings) -> str:
    """Why a run with these trackers should not begin; empty where it may."""
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
    """A tracker at work beside training. The first thing that goes wrong ends it."""

    def __init__(self, name: str, subject: RunInfo) -> None:
        self.name = name
        self.id = subject.id
        self._subject = subject
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
            self.id = tracker.begin(self._subject)
            while not self._is_dropped:
                message = self._waiting.get()
                if isinstance(message, bool):
                    tracker.end(is_complete=message)
                    return
                what, values = message
                (tracker.row if what == "row" else tracker.result)(*values)
        except BaseException as error:  # noqa: BLE001  also an exit that a library asks for: none of it is training's concern
            self._drop(f"{type(error).__name__}: {error}")


class TrackerHub:
    """Watches a run folder for all of its trackers."""

    def __init__(self, run: Run, since: int) -> None:
        settings, config = run.config.track, run.config.model_dump(mode="json", exclude_none=True)
        self._run, self._path = run, run.folder / FILE
        self._ids = {"token": secrets.token_hex(8)} | stored_ids(run.folder)
        run.write(self._path, msgspec.json.encode(self._ids))
        self._threads = [
            _Thread(
                name,
                RunInfo(
                    run.folder,
                    settings.project,
                    config,
                    since,
                    self._ids["token"],
                    self._ids.get(name),
                ),
            )
            for name in dict.fromkeys(settings.names)
        ]

    def row(self, row: dict[str, Any]) -> None:
        self._store_ids()
        values = {
            name: float(value)
            for name, value in row.items()
            if isinstance(value, int | float) and name != "step"
        }
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
        ids = self._ids | {
            thread.name: thread.id for thread in self._threads if thread.id is not None
        }
        if ids != self._ids:
            self._run.write(self._path, msgspec.json.encode(ids))
            self._ids = ids


def stored_ids(folder: Path) -> dict[str, str]:
    """What trackers call the run in this folder. A file that a crash has cut short says nothing."""
    try:
        return msgspec.convert(read_json(folder / FILE), dict[str, str])
    except (CannotRead, msgspec.ValidationError):
        return {}


@contextmanager
def tracked(run: Run, *, since: int) -> Iterator[None]:
    """Around a run: its trackers are told of every row and every evaluation from here on."""
    settings = run.config.track
    if not settings.names:
        yield
        return
    following, is_complete = TrackerHub(run, since), False
    run.listeners.append(following)
    try:
        yield
        is_complete = True
    finally:
        run.listeners.remove(following)
        following.end(is_complete=is_complete, timeout_s=settings.timeout_s)
