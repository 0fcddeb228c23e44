"""An environment that no run folder may have imported."""

from tests.helpers import Echo


class Trap(Echo):
    name = "trap"
