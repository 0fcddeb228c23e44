"""A constant horizon."""

from __future__ import annotations

from typing import Literal

from pydantic import PositiveInt

from palestra.horizons.base import Horizon, Progress


class Fixed(Horizon):
    """The same number of turns at every step."""

    kind: Literal["fixed"] = "fixed"
    turns: PositiveInt = 20
    """Maximum number of turns of an episode."""

    def __call__(self, progress: Progress) -> int:
        return self.turns

    def stage(self, progress: Progress) -> int:
        return 1

    @property
    def full(self) -> int:
        return self.turns
