"""The environment of examples 02 to 08, and settings with which a tiny model learns it on a CPU.

`01_own_environment.py` explains how to write an environment.
"""

import random

import palestra

ROOMS = 8


SETTINGS = {
    "model": palestra.TinyModel(width=64, layers=2, heads=2),
    # Random weights write no action. So the model imitates an expert first, which takes a random
    # action half of the time: enough to know the words, and the rest is left to RL.
    "warm_start": palestra.WarmStart(episodes=300, noise=0.5, updates=200, batch=8, check_every=20),
    "rollout": {"tasks": 8, "group": 8},
    "optim": {"lr": 1e-3},
    "device": "cpu",
    "threads": 1,
}


class Treasure(palestra.Environment):
    """Walk through a row of rooms, listen, and dig in the right one."""

    name = "treasure"
    max_turns = 8
    instructions = "Find the treasure. Actions: left, right, dig."

    def tasks(self, split):
        ids = {"train": range(1000), "test": range(1000, 1100)}[split]
        return [palestra.Task(self.name, split, str(number)) for number in ids]

    def reset(self, task):
        self.room, self.treasure = random.Random(int(task.id)).sample(range(ROOMS), 2)
        return self.look()

    def look(self):
        if self.room == self.treasure:
            return "the floor sounds hollow here"
        return f"a sound from the {self.expert()}"

    def step(self, action):
        if action == "dig":
            found = self.room == self.treasure
            return palestra.Step("the end", float(found), terminated=True, success=found)
        if action not in ("left", "right"):
            return palestra.Step("Actions: left, right, dig.", invalid=True)
        move = 1 if action == "right" else -1
        self.room = min(max(self.room + move, 0), ROOMS - 1)
        return palestra.Step(self.look())

    def actions(self):
        return ["left", "right", "dig"]

    def expert(self):
        if self.room == self.treasure:
            return "dig"
        return "left" if self.treasure < self.room else "right"

    def vocabulary(self):
        texts = f"{self.instructions} left right dig a sound from the floor sounds hollow here end"
        return sorted(set(texts.split()))
