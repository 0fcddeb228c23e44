"""The algorithm `dr_grpo`."""

from __future__ import annotations

from typing import Literal

from pydantic import PositiveInt

from palestra.algos.grpo import GroupRelative
from palestra.algos.losses import Normalize


class DrGRPO(GroupRelative):
    """Dr. GRPO (arXiv:2503.20783): GRPO without its two biases, the division by the standard
    deviation and the division by the length.
    """

    name: Literal["dr_grpo"] = "dr_grpo"
    scale: bool = False
    normalize: Normalize = "constant"
    constant: PositiveInt | None = 256
    """Divisor of the loss: usually the token budget of an episode. It only scales the loss."""
