"""Groups that were played and not yet learned from, on disk: a run that is killed loses none of
them.
"""

from __future__ import annotations

import hashlib
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
    """Attempts that a fault ended and that were begun anew."""

    @property
    def episodes(self) -> list[Trajectory]:
        """In the order in which they were numbered."""
        baseline = self.group.baseline
        return [*self.group.trajectories, *([] if baseline is None else [baseline])]

    @property
    def versions(self) -> set[int]:
        """Of the weights that sampled it."""
        segments = [segment for trajectory in self.episodes for segment in trajectory.segments]
        return {
            version
            for s in segments
            for version, chosen in zip(s.versions, s.mask, strict=True)
            if chosen
        }


class Entry(NamedTuple):
    """What the name of a file says."""

    step: int
    """The training step that the group is for."""
    number: int
    """Which one of the step's groups it is."""
    version: int
    """The newest weights that had a part in it; -1 where none had."""

    @property
    def name(self) -> str:
        return f"step-{self.step:06d}-group-{self.number:04d}-version-{self.version:06d}.json"


class GroupQueue:
    """A folder with a file for each group: JSON in one line, and its SHA-256 in another."""

    def __init__(self, folder: Path, check_folder: Callable[[], None] | None = None) -> None:
        self.folder = folder
        self._check_folder = check_folder
        """Before each write: raises where it would go into another run's folder."""

    def put(self, step: int, number: int, finished: Finished) -> None:
        """It is whole and on disk when this returns."""
        path = self.folder / Entry(step, number, max(finished.versions, default=-1)).name
        content = msgspec.json.encode(finished)
        if self._check_folder is not None:
            self._check_folder()
        replace_file(
            path,
            b"%b\n%b\n" % (content, hashlib.sha256(content).hexdigest().encode()),
            is_lasting=True,
        )

    def entries(self) -> dict[Entry, Path]:
        found = {
            path: re.fullmatch(r"step-(\d+)-group-(\d+)-version-(-?\d+)\.json", path.name)
            for path in self.folder.glob("step-*")
        }
        return {
            Entry(*map(int, match.groups())): path for path, match in sorted(found.items()) if match
        }

    def read(self) -> dict[tuple[int, int], Finished]:
        """All groups by step and number. One that cannot be read is as good as not played."""
        found: dict[tuple[int, int], Finished] = {}
        for entry, path in self.entries().items():
            try:
                content, _, digest = read_regular(path).rstrip(b"\n").rpartition(b"\n")
                if hashlib.sha256(content).hexdigest().encode() != digest:
                    raise ValueError("it is not what was written")
                found[entry.step, entry.number] = msgspec.json.decode(content, type=Finished)
            except (
                OSError,
                ValueError,
                RecursionError,
            ) as error:  # msgspec's errors are ValueErrors
                log.warning("%s is damaged and will be played again: %s", path, error)
        return found

    def keep(self, is_wanted: Callable[[Entry], bool]) -> None:
        """Delete all others."""
        for entry, path in self.entries().items():
            if not is_wanted(entry):
                with writing(path):
                    delete(path)

    def rewind(self, step: int) -> None:
        """Keep what the steps after this one can learn from: not what was played by weights that
        are no more.
        """
        self.keep(lambda entry: entry.step > step and entry.version <= step)
        for draft in self.folder.glob(".*.draft"):
            with writing(draft):
                delete(draft)
