"""Environments that say what they should not know, and what cannot be sent."""

import os

from palestra.core.types import Step
from tests.support.environments import Echo, Tally


class Telling(Echo):
    """The observation is every variable that its process has, as the kernel and as Python know
    them.
    """

    name = "telling"

    def reset(self, task):
        with open("/proc/self/environ", "rb") as file:
            kernel = file.read().decode(errors="replace").replace("\0", "\n")
        return kernel + "\n" + "\n".join(f"{name}={value}" for name, value in os.environ.items())

    def step(self, action):
        return Step(os.environ.get(action, "nothing"))


class Deep(Tally):
    """Gives information that is nested too deep for any encoder."""

    name = "deep"

    def step(self, action):
        nested = []
        for _ in range(50_000):
            nested = [nested]
        return Step("x", info={"nested": nested})
