"""From logits to tokens: each token is sampled with one uniform random number of its episode, so
that it does not depend on the batch.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from palestra.core.types import Sampling


def noise(sampling: Sampling) -> list[float]:
    """The uniform random numbers of one reply, a function of its seed alone."""
    generator = torch.Generator().manual_seed(sampling.seed)
    return torch.rand(sampling.max_tokens, generator=generator, dtype=torch.float64).tolist()


BLOCK = 256
"""Tokens whose probabilities are summed before one of them is searched for."""


def draw(logits_BV: Tensor, uniform_B: Tensor, samplings: list[Sampling]) -> tuple[Tensor, Tensor]:
    """Sample a token for each row by inverting its cumulative distribution; returns log-probs too.

    Log-probs are those at the sampling temperature, before any top-k or top-p cut. Temperature 0 is
    greedy, with log-probs at temperature 1.

    The search has two levels: first for the block of tokens, by sums in float64, then within the
    block. A cumulative sum over a whole vocabulary in float64 takes ten times as long.
    """
    temperature_B = torch.tensor([s.temperature or 1.0 for s in samplings], device=logits_BV.device)
    scaled_BV = logits_BV.float() / temperature_B[:, None]
    highest_B = scaled_BV.amax(-1)
    # In place: memory that is new in every step costs more time than the arithmetic.
    weight_BV = scaled_BV.sub_(highest_B[:, None]).exp_()
    log_total_B = highest_B.double() + _block_sums(weight_BV).sum(-1).log()
    if any(s.top_k or s.top_p < 1 for s in samplings):
        logp_BV = logits_BV.float() / temperature_B[:, None] - log_total_B.float()[:, None]
        weight_BV = _cut(logp_BV, samplings).exp()
    chosen_B = _pick(weight_BV, uniform_B.double())
    if any(s.temperature == 0 for s in samplings):
        greedy_B = torch.tensor([s.temperature == 0 for s in samplings], device=logits_BV.device)
        chosen_B = torch.where(greedy_B, logits_BV.argmax(-1), chosen_B)
    chosen_logit_B = logits_BV.gather(-1, chosen_B[:, None])[:, 0].float() / temperature_B
    return chosen_B, (chosen_logit_B.double() - log_total_B).float()


def _pick(weight_BV: Tensor, uniform_B: Tensor) -> Tensor:
    """The token of each row at this place of the cumulative distribution."""
    if weight_BV.shape[-1] <= BLOCK:
        upper_BV = weight_BV.double().cumsum(-1)
        return _search(upper_BV, uniform_B * upper_BV[:, -1])[0]
    upper_BK = _block_sums(weight_BV).cumsum(-1)
    block_B, rest_B = _search(upper_BK, uniform_B * upper_BK[:, -1])
    places_BN = block_B[:, None] * BLOCK + torch.arange(BLOCK, device=weight_BV.device)
    is_there_BN = places_BN < weight_BV.shape[-1]
    weight_BN = weight_BV.gather(-1, places_BN.clamp(max=weight_BV.shape[-1] - 1)) * is_there_BN
    within_B, _ = _search(weight_BN.double().cumsum(-1), rest_B)
    return block_B * BLOCK + within_B


def _block_sums(weight_BV: Tensor) -> Tensor:
    """The sum of each block of tokens, in float64. The last block may be shorter."""
    whole = weight_BV.shape[-1] // BLOCK * BLOCK
    sums_BK = weight_BV[:, :whole].unflatten(-1, (-1, BLOCK)).sum(-1).double()
    if whole == weight_BV.shape[-1]:
        return sums_BK
    return torch.cat([sums_BK, weight_BV[:, whole:].sum(-1, keepdim=True).double()], dim=-1)


def _search(upper_BN: Tensor, target_B: Tensor) -> tuple[Tensor, Tensor]:
    """The first element of each row whose cumulative sum is above the target, and how far the
    target is above the sum before it.
    """
    total_B = upper_BN[:, -1]
    # At most just below the total, so that an element of probability 0 is never found.
    target_B = torch.minimum(target_B, torch.nextafter(total_B, torch.zeros_like(total_B)))
    found_B = torch.searchsorted(upper_BN, target_B[:, None], right=True)[:, 0]
    before_BN = functional.pad(upper_BN, (1, 0))
    return found_B, target_B - before_BN.gather(-1, found_B[:, None])[:, 0]


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
