"""Settings of LoRA (arXiv:2106.09685)."""

from __future__ import annotations

from pydantic import PositiveInt, field_validator

from palestra.core.settings import Settings

ALL_LINEAR = "all-linear"


class LoraSettings(Settings):
    """Train an adapter instead of all weights."""

    rank: PositiveInt = 16
    """Rank of the two trained matrices."""
    alpha: PositiveInt = 32
    """Scaling: the adapter's output is multiplied by alpha / rank."""
    targets: tuple[str, ...] = (ALL_LINEAR,)
    """Names of the adapted linear modules, such as "q_proj"; "all-linear" is all but the head."""

    @field_validator("targets")
    @classmethod
    def _all_or_some(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value or (ALL_LINEAR in value and len(value) > 1):
            raise ValueError(f"expected {ALL_LINEAR!r} or names of modules")
        return value
