"""Give an environment the actions of a stored episode again, and compare its answers with those
that were recorded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from palestra.core.types import Step, Stop, Task, Trajectory


class Player(Protocol):
    """As much of a handle on an environment as it takes."""

    async def reset(self, task: Task) -> str: ...
    async def step(self, action: str) -> Step: ...


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that the environment said then and does not say now."""

    field: str
    """`observation`, `reward`, `invalid`, `ended`; after the last turn also `success`,
    `final_observation`; `fault` where it broke.
    """
    recorded: Any
    now: Any


@dataclass(frozen=True, slots=True)
class CheckedTurn:
    """A recorded turn, beside what the environment makes of it now."""

    turn: int
    """From 1."""
    action: str | None
    differences: list[Difference] = field(default_factory=list)

    def compare(self, name: str, recorded: Any, now: Any) -> None:
        if recorded != now:
            self.differences.append(Difference(name, recorded, now))


@dataclass(frozen=True, slots=True)
class Check:
    """How an environment answers the actions of a stored episode."""

    recorded: Trajectory
    turns: list[CheckedTurn]
    """Up to where the environment ended or broke, if that was early."""

    @property
    def differing(self) -> list[int]:
        return [turn.turn for turn in self.turns if turn.differences]

    @property
    def same(self) -> bool:
        return not self.differing

    def as_dict(self) -> dict[str, Any]:
        turns = [
            {
                "turn": t.turn,
                "action": t.action,
                "same": not t.differences,
                "differences": t.differences,
            }
            for t in self.turns
        ]
        return {
            "episode": self.recorded.id,
            "task": self.recorded.task,
            "turns": turns,
            "same": self.same,
        }


async def retrace(
    env: Player, task: Task, recorded: Trajectory, count: int, checked: list[CheckedTurn]
) -> None:
    """Play the first `count` recorded turns, noting each in `checked`, and look at what the
    environment shows after them.
    """
    if not recorded.turns and recorded.stop.is_fault:
        return  # it broke before there was anything to compare with
    shown: str | None = await env.reset(task)
    for number, turn in enumerate(recorded.turns[:count]):
        now = turn_of(recorded, number)
        checked.append(now)
        if shown is not None:
            now.compare("observation", turn.observation, shown)
        if (
            turn.action is None
        ):  # the environment never saw this reply: what came next was said by the reply's format
            shown = None
            continue
        step = await env.step(turn.action)
        shown = step.observation
        had_ended = number + 1 == len(recorded.turns) and recorded.stop in (
            Stop.DONE,
            Stop.TRUNCATED,
        )
        has_ended = step.terminated or step.truncated
        now.compare("reward", turn.reward, step.reward)
        now.compare("invalid", turn.invalid, step.invalid)
        now.compare("ended", had_ended, has_ended)
        if had_ended and has_ended:
            now.compare("success", recorded.success, step.success)
        if has_ended and not had_ended:
            return  # an environment that has ended takes no more actions
    _compare_after(recorded, count, shown, checked)


def _compare_after(
    recorded: Trajectory, count: int, shown: str | None, checked: list[CheckedTurn]
) -> None:
    """What is shown after `count` turns: the observation of the next one, or the last that there
    was.
    """
    if shown is None:
        return
    if count < len(recorded.turns):
        entry = turn_of(recorded, count)
        entry.compare("observation", recorded.turns[count].observation, shown)
        checked += [entry] if entry.differences else []
    elif not recorded.stop.is_fault:  # a fault leaves no last observation
        if not checked:
            checked.append(turn_of(recorded, 0))
        checked[-1].compare("final_observation", recorded.final_observation, shown)


def turn_of(recorded: Trajectory, number: int) -> CheckedTurn:
    return CheckedTurn(
        number + 1, recorded.turns[number].action if number < len(recorded.turns) else None
    )
