"""An environment of your own: find the treasure in a row of rooms.

Text in, text out: `tasks` lists what there is to do, `reset` begins a task, `step` answers an
action.
`expert`, `actions` and `vocabulary` are optional. They let a tiny model learn on a CPU.
"""

import random

import palestra

ROOMS = 8


class Treasure(palestra.Environment):
    name = "treasure"
    max_turns = 8
    instructions = "Find the treasure. Actions: left, right, dig."

    def tasks(self, split):
        ids = {"train": range(1000), "test": range(1000, 1100)}[split]
        return [palestra.Task(self.name, split, str(number)) for number in ids]

    def reset(self, task):
        rng = random.Random(int(task.id))
        self.room, self.treasure = rng.sample(range(ROOMS), 2)
        self.is_over = False
        return self.look()

    def look(self):
        if self.room == self.treasure:
            return "the floor sounds hollow here"
        side = "left" if self.treasure < self.room else "right"
        return f"a sound from the {side}"

    def step(self, action):
        action = action.strip()
        if self.is_over:
            return palestra.Step("it is over", terminated=True)
        if action == "dig":
            self.is_over = True
            found = self.room == self.treasure
            observation = "you found the treasure" if found else "nothing here"
            return palestra.Step(observation, float(found), terminated=True, success=found)
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
        """Every word, as blanks part them: each becomes a token of a tiny model."""
        texts = [self.instructions, "left right dig", "a sound from the left right"]
        texts += ["the floor sounds hollow here", "you found the treasure", "nothing here"]
        return sorted({word for text in texts for word in text.split()})
