"""An environment of your own is a class with three methods, and one call trains an agent in it.

python examples/01_own_environment.py [--steps 20]
"""

import argparse
import random

import palestra

COLORS = ("red", "green", "blue", "white")
BUTTONS = 4


class Buttons(palestra.Environment):
    """A row of lamps lights up one after the other; press the button of the same color."""

    name = "buttons"
    max_turns = 6
    instructions = "Press the button of the lamp: red, green, blue or white."

    # All tasks of a split. The same id is the same task on every machine.
    def tasks(self, split):
        ids = {"train": range(1000), "test": range(1000, 1100)}[split]
        return [palestra.Task(self.name, split, str(number)) for number in ids]

    # Begin a task: everything about it comes from its id.
    def reset(self, task):
        self.lamps = random.Random(int(task.id)).choices(COLORS, k=BUTTONS)
        self.pressed = 0
        self.is_over = False
        return f"lamp {self.lamps[0]}"

    # Take an action. An invalid one gets an answer too, never an exception.
    def step(self, action):
        if self.is_over:
            return palestra.Step("over", terminated=True)
        if action not in COLORS:
            return palestra.Step(self.instructions, invalid=True)
        if action != self.lamps[self.pressed]:
            self.is_over = True
            return palestra.Step("wrong", terminated=True, success=False)
        self.pressed += 1
        if self.pressed == BUTTONS:
            self.is_over = True
            return palestra.Step("open", 1 / BUTTONS, terminated=True, success=True)
        return palestra.Step(f"lamp {self.lamps[self.pressed]}", 1 / BUTTONS)

    # The rest is optional. The valid actions: a random agent and noisy demonstrations use them.
    def actions(self):
        return list(COLORS)

    # An oracle: a model with random weights imitates it first, to learn what an action is.
    def expert(self):
        return self.lamps[self.pressed]

    # All words, if they are few: a tiny model gets one token for each.
    def vocabulary(self):
        return sorted({*self.instructions.split(), *COLORS, "lamp", "wrong", "open", "over"})


def main(steps):
    # Does it keep the contract? The same as `palestra env check`.
    for check in palestra.check_environment(Buttons):
        print("ok    " if check.ok else "FAILED", check.name, check.detail)

    run = palestra.train(Buttons, steps=steps)
    for result in run.evaluations():
        print(f"{result.phase:10}  success {result.success}")
    print(next(run.episodes(phase="final")).transcript())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20, help="training steps")
    main(parser.parse_args().steps)
