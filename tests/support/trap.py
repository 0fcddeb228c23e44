"""An environment that no run folder may have imported."""

from tests.support.environments import Echo


class Trap(Echo):
    name = "trap"
