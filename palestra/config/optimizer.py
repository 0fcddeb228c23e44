"""The optimizer's settings, and the learning rate as a pure function of the training step."""

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
    """AdamW, and how a batch is divided into optimizer steps."""

    lr: PositiveFloat = 1e-6
    """Learning rate. Default: 2e-4 for a tiny model, 1e-5 for an adapter, 1e-6 for all weights of a
    pretrained model.
    """
    warmup: NonNegativeInt = 0
    """Training steps of linear warm-up from 0."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Learning-rate schedule after the warm-up."""
    final: float = Field(default=0.0, ge=0, le=1)
    """Final learning rate of `linear` and `cosine`, as a fraction of `lr`."""
    betas: tuple[float, float] = (0.9, 0.999)
    """AdamW's betas: the decay rates of the first and second moments."""
    weight_decay: NonNegativeFloat = 0.0
    """AdamW's decoupled weight decay."""
    clip_norm: PositiveFloat = 1.0
    """Maximum gradient norm; larger gradients are clipped."""
    minibatches: PositiveInt = 1
    """Mini-batches, and so optimizer steps, per epoch over a batch."""
    epochs: PositiveInt = 1
    """Epochs over each batch."""
    microbatch_tokens: PositiveInt = 4096
    """Maximum number of tokens in one forward and backward pass (gradient accumulation)."""
    accumulation_parts: PositiveInt = 1
    """Accumulate the gradients of a single worker in this many parts, as that many workers would:
    the order of sums, and so every bit, is then the same. Needs the memory of one more gradient.
    """
    activation_checkpointing: bool = False
    """Keep only the inputs of layers and recompute activations in the backward pass: a third more
    time for a fraction of the memory.
    """
    compile: bool = False
    """Run the learner's layers through torch.compile; the engine is not affected."""

    @model_validator(mode="after")
    def _no_idle_settings(self) -> OptimizerConfig:
        if self.schedule == "constant" and self.final:
            raise ValueError("final does nothing while schedule = 'constant'")
        return self

    def lr_at(self, step: int, steps: int) -> float:
        """The learning rate of training step `step` (from 0) of `steps`."""
        if step < self.warmup:
            return self.lr * (step + 1) / self.warmup
        if self.schedule == "constant":
            return self.lr
        progress = (step - self.warmup) / max(steps - self.warmup, 1)
        factor = 1 - progress
        if self.schedule == "cosine":
            factor = (1 + math.cos(math.pi * progress)) / 2
        return self.lr * (self.final + (1 - self.final) * factor)
