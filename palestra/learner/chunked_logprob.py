"""Log-probs and entropies of action tokens, without holding the logits of all of them at once.

Suffixes name the shape. C: action tokens. R: the tokens of one chunk. D: hidden. V: vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from palestra.models.weights import fp32_or_wider

MOST_LOGITS = 1 << 28
"""Logits held in memory at once: 1 GiB in float32."""


class ChunkedLogProb(torch.autograd.Function):
    """From hidden states and the head's weights to log-probs and entropies.

    The backward pass recomputes the logits, chunk by chunk.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden_CD: Tensor, weight_VD: Tensor, ids_C: Tensor, temperature: float
    ) -> tuple[Tensor, Tensor]:
        totals, logps, entropies = [], [], []
        for chunk in _chunks(len(ids_C), len(weight_VD), ids_C.device):
            logits_RV = _logits(hidden_CD[chunk], weight_VD).div_(temperature)
            total_R = logits_RV.logsumexp(-1)
            logps.append(logits_RV.gather(-1, ids_C[chunk, None])[:, 0] - total_R)
            p_RV = (logits_RV - total_R[:, None]).exp_()
            # H = -sum p (logit - total) = total - sum p logit
            entropies.append(total_R - p_RV.mul_(logits_RV).sum(-1))
            totals.append(total_R)
        total_C = torch.cat(totals)
        logp_C = torch.cat(logps)
        entropy_C = torch.cat(entropies)
        ctx.save_for_backward(hidden_CD, weight_VD, ids_C, total_C, entropy_C)
        ctx.temperature = temperature
        return logp_C, entropy_C

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        hidden_CD, weight_VD, ids_C, total_C, entropy_C = ctx.saved_tensors
        grad_logp_C, grad_entropy_C = gradients
        grad_hidden_CD = torch.empty_like(hidden_CD)
        grad_weight_VD = None
        if ctx.needs_input_grad[1]:
            dtype = fp32_or_wider(weight_VD.dtype)
            grad_weight_VD = torch.zeros_like(weight_VD, dtype=dtype)
        for chunk in _chunks(len(ids_C), len(weight_VD), ids_C.device):
            logp_RV = _logits(hidden_CD[chunk], weight_VD)
            logp_RV.div_(ctx.temperature).sub_(total_C[chunk, None])
            p_RV = logp_RV.exp()
            grad_logp_R1 = grad_logp_C[chunk, None]
            # With g and h the gradients of logp and entropy, and [token] 1 at the token's logit:
            #   d logp / d logit    = [token] - p
            #   d entropy / d logit = -p (log p + entropy)
            # so d loss / d logit = p (-h (log p + entropy) - g) + g [token]. In place, as each of
            # these tensors is as large as the logits.
            logp_RV.add_(entropy_C[chunk, None]).mul_(-grad_entropy_C[chunk, None])
            logp_RV.sub_(grad_logp_R1)
            grad_RV = p_RV.mul_(logp_RV).scatter_add_(1, ids_C[chunk, None], grad_logp_R1)
            grad_RV = grad_RV.div_(ctx.temperature).to(hidden_CD.dtype)
            grad_hidden_CD[chunk] = grad_RV @ weight_VD
            if grad_weight_VD is not None:
                grad_weight_VD += _matmul(grad_RV.t(), hidden_CD[chunk])
        if grad_weight_VD is not None:
            grad_weight_VD = grad_weight_VD.to(weight_VD.dtype)
        return grad_hidden_CD, grad_weight_VD, None, None


def _chunks(tokens: int, vocabulary: int, device: torch.device) -> tuple[Tensor, ...]:
    """The tokens' indices in chunks whose logits fit into `MOST_LOGITS`."""
    return torch.arange(tokens, device=device).split(max(MOST_LOGITS // vocabulary, 1))


def _logits(hidden_RD: Tensor, weight_VD: Tensor) -> Tensor:
    return _matmul(hidden_RD, weight_VD.t())


def _matmul(left: Tensor, right: Tensor) -> Tensor:
    """The matrix product in float32 or wider, also of bfloat16 factors."""
    if left.device.type == "cuda" and fp32_or_wider(left.dtype) != left.dtype:
        return torch.mm(left, right, out_dtype=torch.float32)
    product = left @ right
    return product.to(fp32_or_wider(product.dtype))
