"""Log-probs of action tokens, and the critic's estimates, over packed segments.

Suffixes name the shape. R: the tokens of a forward pass, shared prefixes counted once. See
`palestra.algos.batch` for T, S and C.
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
"""Up to this many logits are computed at once; more go through `ChunkedLogProb`."""


def predict(
    model: PreTrainedModel,
    batch: Batch,
    temperature: float,
    *,
    critic: Critic | None = None,
    entropy_gradient: bool = False,
) -> PolicyOutput:
    """The outputs of `model` for the action tokens of a batch that fits into one forward pass."""
    packed = _PackedTokens(batch)
    hidden_RD = packed.hidden_states(model)
    hidden_CD = gather_rows(hidden_RD, packed.before_C)
    ids_C = batch.ids_T[batch.action_mask_T]
    logp_C, entropy_C = _logp_and_entropy(model, hidden_CD, ids_C, temperature)
    if not entropy_gradient:
        entropy_C = entropy_C.detach()
    if critic is None:
        return PolicyOutput(logp_C, entropy_C)
    if critic.trunk is None:
        value_R = critic.output_of(hidden_RD)
    else:
        value_R = critic(packed.ids_R, packed.positions_R, packed.layout)
    return PolicyOutput(logp_C, entropy_C, gather_rows(value_R, packed.before_C))


def logprobs(model: PreTrainedModel, batch: Batch, *, temperature: float = 1.0) -> Tensor:
    """Compute the log-prob of each action token of a batch, with its gradient.

    The batch has to fit into one forward pass: `Batch.microbatches` cuts a larger one.
    `temperature`: that of sampling, so that the log-probs are those of the policy that sampled.
    """
    return predict(model, batch, temperature).logp_C


def gather_rows(values: Tensor, index: Tensor) -> Tensor:
    """`values[index]` with a deterministic backward pass: that of plain indexing adds gradients up
    in several threads, in any order.
    """
    return values.index_select(0, index)


def estimate(model: PreTrainedModel, critic: Critic, batch: Batch) -> tuple[Tensor, Tensor]:
    """The critic's estimates before each action token, and after the last token of each segment."""
    packed = _PackedTokens(batch)
    if critic.trunk is None:
        value_R = critic.output_of(packed.hidden_states(model))
    else:
        value_R = critic(packed.ids_R, packed.positions_R, packed.layout)
    return value_R[packed.before_C], value_R[packed.last_S]


class _PackedTokens:
    """The input of a forward pass: the tokens of a batch, shared prefixes of segments once."""

    def __init__(self, batch: Batch) -> None:
        lengths = batch.lengths_S.tolist()
        shared = SharedPrefixes.of(lengths, batch.in_common_S, batch.ids_T.device)
        self.ids_R = batch.ids_T[shared.kept_R]
        self.positions_R = batch.positions_T[shared.kept_R]
        self.layout = PackedLayout(lengths, shared)
        # The logits of a token come from the token before it. There always is one: a segment never
        # begins with an action token.
        self.before_C = shared.index_T[batch.action_mask_T.nonzero().flatten() - 1]
        self.last_S = shared.index_T[batch.lengths_S.cumsum(0) - 1]

    def hidden_states(self, model: PreTrainedModel) -> Tensor:
        """The model's last hidden states, [R, D]."""
        ids_1R, positions_1R = self.ids_R[None], self.positions_R[None]
        return hidden_states(model, ids_1R, positions_1R, layout=self.layout)[0]


def _logp_and_entropy(
    model: PreTrainedModel, hidden_CD: Tensor, ids_C: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    head = model.get_output_embeddings()
    if len(ids_C) * head.weight.shape[0] > FEW_LOGITS and head.bias is None:
        return ChunkedLogProb.apply(hidden_CD, head.weight, ids_C, temperature)
    logits_CV = head(hidden_CD)
    logp_CV = (logits_CV.to(fp32_or_wider(logits_CV.dtype)) / temperature).log_softmax(-1)
    return logp_CV.gather(-1, ids_C[:, None])[:, 0], -(logp_CV.exp() * logp_CV).sum(-1)
