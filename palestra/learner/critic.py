"""The critic: what is still to come, estimated at every token."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from palestra.algos.base import CriticSettings
from palestra.models.attention import Layout, trunk_states


class Critic(nn.Module):
    """A linear output on the policy's hidden states, or on those of a network of its own.

    It begins by expecting nothing.
    """

    def __init__(self, settings: CriticSettings, policy: PreTrainedModel) -> None:
        super().__init__()
        self.settings = settings
        self.trunk = copy.deepcopy(policy.base_model) if settings.kind == "model" else None
        with torch.random.fork_rng(
            devices=[]
        ):  # its weights are set to 0 anyway; nobody else's noise may move
            self.output = nn.Linear(
                policy.config.get_text_config().hidden_size, 1, device=policy.device
            )
        nn.init.zeros_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def forward(self, ids_T: Tensor, positions_T: Tensor, layout: Layout) -> Tensor:
        """The estimate at each token, by a network of its own."""
        assert self.trunk is not None
        return self.output_of(
            trunk_states(self.trunk, ids_T[None], positions_T[None], layout=layout)[0]
        )

    def output_of(self, hidden_TD: Tensor) -> Tensor:
        """The estimate at each token, given its hidden state."""
        values_T: Tensor = self.output(hidden_TD.float())[:, 0]
        return values_T

    def is_warming_up(self, step: int) -> bool:
        """Whether the policy has to wait in training step `step` (from 1)."""
        return step <= self.settings.warmup
