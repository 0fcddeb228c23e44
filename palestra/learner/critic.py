"""The critic: a value estimate at every token."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from palestra.algos.base import CriticSettings
from palestra.models.attention import Layout, trunk_states


class Critic(nn.Module):
    """A linear value head on the policy's hidden states, or on those of a separate network.

    The head is initialized to 0, so that all first estimates are 0.
    """

    def __init__(self, settings: CriticSettings, policy: PreTrainedModel) -> None:
        super().__init__()
        self.settings = settings
        self.trunk = copy.deepcopy(policy.base_model) if settings.kind == "model" else None
        # nn.Linear draws random weights, which are overwritten below; forked, so that the global
        # random state does not depend on whether there is a critic.
        with torch.random.fork_rng(devices=[]):
            hidden_size = policy.config.get_text_config().hidden_size
            self.output = nn.Linear(hidden_size, 1, device=policy.device)
        nn.init.zeros_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def forward(self, ids_T: Tensor, positions_T: Tensor, layout: Layout) -> Tensor:
        """The estimate at each token, by the critic's own network."""
        assert self.trunk is not None
        hidden_1TD = trunk_states(self.trunk, ids_T[None], positions_T[None], layout=layout)
        return self.output_of(hidden_1TD[0])

    def output_of(self, hidden_TD: Tensor) -> Tensor:
        """The estimate at each token, given its hidden state."""
        values_T: Tensor = self.output(hidden_TD.float())[:, 0]
        return values_T

    def is_warming_up(self, step: int) -> bool:
        """Whether only the critic is updated in training step `step` (from 1)."""
        return step <= self.settings.warmup
