"""The algorithm `cispo`."""

from __future__ import annotations

from typing import Literal

from pydantic import NonNegativeFloat

from palestra.algos.grpo import GroupRelative


class CISPO(GroupRelative):
    """CISPO (arXiv:2506.13585): clips importance weights instead of gradients, so that every token
    keeps a gradient.
    """

    name: Literal["cispo"] = "cispo"
    objective: Literal["clip", "cispo"] = "cispo"
    clip_low: NonNegativeFloat = 1.0
    """No lower bound."""
    clip_high: NonNegativeFloat = 0.28
