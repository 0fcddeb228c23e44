"""Losses: chosen tokens in, one loss per token and its diagnostics out. No config, no state, no
logging.

C: chosen tokens. How tokens are averaged is kept apart, in `token_weights`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from palestra.core.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

Stats: TypeAlias = "dict[str, Tensor]"
"""Diagnostics, one number per chosen token; they are reported as means."""

Normalize = Literal["token", "sequence", "constant"]

MOST_LOG_RATIO = 20.0
"""Log-ratios are held within this either way: exp(89) is infinite in float32, and infinity times 0
is no gradient.
"""


def bounded(log_ratio: Tensor) -> Tensor:
    return log_ratio.clamp(-MOST_LOG_RATIO, MOST_LOG_RATIO)


def clipped_policy_loss(
    log_ratio_C: Tensor,
    advantage_C: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None = None,
) -> tuple[Tensor, Stats]:
    """PPO's pessimistic surrogate (arXiv:1707.06347, eq. 7), with its own upper bound (clip-higher,
    arXiv:2503.14476).

    `dual_clip` bounds what a bad token of a large ratio can cost (arXiv:1912.09729, eq. 5).
    """
    ratio_C = bounded(log_ratio_C).exp()
    clipped_C = ratio_C.clamp(1 - clip_low, 1 + clip_high)
    gain_C = torch.minimum(ratio_C * advantage_C, clipped_C * advantage_C)
    if dual_clip is not None:
        gain_C = torch.where(
            advantage_C < 0, torch.maximum(gain_C, dual_clip * advantage_C), gain_C
        )
    return -gain_C, {"policy/clipped": (gain_C < ratio_C * advantage_C).float().detach()}


def cispo_loss(
    log_ratio_C: Tensor, logp_C: Tensor, advantage_C: Tensor, *, clip_low: float, clip_high: float
) -> tuple[Tensor, Stats]:
    """CISPO (arXiv:2506.13585): the importance weight is clipped and carries no gradient, so that
    every token keeps its own.
    """
    ratio_C = bounded(log_ratio_C).exp().detach()
    weight_C = ratio_C.clamp(1 - clip_low, 1 + clip_high)
    return -weight_C * advantage_C * logp_C, {"policy/clipped": (weight_C != ratio_C).float()}


def sequence_log_ratio(log_ratio_C: Tensor, trajectory_C: Tensor, logp_C: Tensor) -> Tensor:
    """GSPO (arXiv:2507.18071, eq.

    14): the mean log-ratio of the trajectory, whose gradient each token shares.
    """
    trajectories = int(trajectory_C.max()) + 1
    zeros_N = torch.zeros(trajectories, dtype=log_ratio_C.dtype, device=log_ratio_C.device)
    mean_N = zeros_N.index_add(0, trajectory_C, log_ratio_C.detach()) / trajectory_C.bincount(
        minlength=trajectories
    ).clamp(min=1)
    return mean_N[trajectory_C] + logp_C - logp_C.detach()


KL = Literal["k1", "k2", "k3"]


def kl_divergence(logp_C: Tensor, other_logp_C: Tensor, estimator: KL = "k3") -> Tensor:
    """Of a policy (`logp_C`) from another one (`other_logp_C`), per token, for samples of the
    former.

    k1: unbiased, of either sign. k2: never negative; as a loss it has the gradient of the
    divergence itself. k3: unbiased and never negative (what GRPO uses, arXiv:2402.03300, eq. 4); as
    a loss it has the gradient of the divergence the other way round.
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
    """The weight that makes up for an engine whose probabilities are not the learner's: truncated
    at `cap`, or 0 beyond it.

    Truncated importance sampling (arXiv:1802.01561's rho-bar applied to the sampler) per token, or
    over a whole trajectory: the product over its tokens, or their geometric mean. Below
    `mask_below` the weight is 0.
    """
    log_weight_C = learner_logp_C - sampled_logp_C
    if level != "token":
        trajectories = int(trajectory_C.max()) + 1
        zeros_N = torch.zeros(trajectories, dtype=log_weight_C.dtype, device=log_weight_C.device)
        total_N = zeros_N.index_add(0, trajectory_C, log_weight_C)
        size_N = (
            trajectory_C.bincount(minlength=trajectories).clamp(min=1)
            if level == "geometric"
            else 1
        )
        log_weight_C = (total_N / size_N)[trajectory_C]
    weight_C = bounded(log_weight_C).exp()
    kept_C = torch.where(weight_C > cap, 0.0, weight_C) if mask else weight_C.clamp(max=cap)
    return kept_C if mask_below is None else torch.where(weight_C < mask_below, 0.0, kept_C)


