"""The learning rate as a pure function of the training step."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from palestra.core.settings import Settings


class OptimizerConfig(Settings):
    """How the learner steps."""

    lr: PositiveFloat = 1e-6
    """Default: 2e-4 for a model made on the spot, 1e-5 for an adapter, 1e-6 for all weights of a
    pretrained one.
    """
    warmup: NonNegativeInt = 0
    """Training steps over which the learning rate grows from 0."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """What becomes of the learning rate after the warm-up."""
    final: float = Field(default=0.0, ge=0, le=1)
    """The share of `lr` that `linear` and `cosine` end at."""
    betas: tuple[float, float] = (0.9, 0.999)
    """AdamW's decay rates of the gradient's mean and of its square."""
    weight_decay: NonNegativeFloat = 0.0
    """AdamW's decoupled weight decay."""
    clip_norm: PositiveFloat = 1.0
    """Gradients of a larger norm are scaled down to it."""
    minibatches: PositiveInt = 1
    """Optimizer steps per batch of trajectories."""
    epochs: PositiveInt = 1
    """How often each batch is gone through."""
    microbatch_tokens: PositiveInt = 4096
    """Tokens in one forward and backward pass; gradients add up over these."""
    accumulation_parts: PositiveInt = 1
    """One worker adds gradients up in so many parts, as that many workers do: the order of sums is
    then the same for both. Takes the memory of another gradient."""
    activation_checkpointing: bool = False
    """Keep only what enters a layer and compute it again on the way back: a third more time, a
    fraction of the memory.
    """
    compile: bool = False
    """Compile the learner's layers by torch.compile; the engine's path stays as it is."""

    @model_validator(mode="after")
    def _no_idle_settings(self) -> OptimizerConfig:
        if self.schedule == "constant" and self.final:
            raise ValueError("final does nothing while schedule = 'constant'")
        return self

    def lr_at(self, step: int, steps: int) -> float:
        """The learning rate of training step `step` (from 0) of `steps`."""
        if step < self.warmup:
            return self.lr * (step + 1) / self.warmup
        share = (step - self.warmup) / max(steps - self.warmup, 1)
        falling = {
            "constant": 1.0,
            "linear": 1 - share,
            "cosine": (1 + math.cos(math.pi * share)) / 2,
        }[self.schedule]
        return self.lr * (
            falling if self.schedule == "constant" else self.final + (1 - self.final) * falling
        )
