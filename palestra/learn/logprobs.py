"""Log-probs of chosen tokens, and a critic's estimates, computed over packed segments and a few tokens at a time."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from palestra.algos.base import Prediction
from palestra.batch import Batch
from palestra.learn.critic import Critic
from palestra.model import PackedLayout, hidden_states

CHUNK = 2048
"""Chosen tokens whose logits are held at once: with 150,000 words these alone are 1.2 GB."""


def predict(
    model: PreTrainedModel, batch: Batch, temperature: float, *, critic: Critic | None = None, entropy_gradient: bool = False
) -> Prediction:
    """What `model` says of the chosen tokens of a batch that fits into one forward pass."""
    layout = PackedLayout(batch.lengths_S.tolist())
    positions_T = batch.positions_T
    hidden_TD = hidden_states(model, batch.ids_T[None], positions_T[None], layout=layout)[0]
    chosen = batch.chosen_T.nonzero().flatten()
    # a token is predicted from the one before it; a segment never begins with a chosen token
    pieces = [_scored(model, hidden_TD[places - 1], batch.ids_T[places], temperature, entropy_gradient) for places in chosen.split(CHUNK)]
    logp_C, entropy_C = (torch.cat(part) for part in zip(*pieces, strict=True))
    if critic is None:
        return Prediction(logp_C, entropy_C)
    value_T = critic.output_of(hidden_TD) if critic.trunk is None else critic(batch.ids_T, positions_T, layout)
    return Prediction(logp_C, entropy_C, value_T[chosen - 1])


def estimate(model: PreTrainedModel, critic: Critic, batch: Batch) -> tuple[Tensor, Tensor]:
    """What the critic expects before each chosen token, and after the last token of each segment."""
    layout = PackedLayout(batch.lengths_S.tolist())
    if critic.trunk is None:
        value_T = critic.output_of(hidden_states(model, batch.ids_T[None], batch.positions_T[None], layout=layout)[0])
    else:
        value_T = critic(batch.ids_T, batch.positions_T, layout)
    return value_T[batch.chosen_T.nonzero().flatten() - 1], value_T[batch.lengths_S.cumsum(0) - 1]


def _scored(model: PreTrainedModel, hidden_CD: Tensor, ids_C: Tensor, temperature: float, entropy_gradient: bool) -> tuple[Tensor, Tensor]:
    def score(hidden_CD: Tensor) -> tuple[Tensor, Tensor]:
        logits_CV = model.get_output_embeddings()(hidden_CD).float() / temperature
        logp_CV = logits_CV.log_softmax(-1)
        with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
            entropy_C = -(logp_CV.exp() * logp_CV).sum(-1)
        return logp_CV.gather(-1, ids_C[:, None])[:, 0], entropy_C

    if torch.is_grad_enabled() and len(ids_C) == CHUNK:  # full chunks are computed again backwards instead of kept
        return checkpoint(score, hidden_CD, use_reentrant=False)
    return score(hidden_CD)