def entropy_weight(sampled_logp_C: Tensor, weight: float, target: float | None) -> Tensor:
    """What each token's entropy counts for: `weight`, or less of it the nearer the entropy of the
    batch is to `target`.

    The mean of -log p over what was sampled estimates the entropy of the policy that sampled it: no
    state, nothing to resume.
    """
    entropy = -sampled_logp_C.mean()
    share = (
        torch.ones_like(entropy) if target is None else (1 - entropy / target).clamp(min=0, max=1)
    )
    return (weight * share).expand_as(sampled_logp_C)


def clipped_value_loss(
    value_C: Tensor, old_value_C: Tensor, return_C: Tensor, *, clip: float | None
) -> tuple[Tensor, Stats]:
    """PPO's loss of a critic (arXiv:2005.12729): half the squared error, pessimistic about values
    that left `clip` around the old ones.
    """
    loss_C = (value_C - return_C).square() / 2
    plain_C = loss_C
    if clip is not None:
        kept_C = value_C.clamp(old_value_C - clip, old_value_C + clip)
        loss_C = torch.maximum(plain_C, (kept_C - return_C).square() / 2)
    return loss_C, {
        "value/clipped": (loss_C > plain_C).float().detach(),
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
    and its diagnostics are shared out evenly among its tokens.

    `label_smoothing`: how often a preference is taken to be the wrong way round (conservative DPO,
    as in arXiv:2403.00409). `length_normalized`: the mean over a side's tokens in place of the sum
    (arXiv:2411.15124). P: pairs; their numbers may have gaps. A pair must be here whole: a part of
    it has another margin.
    """
    pairs = int(pair_C.max()) + 1
    side_C = 2 * pair_C + is_chosen_C.long()
    size_P2 = side_C.bincount(minlength=2 * pairs).view(pairs, 2)
    if len(lonely := ((size_P2 == 0).sum(1) == 1).nonzero()):
        raise ValueError(
            "a pair needs tokens on both sides, chosen and rejected; one side is missing "
            f"in pairs {lonely.flatten().tolist()}"
        )
    log_ratio_C = logp_C - reference_logp_C
    log_ratio_P2 = (
        torch.zeros(2 * pairs, dtype=log_ratio_C.dtype, device=log_ratio_C.device)
        .index_add(0, side_C, log_ratio_C)
        .view(pairs, 2)
    )
    if length_normalized:
        log_ratio_P2 = log_ratio_P2 / size_P2.clamp(min=1)
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
    tokens_P = size_P2.sum(1).clamp(min=1)

    def shared(x_P: Tensor) -> Tensor:
        return (x_P / tokens_P).index_select(0, pair_C)

    return shared(loss_P), {name: shared(stat_P.detach()) for name, stat_P in stats_P.items()}


def token_weights(
    trajectory_C: Tensor, trajectories: int, *, normalize: Normalize, constant: int = 1
) -> Tensor:
    """What each chosen token's loss counts for, so that the loss of a batch is a plain weighted
    sum.

    token: all tokens alike, 1 / all tokens (DAPO, arXiv:2503.14476).
    sequence: all trajectories alike, 1 / (trajectories x own tokens) (GRPO, arXiv:2402.03300).
    constant: 1 / (trajectories x constant), blind to length (Dr. GRPO, arXiv:2503.20783).
    """
    if normalize == "token":
        return torch.full(
            trajectory_C.shape, 1 / max(len(trajectory_C), 1), device=trajectory_C.device
        )
    if normalize == "sequence":
        return 1 / (trajectory_C.bincount()[trajectory_C] * trajectories)
    return torch.full(trajectory_C.shape, 1 / (trajectories * constant), device=trajectory_C.device)
