"""The levels of BabyAI as text, over the package minigrid."""

from importlib.util import find_spec

if find_spec("minigrid") is None:
    raise ImportError("it needs minigrid; pip install 'palestra[babyai]'")
