"""Log-probs and entropies of chosen tokens, without ever holding the logits of all of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from palestra.models.weights import fp32_or_wider

MOST_LOGITS = 1 << 28
"""Logits that are held at once: 1 GiB in float32."""


class ChunkedLogProb(torch.autograd.Function):
    """From hidden states and the head's weights to log-probs and entropies; backwards the logits
    are computed again, piece by piece.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden_CD: Tensor, weight_VD: Tensor, ids_C: Tensor, temperature: float
    ) -> tuple[Tensor, Tensor]:
        totals, logps, entropies = [], [], []
        for places in _pieces(len(ids_C), len(weight_VD), ids_C.device):
            logits_RV = _logits(hidden_CD[places], weight_VD).div_(temperature)
            total_R = logits_RV.logsumexp(-1)
            logps.append(logits_RV.gather(-1, ids_C[places, None])[:, 0] - total_R)
            p_RV = (logits_RV - total_R[:, None]).exp_()
            entropies.append(total_R - p_RV.mul_(logits_RV).sum(-1))
            totals.append(total_R)
        total_C, logp_C, entropy_C = (torch.cat(parts) for parts in (totals, logps, entropies))
        ctx.save_for_backward(hidden_CD, weight_VD, ids_C, total_C, entropy_C)
        ctx.temperature = temperature
        return logp_C, entropy_C

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        hidden_CD, weight_VD, ids_C, total_C, entropy_C = ctx.saved_tensors
        of_logp_C, of_entropy_C = gradients
        to_hidden_CD = torch.empty_like(hidden_CD)
        to_weight_VD = (
            torch.zeros_like(weight_VD, dtype=fp32_or_wider(weight_VD.dtype))
            if ctx.needs_input_grad[1]
            else None
        )
        for places in _pieces(len(ids_C), len(weight_VD), ids_C.device):
            logp_RV = (
                _logits(hidden_CD[places], weight_VD)
                .div_(ctx.temperature)
                .sub_(total_C[places, None])
            )
            p_RV = logp_RV.exp()
            # d logp / d logit = [it is the token] - p;  d entropy / d logit = -p (log p + entropy)
            logp_RV.add_(entropy_C[places, None]).mul_(-of_entropy_C[places, None]).sub_(
                of_logp_C[places, None]
            )
            gradient_RV = p_RV.mul_(logp_RV).scatter_add_(
                1, ids_C[places, None], of_logp_C[places, None]
            )
            gradient_RV = gradient_RV.div_(ctx.temperature).to(hidden_CD.dtype)
            to_hidden_CD[places] = gradient_RV @ weight_VD
            if to_weight_VD is not None:
                to_weight_VD += _product(gradient_RV.t(), hidden_CD[places])
        return (
            to_hidden_CD,
            None if to_weight_VD is None else to_weight_VD.to(weight_VD.dtype),
            None,
            None,
        )


def _pieces(tokens: int, words: int, device: torch.device) -> tuple[Tensor, ...]:
    return torch.arange(tokens, device=device).split(max(MOST_LOGITS // words, 1))


def _logits(hidden_RD: Tensor, weight_VD: Tensor) -> Tensor:
    return _product(hidden_RD, weight_VD.t())


def _product(left: Tensor, right: Tensor) -> Tensor:
    """In float32 at least, however little precision the factors have."""
    if left.device.type == "cuda" and fp32_or_wider(left.dtype) != left.dtype:
        return torch.mm(left, right, out_dtype=torch.float32)
    product = left @ right
    return product.to(fp32_or_wider(product.dtype))
