"""The contract of every environment: text in, text out, synchronous.

No tokens, no tensors, no sockets.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, ClassVar

from palestra.core.types import Example, Step, Task

UNLISTED = "unlisted"
"""The split of a task that can be played and stands in no split, such as a BabyAI level with a seed
that is in none.
"""


class Environment(ABC):
    """One instance plays one episode at a time. Write `tasks`, `reset` and `step`; the rest has
    defaults.

    The constructor's keyword arguments are the environment's options: a recipe sets them under
    `[env.options]`.
    """

    name: ClassVar[str]
    """What recipes and task ids call it."""
    splits: ClassVar[tuple[str, ...]] = ("train", "test")
    per_process: ClassVar[int] = 64
    """How many of them one worker process may hold.

    They are stepped in turns: 1 for one that is slow, heavy, or alone in its process.
    """
    max_turns: int = 20
    """The full horizon: enough turns for a careful agent to solve the hardest task."""
    instructions: str = ""
    """What the agent is told before the first observation."""
    example: Sequence[Example] = ()
    """A worked example of one episode, shown in the prompt where the run asks for it."""

    @abstractmethod
    def tasks(self, split: str) -> Sequence[Task]:
        """All tasks of a split, in an order that is the same on every machine."""

    def task(self, id: str) -> Task:
        """The task with this id, in whatever split it is; `ValueError` where there is none.

        Override it for further names that tasks go by, such as AgentEval's `babyai_7`, and for
        tasks that stand in no split.
        """
        for split in self.splits:
            if (found := self._tasks_by_id(split).get(id)) is not None:
                return found
        raise self.no_task(id)

    def no_task(self, id: str, *more: str) -> ValueError:
        """The error for an id that there is not: it says what ids look like, `more` of them
        included.
        """
        first = {split: next(iter(self._tasks_by_id(split)), None) for split in self.splits}
        alike = [repr(known) for known in (*first.values(), *more) if known is not None]
        return ValueError(f"{self.name} has no task {id[:100]!r}; ids look like {', '.join(alike)}")

    def _tasks_by_id(self, split: str) -> dict[str, Task]:
        if split not in self._by_id:
            self._by_id[split] = {task.id: task for task in self.tasks(split)}
        return self._by_id[split]

    @cached_property
    def _by_id(self) -> dict[str, dict[str, Task]]:
        """Of each split, its tasks by their ids, once they were asked for."""
        return {}

    @abstractmethod
    def reset(self, task: Task) -> str:
        """Begin `task` and return the first observation."""

    @abstractmethod
    def step(self, action: str) -> Step:
        """Act. Nonsense from the model is answered with an observation, never with an exception."""

    def close(self) -> None:
        """Let go of what the environment holds. May be called twice."""

    def actions(self) -> list[str] | None:
        """The actions that are valid now, where they can be listed."""
        return None

    def expert(self) -> str | None:
        """An oracle's next action, or None where there is none."""
        return None

    def scene(self) -> dict[str, Any] | None:
        """What a person would want to see of the state now, as JSON with a `kind`: for the viewer,
        never for the agent.

        Asking changes nothing. A scene may show what the agent cannot see.
        """
        return None

    def vocabulary(self) -> list[str] | None:
        """All words its texts and actions can contain, where they are few: a small model made on
        the spot gets a token for each.
        """
        return None

    def texts(self) -> Iterable[str] | None:
        """What is read and written in it, where its words are many: a small model made on the spot
        learns its pieces of words from them.

        Of the train split only.
        """
        return None


def content_id(*parts: str) -> str:
    """A short id made from what a task is, not from where it stands in a list."""
    return hashlib.sha256("\x00".join(parts).encode()).hexdigest()[:12]
