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
"""The split of a playable task that no split lists, such as a BabyAI level with another seed."""


class Environment(ABC):
    """What an agent acts in: text in, text out. Implement `tasks`, `reset` and `step`; everything
    else has defaults. One instance runs one episode at a time.

    The constructor's keyword arguments are the environment's options: a recipe sets them under
    `[env.options]`.
    """

    name: ClassVar[str]
    """What recipes and task ids call it."""
    splits: ClassVar[tuple[str, ...]] = ("train", "test")
    per_process: ClassVar[int] = 64
    """How many instances one worker process may hold.

    They are stepped in turn. Set 1 for an environment that is slow, uses much memory, or cannot
    share its process.
    """
    max_turns: int = 20
    """The full horizon: enough turns for a careful agent to solve the hardest task."""
    instructions: str = ""
    """The system prompt's part about this environment."""
    example: Sequence[Example] = ()
    """A worked example of one episode, shown in the prompt if the run enables it."""

    @abstractmethod
    def tasks(self, split: str) -> Sequence[Task]:
        """All tasks of a split, in an order that is the same on every machine."""

    def task(self, id: str) -> Task:
        """The task with this id, in any split. Raises `ValueError` if there is none.

        Override it for alternative ids, such as AgentEval's `babyai_7`, and for tasks that no split
        lists.
        """
        for split in self.splits:
            if (found := self._tasks_by_id(split).get(id)) is not None:
                return found
        raise self.no_task(id)

    def no_task(self, id: str, *more: str) -> ValueError:
        """The error for an unknown id, with example ids. `more`: further examples."""
        first = {split: next(iter(self._tasks_by_id(split)), None) for split in self.splits}
        alike = [repr(known) for known in (*first.values(), *more) if known is not None]
        return ValueError(f"{self.name} has no task {id[:100]!r}; ids look like {', '.join(alike)}")

    def _tasks_by_id(self, split: str) -> dict[str, Task]:
        if split not in self._by_id:
            self._by_id[split] = {task.id: task for task in self.tasks(split)}
        return self._by_id[split]

    @cached_property
    def _by_id(self) -> dict[str, dict[str, Task]]:
        """By split and id: the tasks of the splits that were requested so far."""
        return {}

    @abstractmethod
    def reset(self, task: Task) -> str:
        """Begin `task` and return the first observation."""

    @abstractmethod
    def step(self, action: str) -> Step:
        """Take an action. An invalid action results in an observation, never in an exception."""

    def close(self) -> None:
        """Release the environment's resources. May be called twice."""

    def actions(self) -> list[str] | None:
        """The actions that are valid now, or None if they cannot be listed."""
        return None

    def expert(self) -> str | None:
        """The next action of an oracle, or None if there is none."""
        return None

    def scene(self) -> dict[str, Any] | None:
        """The current state as JSON with a `kind`, for the viewer and never for the agent.

        Must not change the state. A scene may show what the agent cannot see.
        """
        return None

    def vocabulary(self) -> list[str] | None:
        """All words of its texts and actions, if they are few: a randomly initialized small model
        gets a token for each.
        """
        return None

    def texts(self) -> Iterable[str] | None:
        """Texts of the training split, if the words are many: the tokenizer of a randomly
        initialized small model is trained on them.
        """
        return None


def content_id(*parts: str) -> str:
    """A short id derived from a task's content, not from its position in a list."""
    return hashlib.sha256("\x00".join(parts).encode()).hexdigest()[:12]
