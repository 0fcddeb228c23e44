"""Log-probs of chosen tokens, and a critic's estimates, computed over packed segments and a few tokens at a time."""

from __future__ import annotations

from torch import Tensor
from transformers import PreTrainedModel

from palestra.algos.base import Prediction
from palestra.batch import Batch
from palestra.learn.critic import Critic
from palestra.learn.scores import Scores
from palestra.model import PackedLayout, hidden_states

FEW_LOGITS = 1 << 24
"""Up to so many are simply kept."""


def predict(
    model: PreTrainedModel, batch: Batch, temperature: float, *, critic: Critic | None = None, entropy_gradient: bool = False
) -> Prediction:
    """What `model` says of the chosen tokens of a batch that fits into one forward pass."""
    layout = PackedLayout(batch.lengths_S.tolist())
    positions_T = batch.positions_T
    hidden_TD = hidden_states(model, batch.ids_T[None], positions_T[None], layout=layout)[0]
    chosen = batch.chosen_T.nonzero().flatten()
    # a token is predicted from the one before it; a segment never begins with a chosen token
    logp_C, entropy_C = _scored(model, hidden_TD[chosen - 1], batch.ids_T[chosen], temperature)
    if not entropy_gradient:
        entropy_C = entropy_C.detach()
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


def _scored(model: PreTrainedModel, hidden_CD: Tensor, ids_C: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    head = model.get_output_embeddings()
    if len(ids_C) * head.weight.shape[0] > FEW_LOGITS and head.bias is None:
        return Scores.apply(hidden_CD, head.weight, ids_C, temperature)
    logp_CV = (head(hidden_CD).float() / temperature).log_softmax(-1)
    return logp_CV.gather(-1, ids_C[:, None])[:, 0], -(logp_CV.exp() * logp_CV).sum(-1)
