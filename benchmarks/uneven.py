"""An environment for `asynchronous.py`, in a file of its own: worker processes that import it must
not import torch.
"""

from __future__ import annotations

import time

from palestra.core.types import Step, Task
from palestra.envs import Environment

TURNS = 3
ALL_TASKS = 32


class Uneven(Environment):
    """Say the word that you are shown.

    Each answer takes its time, and ten times that for one task in eight.
    """

    name = "uneven"
    per_process = 1
    max_turns = TURNS
    words = ("red", "blue", "green")

    def __init__(self, seconds: float = 0.1) -> None:
        self.seconds = seconds

    def tasks(self, split: str) -> list[Task]:
        return [
            Task(self.name, split, f"{split}-{i}", "slow" if i % 8 == 0 else "quick")
            for i in range(ALL_TASKS)
        ]

    def reset(self, task: Task) -> str:
        self.pause = self.seconds * (10 if task.category == "slow" else 1)
        self.word, self.turns = self.words[int(task.id.split("-")[1]) % 3], 0
        return f"say {self.word}"

    def step(self, action: str) -> Step:
        time.sleep(self.pause)
        self.turns += 1
        is_right = action.strip() == self.word
        return Step(
            "right" if is_right else "wrong",
            is_right / TURNS,
            terminated=self.turns == TURNS,
            success=is_right,
        )

    def vocabulary(self) -> list[str]:
        return [*self.words, "say", "right", "wrong"]
