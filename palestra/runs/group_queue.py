"""Groups on disk that were played and not yet trained on. A run that is killed loses none."""

from __future__ import annotations

import hashlib
import itertools
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec

from palestra.core.files import delete, read_regular, replace_file, writing
from palestra.core.types import Group, Trajectory

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Finished:
    """A group that was played to its end."""

    group: Group
    faulted: list[Trajectory]
    """Attempts that a fault ended and that were retried."""

    @property
    def episodes(self) -> list[Trajectory]:
        """All episodes, in the order of their numbers."""
        baseline = self.group.baseline
        if baseline is None:
            return list(self.group.trajectories)
        return [*self.group.trajectories, baseline]

    @property
    def versions(self) -> set[int]:
        """The versions of the weights that sampled the group."""
        found: set[int] = set()
        for trajectory in self.episodes:
            for segment in trajectory.segments:
                found.update(itertools.compress(segment.versions, segment.mask))
        return found


class Entry(NamedTuple):
    """The parts of a file's name."""

    step: int
    """The training step that the group is for."""
    number: int
    """Which one of the step's groups it is."""
    version: int
    """The newest weights that sampled any of it; -1 if none did."""

    @property
    def name(self) -> str:
        return f"step-{self.step:06d}-group-{self.number:04d}-version-{self.version:06d}.json"


class GroupQueue:
    """A folder with a file for each group: JSON in one line, and its SHA-256 in another."""

    def __init__(self, folder: Path, check_folder: Callable[[], None] | None = None) -> None:
        self.folder = folder
        self._check_folder = check_folder
        """Called before each write. Raises if the folder belongs to another run by now."""

    def put(self, step: int, number: int, finished: Finished) -> None:
        """Store a group. It is complete and on disk when this returns."""
        path = self.folder / Entry(step, number, max(finished.versions, default=-1)).name
        content = msgspec.json.encode(finished)
        digest = hashlib.sha256(content).hexdigest().encode()
        if self._check_folder is not None:
            self._check_folder()
        replace_file(path, b"%b\n%b\n" % (content, digest), is_lasting=True)

    def entries(self) -> dict[Entry, Path]:
        found: dict[Entry, Path] = {}
        for path in sorted(self.folder.glob("step-*")):
            match = re.fullmatch(r"step-(\d+)-group-(\d+)-version-(-?\d+)\.json", path.name)
            if match:
                found[Entry(*map(int, match.groups()))] = path
        return found

    def read(self) -> dict[tuple[int, int], Finished]:
        """All groups by step and number. One that cannot be read will be played again."""
        found: dict[tuple[int, int], Finished] = {}
        for entry, path in self.entries().items():
            try:
                content, _, digest = read_regular(path).rstrip(b"\n").rpartition(b"\n")
                if hashlib.sha256(content).hexdigest().encode() != digest:
                    raise ValueError("it is not what was written")
                found[entry.step, entry.number] = msgspec.json.decode(content, type=Finished)
            # msgspec's errors are ValueErrors.
            except (OSError, ValueError, RecursionError) as error:
                log.warning("%s is damaged and will be played again: %s", path, error)
        return found

    def keep(self, is_wanted: Callable[[Entry], bool]) -> None:
        """Delete all others."""
        for entry, path in self.entries().items():
            if not is_wanted(entry):
                with writing(path):
                    delete(path)

    def rewind(self, step: int) -> None:
        """Keep the groups that the steps after this one can train on: those of later steps whose
        weights still exist.
        """
        self.keep(lambda entry: entry.step > step and entry.version <= step)
        for draft in self.folder.glob(".*.draft"):
            with writing(draft):
                delete(draft)
