"""An episode as text for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from palestra.core.types import Trajectory


def transcript(trajectory: Trajectory) -> str:
    """What was observed, written and rewarded, turn by turn."""
    lines = heading(trajectory)
    for number in range(1, len(trajectory.turns) + 1):
        lines += turn_lines(trajectory, number)
    return "\n".join([*lines, *ending(trajectory)])


def heading(trajectory: Trajectory) -> list[str]:
    task = trajectory.task
    kind = f" ({task.category})" if task.category else ""
    versions = sorted(
        {version for segment in trajectory.segments for version in segment.versions if version >= 0}
    )
    weights = f", by the weights of step {', '.join(map(str, versions))}" if versions else ""
    return [
        f"episode {trajectory.id}: {task.env} {task.split} task {task.id}{kind}, seed "
        f"{trajectory.seed}{weights}"
    ]


def turn_lines(trajectory: Trajectory, number: int) -> list[str]:
    if number > len(trajectory.turns):
        return ["", f"turn {number}"]
    turn = trajectory.turns[number - 1]
    notes = ["invalid"] if turn.invalid else []
    notes += ["no action could be read"] if turn.action is None else []
    shown = [f"  {line}" for line in turn.observation.splitlines()]
    said = [f"> {line}" for line in turn.reply.splitlines() or [""]]
    return [
        "",
        f"turn {number}",
        *shown,
        *said,
        f"  ({', '.join([f'reward {turn.reward:g}', *notes])})",
    ]


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
