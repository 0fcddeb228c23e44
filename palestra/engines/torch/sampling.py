"""From logits to tokens: each token is sampled with one uniform random number of its episode, so
that it does not depend on the batch.
"""

from __future__ import annotations

import torch
from torch import Tensor

from palestra.core.types import Sampling


def noise(sampling: Sampling) -> list[float]:
    """The uniform random numbers of one reply, a function of its seed alone."""
    generator = torch.Generator().manual_seed(sampling.seed)
    return torch.rand(sampling.max_tokens, generator=generator, dtype=torch.float64).tolist()


def draw(logits_BV: Tensor, uniform_B: Tensor, samplings: list[Sampling]) -> tuple[Tensor, Tensor]:
    """Sample a token for each row by inverting its cumulative distribution; returns log-probs too.

    Log-probs are those at the sampling temperature, before any top-k or top-p cut. Temperature 0 is
    greedy, with log-probs at temperature 1.
    """
    temperature_B = torch.tensor([s.temperature or 1.0 for s in samplings], device=logits_BV.device)
    logp_BV = (logits_BV.float() / temperature_B[:, None]).log_softmax(-1)
    cumulative_BV = _cut(logp_BV, samplings).double().exp().cumsum(-1)
    total_B = cumulative_BV[:, -1]
    # At most just below the total, so that a token of probability 0 is never sampled.
    target_B = torch.minimum(
        uniform_B.double() * total_B, torch.nextafter(total_B, torch.zeros_like(total_B))
    )
    chosen_B = torch.searchsorted(cumulative_BV, target_B[:, None], right=True)[:, 0]
    if any(s.temperature == 0 for s in samplings):
        greedy_B = torch.tensor([s.temperature == 0 for s in samplings], device=logits_BV.device)
        chosen_B = torch.where(greedy_B, logits_BV.argmax(-1), chosen_B)
    return chosen_B, logp_BV.gather(-1, chosen_B[:, None])[:, 0]


def _cut(logp_BV: Tensor, samplings: list[Sampling]) -> Tensor:
    """Set the log-probs of tokens that top-k and top-p exclude to minus infinity."""
    for row, sampling in enumerate(samplings):
        if 0 < sampling.top_k < logp_BV.shape[-1]:
            logp_BV = logp_BV.clone()
            least = logp_BV[row].topk(sampling.top_k).values[-1]
            logp_BV[row, logp_BV[row] < least] = -torch.inf
        if sampling.top_p < 1:
            logp_BV = logp_BV.clone()
            sorted_V, order_V = logp_BV[row].sort(descending=True)
            mass_before_V = sorted_V.exp().cumsum(0) - sorted_V.exp()
            logp_BV[
                row, order_V[mass_before_V >= sampling.top_p * sorted_V.exp().sum()]
            ] = -torch.inf
    return logp_BV
