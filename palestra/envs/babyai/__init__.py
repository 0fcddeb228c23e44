"""BabyAI: all levels of the grid world as text with macro actions, over the package minigrid."""

from importlib.util import find_spec

if find_spec("minigrid") is None:
    raise ImportError("it needs minigrid; pip install 'palestra[babyai]'")
