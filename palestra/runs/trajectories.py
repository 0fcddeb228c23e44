"""Trajectory files: one episode a line, as JSON."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import msgspec

from palestra.core.files import open_regular
from palestra.core.types import Trajectory

FORMAT = 1
"""Of trajectory files, which change less often than the run folder."""


def encode_trajectory(trajectory: Trajectory) -> bytes:
    """One line of a trajectory file: the fields of `Trajectory`, and their total reward, so that
    readers need not sum it.
    """
    return msgspec.json.encode(
        {"format": FORMAT, "reward": trajectory.reward, **msgspec.to_builtins(trajectory)}
    )


def read_trajectories(path: Path, *, id: str | None = None) -> Iterator[Trajectory]:
    """The episodes of a trajectory file, or only those of one id.

    An incomplete last line, which a crash leaves, is skipped.
    """
    for head, line in _lines(path):
        if id is None or head.id == id:
            yield msgspec.json.decode(line, type=Trajectory)


def trajectory_ids(path: Path) -> list[str]:
    """The ids of the episodes in a trajectory file. Faster than reading the episodes."""
    return [head.id for head, _ in _lines(path)]


class _Head(msgspec.Struct):
    format: int
    id: str


def _lines(path: Path) -> Iterator[tuple[_Head, bytes]]:
    with open_regular(path) as file:
        for line in file:
            if not line.endswith(b"\n"):
                logging.getLogger(__name__).warning(
                    "%s: the last line is incomplete and was skipped", path
                )
                return
            head = msgspec.json.decode(line, type=_Head)
            if head.format != FORMAT:
                raise ValueError(
                    f"{path}: trajectory format {head.format}; this version reads format {FORMAT}"
                )
            yield head, line
