"""An environment that says what it was told by its environment variables."""

import os

from palestra.types import Step
from tests.helpers import Echo


class Telling(Echo):
    """The observation is every variable that its process has, as the kernel and as Python know them."""

    name = "telling"

    def reset(self, task):
        with open("/proc/self/environ", "rb") as file:
            kernel = file.read().decode(errors="replace").replace("\0", "\n")
        return kernel + "\n" + "\n".join(f"{name}={value}" for name, value in os.environ.items())

    def step(self, action):
        return Step(os.environ.get(action, "nothing"))
