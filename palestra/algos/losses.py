"""Losses: chosen tokens in, one loss per token and its diagnostics out. No config, no state, no logging.

C: chosen tokens. How tokens are averaged is kept apart, in `token_weights`.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Stats = dict[str, Tensor]
"""Diagnostics, one number per chosen token; they are reported as means."""

Normalise = Literal["token", "sequence", "constant"]


def clipped_policy_loss(
    logp_C: Tensor, old_logp_C: Tensor, advantage_C: Tensor, *, clip_low: float, clip_high: float
) -> tuple[Tensor, Stats]:
    """PPO's pessimistic surrogate (arXiv:1707.06347, eq. 7), with its own upper bound (clip-higher, arXiv:2503.14476)."""
    log_ratio_C = logp_C - old_logp_C
    ratio_C = log_ratio_C.exp()
    clipped_C = ratio_C.clamp(1 - clip_low, 1 + clip_high)
    loss_C = -torch.minimum(ratio_C * advantage_C, clipped_C * advantage_C)
    with torch.no_grad():
        held_back_C = clipped_C * advantage_C < ratio_C * advantage_C
        stats = {"policy/clipped": held_back_C.float(), "policy/kl": ratio_C - 1 - log_ratio_C}
    return loss_C, stats


def kl_to_reference(logp_C: Tensor, reference_logp_C: Tensor) -> Tensor:
    """The k3 estimate of KL(policy || reference): unbiased and never negative (GRPO, arXiv:2402.03300, eq. 4)."""
    log_ratio_C = reference_logp_C - logp_C
    return log_ratio_C.exp() - 1 - log_ratio_C


def token_weights(owner_C: Tensor, trajectories: int, *, normalise: Normalise, constant: int = 1) -> Tensor:
    """What each chosen token's loss counts for, so that the loss of a batch is a plain weighted sum.

    token: all tokens alike, 1 / all tokens (DAPO, arXiv:2503.14476).
    sequence: all trajectories alike, 1 / (trajectories x own tokens) (GRPO, arXiv:2402.03300).
    constant: 1 / (trajectories x constant), blind to length (Dr. GRPO, arXiv:2503.20783).
    """
    if normalise == "token":
        return torch.full(owner_C.shape, 1 / max(len(owner_C), 1), device=owner_C.device)
    if normalise == "sequence":
        return 1 / (owner_C.bincount()[owner_C] * trajectories)
    return torch.full(owner_C.shape, 1 / (trajectories * constant), device=owner_C.device)
