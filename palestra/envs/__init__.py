"""Environments: what an agent acts in. Importing this package imports none of them."""

from palestra.envs.base import Environment, content_id
from palestra.registry import Registry

envs: Registry[type[Environment]] = Registry(
    "envs",
    {
        "textcraft": "palestra.envs.textcraft:TextCraft",
        "babyai": "palestra.envs.babyai:BabyAI",
        "sciworld": "palestra.envs.sciworld:SciWorld",
        "guess": "palestra.envs.guess:Guess",
    },
)

__all__ = ["Environment", "content_id", "envs"]
