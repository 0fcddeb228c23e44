"""Episodes and replays as text and as JSON."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from palestra.core.printing import as_json as as_json_text
from palestra.core.transcript import ending, heading, outcome, turn_lines, turns_text
from palestra.core.types import Trajectory
from palestra.rollout.retrace import Check, Difference
from palestra.runs.run import Run
from palestra.tools.replay import Differs, PlayOn, check_stored, find_episode, play_stored

LONG_TEXT = 60
"""Texts of more characters, or of several lines, are compared by a diff."""
DIFF_LINES = 20
"""Lines of a diff that are shown at the most."""


def report(
    run_folder: Path, episode: str, *, file: str | None, choice: PlayOn | None, as_json: bool
) -> tuple[str, bool]:
    """Replay a stored episode.

    Returns a text or JSON, and whether the environment answers as it did.
    """
    run = Run.open(run_folder)
    recorded = find_episode(run, episode, file=file)
    try:
        if choice is not None:
            played, path = play_stored(run, recorded, choice)
            if as_json:
                return as_json_text(_of_played(recorded, choice, played, path)), True
            return played_on(recorded, choice, played, path), True
        check = check_stored(run, recorded)
    except Differs as error:
        check = error.check
    return as_json_text(check.as_dict()) if as_json else checked(check), check.same


def checked(check: Check) -> str:
    """The turns that were checked, each with its differences, and the verdict in the last line."""
    recorded = check.recorded
    lines = heading(recorded)
    for turn in check.turns:
        lines += turn_lines(recorded, turn.turn)
        for difference in turn.differences:
            lines += _different(difference)
    if len(check.turns) == len(recorded.turns):
        lines += ending(recorded)
    if check.same:
        verdict = f"the environment answers as it did ({turns_text(len(check.turns))})"
    else:
        plural = "s" if len(check.differing) > 1 else ""
        verdict = f"it differs at turn{plural} {', '.join(map(str, check.differing))}"
    return "\n".join([*lines, "", verdict])


def played_on(
    recorded: Trajectory, choice: PlayOn, played: Sequence[Trajectory], path: Path
) -> str:
    """Each continuation, with the recorded turns before it."""
    lines: list[str] = []
    for trajectory in played:
        lines += heading(trajectory)
        for number in range(1, len(trajectory.turns) + 1):
            if number == choice.turn:
                lines += ["", f"--- played again from here on ({trajectory.id})"]
            lines += turn_lines(trajectory, number)
        lines += [*ending(trajectory), ""]
    succeeded = sum(bool(trajectory.success) for trajectory in played)
    lines += [
        f"{succeeded} of {len(played)} succeeded; the recorded episode {outcome(recorded)}",
        f"stored in {path}",
    ]
    return "\n".join(lines)


def _of_played(
    recorded: Trajectory, choice: PlayOn, played: Sequence[Trajectory], path: Path
) -> dict[str, Any]:
    continuations: list[dict[str, Any]] = []
    for trajectory in played:
        continuation = {
            "id": trajectory.id,
            "seed": trajectory.seed,
            "stop": trajectory.stop,
            "success": trajectory.success,
            "reward": trajectory.reward,
            "turns": len(trajectory.turns),
        }
        continuations.append(continuation)
    return {
        "episode": recorded.id,
        "task": recorded.task,
        "from": choice.turn,
        "succeeded": sum(bool(trajectory.success) for trajectory in played),
        "continuations": continuations,
        "file": str(path),
    }


def _different(difference: Difference) -> Iterator[str]:
    recorded, now = difference.recorded, difference.now
    if difference.field == "fault":
        yield f"! the environment broke: {now}"
    elif isinstance(recorded, str) and (_is_long(recorded) or _is_long(now)):
        yield f"! {difference.field}:"
        before, after = recorded.splitlines(), now.splitlines()
        diff = list(difflib.unified_diff(before, after, "expected", "got", n=1, lineterm=""))
        for line in diff[:DIFF_LINES]:
            yield f"!   {line}"
        if len(diff) > DIFF_LINES:
            yield f"!   ... and {len(diff) - DIFF_LINES} lines more"
    else:
        yield f"! {difference.field}: expected {recorded!r}, got {now!r}"


def _is_long(text: str) -> bool:
    return len(text) > LONG_TEXT or "\n" in text
