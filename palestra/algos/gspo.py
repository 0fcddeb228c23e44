"""The algorithm `gspo`."""

from __future__ import annotations

from typing import Literal

from pydantic import NonNegativeFloat

from palestra.algos.grpo import GroupRelative
from palestra.algos.losses import Normalize


class GSPO(GroupRelative):
    """GSPO (arXiv:2507.18071): one importance ratio per trajectory, clipped as a whole."""

    name: Literal["gspo"] = "gspo"
    ratio: Literal["token", "sequence"] = "sequence"
    clip_low: NonNegativeFloat = 3e-4
    clip_high: NonNegativeFloat = 4e-4
    """A sequence ratio is a mean over tokens, so it stays far closer to 1 than a token's."""
    normalize: Normalize = "sequence"
