"""Which tasks come next: every epoch has all tasks in another order, and those whose last group had
zero advantage may be skipped.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from palestra.algos.base import Algorithm
from palestra.core.seeds import derive_seed
from palestra.core.types import Group, Task
from palestra.rollout.groups import RolloutBatch
from palestra.rollout.metrics import success_rate
from palestra.runs.state import State
from palestra.training.setup import Components

T = TypeVar("T")


class ShuffledStream(Generic[T]):
    """An endless stream of items: every epoch has all of them in another order.

    The item at a position depends only on the position and the seed.
    """

    def __init__(self, items: Sequence[T], seed: int) -> None:
        self.items = list(items)
        self.seed = seed
        self._epoch, self._order = -1, list(range(len(self.items)))

    def __getitem__(self, position: int) -> T:
        epoch, index = divmod(position, len(self.items))
        if epoch != self._epoch:
            self._epoch, self._order = epoch, list(range(len(self.items)))
            random.Random(derive_seed(self.seed, "epoch", epoch)).shuffle(self._order)
        return self.items[self._order[index]]

    def slice(self, start: int, count: int) -> list[T]:
        return [self[position] for position in range(start, start + count)]


class TaskSampler:
    """The training tasks of all environments, in proportion to their weights.

    What comes next depends only on the state.
    """

    def __init__(self, components: Components, seed: int) -> None:
        self.seed = seed
        self.skip_solved = components.config.rollout.skip_solved
        self.weights = {spec.label: spec.weight for spec in components.config.env_specs}
        self.streams = {
            label: ShuffledStream(components.tasks(label, "train"), seed) for label in self.weights
        }

    def after(self, state: State) -> Cursor:
        return Cursor(
            self,
            dict(state.tasks_drawn),
            dict(state.tasks_skipped),
            state.tasks_skippable if self.skip_solved else {},
        )


@dataclass
class Cursor:
    """Returns tasks one after another, and counts them."""

    tasks: TaskSampler
    drawn: dict[str, int]
    skipped: dict[str, int]
    """How many of those drawn were skipped."""
    skippable: Mapping[str, Mapping[str, float]]
    """Tasks that may be skipped, with the success of their last group."""
    expected: dict[str, list[float]] = field(default_factory=dict)
    """The last success of those that were skipped."""

    def next(self) -> Task:
        """A task of the environment that is furthest behind its share."""

        def played_per_weight(label: str) -> float:
            played = self.drawn.get(label, 0) - self.skipped.get(label, 0)
            return (played + 1) / self.tasks.weights[label]

        return self.of(min(self.tasks.weights, key=played_per_weight))

    def of(self, label: str) -> Task:
        while True:
            position = self.drawn.get(label, 0)
            self.drawn[label] = position + 1
            task = self.tasks.streams[label][position]
            if not self._is_skipped(task, position):
                return task
            self.skipped[label] = self.skipped.get(label, 0) + 1
            self.expected.setdefault(label, []).append(self.skippable[label][task.id])

    def success(self, played: list[Group], label: str) -> float:
        """The success rate over all sampled tasks of an environment, including skipped ones.

        A difference estimator: a task that may be skipped counts with the success of its last
        group, and those of them that were played correct this, each standing for
        1 / (1 - skip_solved) tasks. The mean over the played tasks alone would leave most solved
        tasks out. A single step's estimate can lie outside [0, 1], and is then clipped.
        """
        expected = self.expected.get(label, ())
        total, draws = sum(expected), len(expected)
        for group in played:
            found = success_rate(group.valid)
            last = self.skippable.get(label, {}).get(group.task.id)
            total += found if last is None else last + (found - last) / (1 - self.tasks.skip_solved)
            draws += 1
        return min(max(total / draws, 0.0), 1.0)

    def counted(self, state: State) -> State:
        """The state with the tasks that were drawn and skipped."""
        return replace(state, tasks_drawn=self.drawn, tasks_skipped=self.skipped)

    def _is_skipped(self, task: Task, position: int) -> bool:
        if task.id not in self.skippable.get(task.env, ()):
            return False
        seed = derive_seed(self.tasks.seed, "skip", task.env, position)
        return random.Random(seed).random() < self.tasks.skip_solved


def with_skippable(state: State, rollouts: RolloutBatch, algo: Algorithm) -> State:
    """The state with the tasks that may be skipped: those whose last group succeeded in every
    episode, or had no signal.
    """
    skippable = {label: dict(tasks) for label, tasks in state.tasks_skippable.items()}
    for group in rollouts.played:
        if group.valid:
            of_env = skippable.setdefault(group.task.env, {})
            of_env.pop(group.task.id, None)
            if all(trajectory.success for trajectory in group.valid) or not algo.has_signal(group):
                of_env[group.task.id] = success_rate(group.valid)
    nonempty = {label: tasks for label, tasks in skippable.items() if tasks}
    return replace(state, tasks_skippable=nonempty)
