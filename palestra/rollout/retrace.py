"""Repeat the actions of a stored episode in its environment, and compare the observations and
rewards with the recorded ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from palestra.core.types import Step, Stop, Task, Trajectory


class Player(Protocol):
    """The part of an environment's handle that is needed."""

    async def reset(self, task: Task) -> str: ...
    async def step(self, action: str) -> Step: ...


@dataclass(frozen=True, slots=True)
class Difference:
    """One recorded value that the environment does not reproduce."""

    field: str
    """`observation`, `reward`, `invalid`, `ended`; after the last turn also `success`,
    `final_observation`; `fault` for an error of the environment.
    """
    recorded: Any
    now: Any


@dataclass(frozen=True, slots=True)
class CheckedTurn:
    """A recorded turn, and how the environment's response differs now."""

    turn: int
    """From 1."""
    action: str | None
    differences: list[Difference] = field(default_factory=list)

    def compare(self, name: str, recorded: Any, now: Any) -> None:
        if recorded != now:
            self.differences.append(Difference(name, recorded, now))


@dataclass(frozen=True, slots=True)
class Check:
    """The comparison of a stored episode with its environment."""

    recorded: Trajectory
    turns: list[CheckedTurn]
    """The compared turns; fewer than recorded if the environment ended or failed early."""

    @property
    def differing(self) -> list[int]:
        return [turn.turn for turn in self.turns if turn.differences]

    @property
    def same(self) -> bool:
        return not self.differing

    def as_dict(self) -> dict[str, Any]:
        turns: list[dict[str, Any]] = []
        for turn in self.turns:
            turns.append(
                {
                    "turn": turn.turn,
                    "action": turn.action,
                    "same": not turn.differences,
                    "differences": turn.differences,
                }
            )
        return {
            "episode": self.recorded.id,
            "task": self.recorded.task,
            "turns": turns,
            "same": self.same,
        }


async def retrace(
    env: Player, task: Task, recorded: Trajectory, count: int, checked: list[CheckedTurn]
) -> None:
    """Repeat the first `count` recorded turns, adding each to `checked`, and compare the
    observation after them.
    """
    if not recorded.turns and recorded.stop.is_fault:
        return  # the recorded episode failed before its first observation
    shown: str | None = await env.reset(task)
    for number, turn in enumerate(recorded.turns[:count]):
        now = turn_of(recorded, number)
        checked.append(now)
        if shown is not None:
            now.compare("observation", turn.observation, shown)
        if turn.action is None:
            # The environment never saw this reply: the next observation is the action format's.
            shown = None
            continue
        step = await env.step(turn.action)
        shown = step.observation
        is_last = number + 1 == len(recorded.turns)
        had_ended = is_last and recorded.stop in (Stop.DONE, Stop.TRUNCATED)
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
    """Compare the observation after `count` turns with that of the next turn, or with the final
    one.
    """
    if shown is None:
        return
    if count < len(recorded.turns):
        entry = turn_of(recorded, count)
        entry.compare("observation", recorded.turns[count].observation, shown)
        if entry.differences:
            checked.append(entry)
    elif not recorded.stop.is_fault:  # a fault leaves no last observation
        if not checked:
            checked.append(turn_of(recorded, 0))
        checked[-1].compare("final_observation", recorded.final_observation, shown)


def turn_of(recorded: Trajectory, number: int) -> CheckedTurn:
    """The entry of turn `number` (from 0), which may be after the last one."""
    action = recorded.turns[number].action if number < len(recorded.turns) else None
    return CheckedTurn(number + 1, action)
