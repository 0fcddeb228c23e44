"""Losses: action tokens in, one loss per token and its diagnostics out. No config, no state, no
logging.

C: action tokens. How tokens are averaged is separate, in `token_weights`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from palestra.core.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

Stats: TypeAlias = "dict[str, Tensor]"
"""Diagnostics, one number per action token; they are reported as means."""

Normalize = Literal["token", "sequence", "constant"]

MOST_LOG_RATIO = 20.0
"""Bound on the magnitude of log-ratios: exp(89) is infinite in float32, and infinity times 0 is NaN
in the gradient.
"""


def bounded(log_ratio: Tensor) -> Tensor:
    """A log-ratio whose exponential is finite."""
    return log_ratio.clamp(-MOST_LOG_RATIO, MOST_LOG_RATIO)


def clipped_policy_loss(
    log_ratio_C: Tensor,
    advantage_C: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None = None,
) -> tuple[Tensor, Stats]:
    """PPO's clipped surrogate (arXiv:1707.06347, eq. 7), with a separate upper bound (clip-higher,
    arXiv:2503.14476).

    `dual_clip` bounds the loss of a token with a negative advantage and a large ratio
    (arXiv:1912.09729, eq. 5).
    """
    ratio_C = bounded(log_ratio_C).exp()
    clipped_C = ratio_C.clamp(1 - clip_low, 1 + clip_high)
    gain_C = torch.minimum(ratio_C * advantage_C, clipped_C * advantage_C)
    if dual_clip is not None:
        dual_C = torch.maximum(gain_C, dual_clip * advantage_C)
        gain_C = torch.where(advantage_C < 0, dual_C, gain_C)
    return -gain_C, {"policy/clipped": (gain_C < ratio_C * advantage_C).float().detach()}


def cispo_loss(
    log_ratio_C: Tensor, logp_C: Tensor, advantage_C: Tensor, *, clip_low: float, clip_high: float
) -> tuple[Tensor, Stats]:
    """CISPO (arXiv:2506.13585): the importance weight is clipped and detached, so that every token
    keeps the gradient of its log-prob.
    """
    ratio_C = bounded(log_ratio_C).exp().detach()
    weight_C = ratio_C.clamp(1 - clip_low, 1 + clip_high)
    return -weight_C * advantage_C * logp_C, {"policy/clipped": (weight_C != ratio_C).float()}


def sequence_log_ratio(log_ratio_C: Tensor, trajectory_C: Tensor, logp_C: Tensor) -> Tensor:
    """GSPO (arXiv:2507.18071, eq. 14): the mean log-ratio of the trajectory, with the gradient of
    each token's own log-prob.
    """
    trajectories = int(trajectory_C.max()) + 1
    zeros_N = torch.zeros(trajectories, dtype=log_ratio_C.dtype, device=log_ratio_C.device)
    total_N = zeros_N.index_add(0, trajectory_C, log_ratio_C.detach())
    tokens_N = trajectory_C.bincount(minlength=trajectories).clamp(min=1)
    mean_N = total_N / tokens_N
    return mean_N[trajectory_C] + logp_C - logp_C.detach()


KL = Literal["k1", "k2", "k3"]


def kl_divergence(logp_C: Tensor, other_logp_C: Tensor, estimator: KL = "k3") -> Tensor:
    """KL(policy, other) per token, estimated from samples of the policy (`logp_C`).

    k1: unbiased, of either sign. k2: never negative; as a loss it has the gradient of KL(policy,
    other). k3: unbiased and never negative (used by GRPO, arXiv:2402.03300, eq. 4); as a loss it
    has the gradient of the reverse divergence, KL(other, policy).
    """
    log_ratio_C = other_logp_C - logp_C
    if estimator == "k1":
        return -log_ratio_C
    if estimator == "k2":
        return log_ratio_C.square() / 2
    # held on both sides of the difference: on one alone, the gradient would turn round beyond it
    held_C = log_ratio_C.clamp(max=MOST_LOG_RATIO)
    return held_C.exp() - 1 - held_C


def importance_correction(
    learner_logp_C: Tensor,
    sampled_logp_C: Tensor,
    trajectory_C: Tensor,
    *,
    level: Literal["token", "sequence", "geometric"],
    cap: float,
    mask: bool,
    mask_below: float | None = None,
) -> Tensor:
    """The importance weight of the learner's policy over the policy that sampled: truncated at
    `cap`, or 0 beyond it if `mask`. Below `mask_below` the weight is 0.

    Truncated importance sampling (the rho-bar of arXiv:1802.01561, applied to the sampler) per
    token, or per trajectory: the product of its tokens' ratios, or their geometric mean.
    """
    log_weight_C = learner_logp_C - sampled_logp_C
    if level != "token":
        trajectories = int(trajectory_C.max()) + 1
        zeros_N = torch.zeros(trajectories, dtype=log_weight_C.dtype, device=log_weight_C.device)
        log_weight_N = zeros_N.index_add(0, trajectory_C, log_weight_C)
        if level == "geometric":
            tokens_N = trajectory_C.bincount(minlength=trajectories).clamp(min=1)
            log_weight_N = log_weight_N / tokens_N
        log_weight_C = log_weight_N[trajectory_C]
    weight_C = bounded(log_weight_C).exp()
    kept_C = torch.where(weight_C > cap, 0.0, weight_C) if mask else weight_C.clamp(max=cap)
    if mask_below is not None:
        kept_C = torch.where(weight_C < mask_below, 0.0, kept_C)
    return kept_C


def entropy_weight(sampled_logp_C: Tensor, weight: float, target: float | None) -> Tensor:
    """The weight of each token's entropy bonus: `weight`, scaled down linearly to 0 as the entropy
    of the batch approaches `target`.

    The mean of -log p over the sampled tokens estimates the entropy of the policy that sampled
    them, so there is no state to checkpoint.
    """
    entropy = -sampled_logp_C.mean()
    if target is None:
        scale = torch.ones_like(entropy)
    else:
        scale = (1 - entropy / target).clamp(min=0, max=1)
    return (weight * scale).expand_as(sampled_logp_C)


def clipped_value_loss(
    value_C: Tensor, old_value_C: Tensor, return_C: Tensor, *, clip: float | None
) -> tuple[Tensor, Stats]:
    """PPO's clipped value loss (arXiv:2005.12729): half the squared error, or that of the value
    clipped to within `clip` of the old one, whichever is larger.
    """
    unclipped_C = (value_C - return_C).square() / 2
    loss_C = unclipped_C
    if clip is not None:
        clipped_C = value_C.clamp(old_value_C - clip, old_value_C + clip)
        loss_C = torch.maximum(unclipped_C, (clipped_C - return_C).square() / 2)
    return loss_C, {
        "value/clipped": (loss_C > unclipped_C).float().detach(),
        "value/error": (value_C - return_C).abs().detach(),
    }


def dpo_loss(
    logp_C: Tensor,
    reference_logp_C: Tensor,
    pair_C: Tensor,
    is_chosen_C: Tensor,
    *,
    beta: float,
    label_smoothing: float = 0.0,
    length_normalized: bool = False,
) -> tuple[Tensor, Stats]:
    """DPO (arXiv:2305.18290, eq. 7) over pairs of trajectories, chosen and rejected. A pair's loss
    and diagnostics are divided evenly among its tokens.

    `label_smoothing`: assumed fraction of flipped preferences (conservative DPO,
    arXiv:2403.00409). `length_normalized`: the mean over a side's tokens instead of the sum
    (arXiv:2411.15124). P: pairs; their numbers may have gaps. A pair must be in the batch whole:
    part of it has another margin.
    """
    pairs = int(pair_C.max()) + 1
    side_C = 2 * pair_C + is_chosen_C.long()
    tokens_P2 = side_C.bincount(minlength=2 * pairs).view(pairs, 2)
    one_sided = ((tokens_P2 == 0).sum(1) == 1).nonzero().flatten()
    if len(one_sided):
        raise ValueError(
            "a pair needs tokens on both sides, chosen and rejected; one side is missing "
            f"in pairs {one_sided.tolist()}"
        )
    log_ratio_C = logp_C - reference_logp_C
    zeros = torch.zeros(2 * pairs, dtype=log_ratio_C.dtype, device=log_ratio_C.device)
    log_ratio_P2 = zeros.index_add(0, side_C, log_ratio_C).view(pairs, 2)
    if length_normalized:
        log_ratio_P2 = log_ratio_P2 / tokens_P2.clamp(min=1)
    rejected_P, chosen_P = log_ratio_P2.unbind(1)
    margin_P = beta * (chosen_P - rejected_P)
    logsigmoid = torch.nn.functional.logsigmoid
    loss_P = -(1 - label_smoothing) * logsigmoid(margin_P) - label_smoothing * logsigmoid(-margin_P)
    stats_P = {
        "dpo/accuracy": (margin_P > 0).to(loss_P.dtype),
        "dpo/margin": margin_P,
        "dpo/chosen": chosen_P,
        "dpo/rejected": rejected_P,
    }
    tokens_P = tokens_P2.sum(1).clamp(min=1)

    def per_token(x_P: Tensor) -> Tensor:
        return (x_P / tokens_P).index_select(0, pair_C)

    stats = {name: per_token(stat_P.detach()) for name, stat_P in stats_P.items()}
    return per_token(loss_P), stats


def token_weights(
    trajectory_C: Tensor, trajectories: int, *, normalize: Normalize, constant: int = 1
) -> Tensor:
    """The weight of each action token's loss, so that the loss of a batch is a weighted sum.

    token: all tokens equally, 1 / tokens (DAPO, arXiv:2503.14476).
    sequence: all trajectories equally, 1 / (trajectories x own tokens) (GRPO, arXiv:2402.03300).
    constant: 1 / (trajectories x constant), independent of length (Dr. GRPO, arXiv:2503.20783).
    """
    if normalize == "sequence":
        return 1 / (trajectory_C.bincount()[trajectory_C] * trajectories)
    if normalize == "token":
        weight = 1 / max(len(trajectory_C), 1)
    else:
        weight = 1 / (trajectories * constant)
    return torch.full(trajectory_C.shape, weight, device=trajectory_C.device)
