"""ScienceWorld's own solutions.

The simulator takes up to 15 seconds to find one, so they are cached in the user's cache folder.
"""

from __future__ import annotations

import logging
import os
from functools import cache
from importlib.metadata import version
from pathlib import Path

import msgspec

from palestra.envs.sciworld.java import borrow_simulator
from palestra.envs.sciworld.text import normal

log = logging.getLogger(__name__)


class Gold(msgspec.Struct, frozen=True):
    """A solution with all 100 points."""

    actions: tuple[str, ...]
    """Empty if the simulator's solution does not reach 100 points."""
    moves: int
    """The solution's duration on the simulator's clock."""


@cache
def gold_path(kind: str, variation: int, simplifications: str, heap_mb: int) -> Gold:
    file = _cache_folder() / (simplifications or "plain") / kind / f"{variation}.json"
    try:
        return msgspec.json.decode(file.read_bytes(), type=Gold)
    except (OSError, msgspec.DecodeError):
        gold = _found(kind, variation, simplifications, heap_mb)
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(msgspec.json.encode(gold))
        draft.replace(file)
    except OSError as error:
        log.warning("the solution of %s/%d cannot be kept: %s", kind, variation, error)
    return gold


def _found(kind: str, variation: int, simplifications: str, heap_mb: int) -> Gold:
    """Request the solution and play it. Actions after the goal are dropped."""
    simulator = borrow_simulator(heap_mb)
    actions = [
        normal(action) for action in simulator.gold_actions(kind, variation, simplifications)
    ]
    simulator.load(kind, variation, simplifications)
    simulator.step("look around")  # as every episode begins
    solution = Gold((), 0)
    for count, action in enumerate(actions, 1):
        outcome = simulator.step(action)
        if outcome.is_completed or outcome.score < 0:
            if outcome.score == 100:
                solution = Gold(tuple(actions[:count]), outcome.moves)
            break
    simulator.give_back()
    return solution


def _cache_folder() -> Path:
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return user / "palestra" / "sciworld" / version("scienceworld")
