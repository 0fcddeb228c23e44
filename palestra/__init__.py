"""Palestra trains LLM agents for long-horizon, multi-turn decision making by reinforcement
learning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from palestra.core.version import __version__ as __version__

if TYPE_CHECKING:
    from palestra.envs.gym import GymEnv


def make(
    name: str, *, split: str = "train", render_mode: str | None = None, **options: Any
) -> GymEnv:
    """An environment as a `gymnasium.Env` with text spaces; `options` are the environment's own."""
    from palestra.envs import envs
    from palestra.envs.gym import GymEnv

    return GymEnv(envs[name](**options), split=split, render_mode=render_mode)
