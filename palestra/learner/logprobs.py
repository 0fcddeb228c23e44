"""Log-probs of chosen tokens, and a critic's estimates, computed over packed segments and a few
tokens at a time.
"""

from __future__ import annotations

from torch import Tensor
from transformers import PreTrainedModel

from palestra.algos.base import PolicyOutput
from palestra.algos.batch import Batch
from palestra.learner.chunked_logprob import ChunkedLogProb
from palestra.learner.critic import Critic
from palestra.models.attention import PackedLayout, SharedPrefixes, hidden_states
from palestra.models.weights import fp32_or_wider

FEW_LOGITS = 1 << 24
"""Up to so many are simply kept."""


def predict(
    model: PreTrainedModel,
    batch: Batch,
    temperature: float,
    *,
    critic: Critic | None = None,
    entropy_gradient: bool = False,
) -> PolicyOutput:
    """What `model` says of the chosen tokens of a batch that fits into one forward pass."""
    row = _Row(batch)
    hidden_RD = hidden_states(model, row.ids_R[None], row.positions_R[None], layout=row.layout)[0]
    logp_C, entropy_C = _scored(
        model, gather_rows(hidden_RD, row.before_C), batch.ids_T[batch.action_mask_T], temperature
    )
    if not entropy_gradient:
        entropy_C = entropy_C.detach()
    if critic is None:
        return PolicyOutput(logp_C, entropy_C)
    value_R = (
        critic.output_of(hidden_RD)
        if critic.trunk is None
        else critic(row.ids_R, row.positions_R, row.layout)
    )
    return PolicyOutput(logp_C, entropy_C, gather_rows(value_R, row.before_C))


def gather_rows(values: Tensor, places: Tensor) -> Tensor:
    """`values[places]`, whose gradients are added up in the same order each time: by plain indexing
    several threads race to add them.
    """
    return values.index_select(0, places)


def estimate(model: PreTrainedModel, critic: Critic, batch: Batch) -> tuple[Tensor, Tensor]:
    """What the critic expects before each chosen token,
    and after the last token of each segment.
    """
    row = _Row(batch)
    if critic.trunk is None:
        value_R = critic.output_of(
            hidden_states(model, row.ids_R[None], row.positions_R[None], layout=row.layout)[0]
        )
    else:
        value_R = critic(row.ids_R, row.positions_R, row.layout)
    return value_R[row.before_C], value_R[row.last_S]


class _Row:
    """The tokens of a forward pass: those of a batch, with what its segments have in common left
    out.
    """

    def __init__(self, batch: Batch) -> None:
        lengths = batch.lengths_S.tolist()
        shared = SharedPrefixes.of(lengths, batch.in_common_S, batch.ids_T.device)
        self.ids_R, self.positions_R = batch.ids_T[shared.kept_R], batch.positions_T[shared.kept_R]
        self.layout = PackedLayout(lengths, shared)
        # a token is predicted from the one before it; a segment never begins with a chosen token
        self.before_C = shared.index_T[batch.action_mask_T.nonzero().flatten() - 1]
        self.last_S = shared.index_T[batch.lengths_S.cumsum(0) - 1]


def _scored(
    model: PreTrainedModel, hidden_CD: Tensor, ids_C: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    head = model.get_output_embeddings()
    if len(ids_C) * head.weight.shape[0] > FEW_LOGITS and head.bias is None:
        return ChunkedLogProb.apply(hidden_CD, head.weight, ids_C, temperature)
    logits_CV = head(hidden_CD)
    logp_CV = (logits_CV.to(fp32_or_wider(logits_CV.dtype)) / temperature).log_softmax(-1)
    return logp_CV.gather(-1, ids_C[:, None])[:, 0], -(logp_CV.exp() * logp_CV).sum(-1)
