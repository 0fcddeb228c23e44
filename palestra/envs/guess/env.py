"""The tutorial's environment: find a number by asking."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from palestra.core.types import Step, Task
from palestra.envs.base import Environment


class Guess(Environment):
    """Find a number from 1 to `size`; every guess is answered with higher or lower."""

    name = "guess"

    def __init__(self, size: int = 32) -> None:
        self.size = size
        self.instructions = f"Find the secret number from 1 to {size}. Answer with a number."

    def tasks(self, split: str) -> Sequence[Task]:
        ids = {"train": range(1000), "test": range(1000, 1100)}[split]
        return [Task(self.name, split, str(i)) for i in ids]

    def reset(self, task: Task) -> str:
        self.low, self.high, self.found = 1, self.size, False
        self.secret = random.Random(int(task.id)).randint(1, self.size)
        return "Guess the number."

    def step(self, action: str) -> Step:
        if self.found:
            return Step("The number was found.", terminated=True, success=True)
        if not (action.isascii() and action.strip().isdecimal() and len(action) < 10):
            return Step(f"Expected a number from 1 to {self.size}.", invalid=True)
        guess = int(action)
        if guess == self.secret:
            self.found = True
            return Step("Right.", reward=1.0, terminated=True, success=True)
        if guess < self.secret:
            self.low = max(self.low, guess + 1)
            return Step("Higher.")
        self.high = min(self.high, guess - 1)
        return Step("Lower.")

    def expert(self) -> str:
        return str((self.low + self.high) // 2)

    def scene(self) -> dict[str, Any]:
        return {
            "kind": "guess",
            "secret": self.secret,
            "at least": self.low,
            "at most": self.high,
            "found": self.found,
        }

    def vocabulary(self) -> list[str]:
        texts = (
            "Guess the number. Find secret from 1 to Answer with a Expected Right. Higher. "
            "Lower. was found."
        )
        return sorted({*texts.split(), *map(str, range(1, self.size + 1)), f"{self.size}."})
