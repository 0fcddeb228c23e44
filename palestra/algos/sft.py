"""Supervised fine-tuning on trajectories: make the chosen tokens likelier, and no others."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from palestra.algos.base import Algorithm, Prediction
from palestra.algos.losses import Stats, token_weights
from palestra.batch import Batch


class SFT(Algorithm):
    name: Literal["sft"] = "sft"

    @property
    def compares_within_groups(self) -> bool:
        return False

    def explain(self) -> list[str]:
        return ["maximise the mean over chosen tokens c of  log p(c)"]

    def advantages(self, batch: Batch) -> Tensor:
        return torch.ones_like(batch.sampled_logp_C)

    def weights(self, batch: Batch) -> Tensor:
        return token_weights(batch.owner_C, len(batch), normalise="token")

    def loss(self, new: Prediction, batch: Batch) -> tuple[Tensor, Stats]:
        return -new.logp_C, {}
