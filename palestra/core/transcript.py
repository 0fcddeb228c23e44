"""An episode as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from palestra.core.types import Trajectory


def transcript(trajectory: Trajectory) -> str:
    """The observations, replies and rewards, turn by turn."""
    lines = heading(trajectory)
    for number in range(1, len(trajectory.turns) + 1):
        lines += turn_lines(trajectory, number)
    return "\n".join([*lines, *ending(trajectory)])


def heading(trajectory: Trajectory) -> list[str]:
    task = trajectory.task
    kind = f" ({task.category})" if task.category else ""
    found: set[int] = set()
    for segment in trajectory.segments:
        found.update(segment.versions)
    versions = sorted(version for version in found if version >= 0)  # -1: not sampled
    weights = f", by the weights of step {', '.join(map(str, versions))}" if versions else ""
    return [
        f"episode {trajectory.id}: {task.env} {task.split} task {task.id}{kind}, seed "
        f"{trajectory.seed}{weights}"
    ]


def turn_lines(trajectory: Trajectory, number: int) -> list[str]:
    if number > len(trajectory.turns):
        return ["", f"turn {number}"]
    turn = trajectory.turns[number - 1]
    notes = [f"reward {turn.reward:g}"]
    if turn.invalid:
        notes.append("invalid")
    if turn.action is None:
        notes.append("no action could be read")
    shown = [f"  {line}" for line in turn.observation.splitlines()]
    said = [f"> {line}" for line in turn.reply.splitlines() or [""]]
    return ["", f"turn {number}", *shown, *said, f"  ({', '.join(notes)})"]


def ending(trajectory: Trajectory) -> list[str]:
    shown = [f"  {line}" for line in trajectory.final_observation.splitlines()]
    return ["", f"the end: {outcome(trajectory)}", *shown]


def outcome(trajectory: Trajectory) -> str:
    success = {True: "succeeded", False: "failed", None: "has no outcome"}[trajectory.success]
    fault = f" ({trajectory.fault})" if trajectory.fault else ""
    return (
        f"{success}, reward {trajectory.reward:g} in {turns_text(len(trajectory.turns))}, stop: "
        f"{trajectory.stop}{fault}"
    )


def turns_text(count: int) -> str:
    return f"{count} turn{'' if count == 1 else 's'}"
