"""Episodes and replays as text for people, and as JSON for programs."""

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

    Returns what there is to say of it, and whether the environment answers as it did.
    """
    run = Run.open(run_folder)
    recorded = find_episode(run, episode, file=file)
    try:
        if choice is not None:
            played, path = play_stored(run, recorded, choice)
            return as_json_text(
                _of_played(recorded, choice, played, path)
            ) if as_json else played_on(recorded, choice, played, path), True
        check = check_stored(run, recorded)
    except Differs as error:
        check = error.check
    return as_json_text(check.as_dict()) if as_json else checked(check), check.same


def checked(check: Check) -> str:
    """The turns that were checked, each with what is different,
    and the verdict in the last line.
    """
    recorded = check.recorded
    lines = heading(recorded)
    for turn in check.turns:
        lines += turn_lines(recorded, turn.turn)
        lines += [line for difference in turn.differences for line in _different(difference)]
    if len(check.turns) == len(recorded.turns):
        lines += ending(recorded)
    if check.same:
        return "\n".join(
            [*lines, "", f"the environment answers as it did ({turns_text(len(check.turns))})"]
        )
    differing = (
        f"turn{'s' if len(check.differing) > 1 else ''} {', '.join(map(str, check.differing))}"
    )
    return "\n".join([*lines, "", f"it differs at {differing}"])


def played_on(
    recorded: Trajectory, choice: PlayOn, played: Sequence[Trajectory], path: Path
) -> str:
    """Each continuation, the recorded turns before it included."""
    lines: list[str] = []
    for trajectory in played:
        lines += heading(trajectory)
        for number in range(1, len(trajectory.turns) + 1):
            if number == choice.turn:
                lines += ["", f"--- from here on played anew ({trajectory.id})"]
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
    continuations = [
        {
            "id": t.id,
            "seed": t.seed,
            "stop": t.stop,
            "success": t.success,
            "reward": t.reward,
            "turns": len(t.turns),
        }
        for t in played
    ]
    succeeded = sum(bool(trajectory.success) for trajectory in played)
    base = {
        "episode": recorded.id,
        "task": recorded.task,
        "from": choice.turn,
        "succeeded": succeeded,
    }
    return base | {"continuations": continuations, "file": str(path)}


def _different(difference: Difference) -> Iterator[str]:
    recorded, now = difference.recorded, difference.now
    if difference.field == "fault":
        yield f"! the environment broke: {now}"
    elif isinstance(recorded, str) and any(
        len(text) > LONG_TEXT or "\n" in text for text in (recorded, now)
    ):
        yield f"! {difference.field}:"
        diff = list(
            difflib.unified_diff(
                recorded.splitlines(), now.splitlines(), "expected", "got", n=1, lineterm=""
            )
        )
        yield from (f"!   {line}" for line in diff[:DIFF_LINES])
        if len(diff) > DIFF_LINES:
            yield f"!   ... and {len(diff) - DIFF_LINES} lines more"
    else:
        yield f"! {difference.field}: expected {recorded!r}, got {now!r}"
