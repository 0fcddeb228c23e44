"""Credit: from rewards to advantages. Pure functions; shapes in the names.

N: trajectories. U: turns. C: chosen tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor


def group_mean(x_N: Tensor, group_N: Tensor) -> Tensor:
    """The mean of each trajectory's group."""
    groups = int(group_N.max()) + 1
    sums_G = torch.zeros(groups, dtype=x_N.dtype, device=x_N.device).index_add_(0, group_N, x_N)
    return (sums_G / group_N.bincount(minlength=groups).clamp(min=1))[group_N]


def group_relative(reward_N: Tensor, group_N: Tensor, *, scale: bool = True, eps: float = 1e-6) -> Tensor:
    """GRPO (arXiv:2402.03300): each reward against its group's mean, in standard deviations if `scale`.

    Without `scale` it is the advantage of Dr. GRPO (arXiv:2503.20783). A group of one has no signal and gets 0.
    """
    exact_N = reward_N.double()
    centred_N = exact_N - group_mean(exact_N, group_N)
    centred_N = torch.where(_all_equal(reward_N, group_N), 0.0, centred_N)  # rounding must not pass for a signal
    if not scale:
        return centred_N.float()
    size_N = group_N.bincount()[group_N]
    variance_N = group_mean(centred_N.square(), group_N) * size_N / (size_N - 1).clamp(min=1)
    return (centred_N / (variance_N.sqrt() + eps)).float()


def leave_one_out(reward_N: Tensor, group_N: Tensor) -> Tensor:
    """RLOO (arXiv:2402.14740): each reward against the mean of the others of its group. A group of one gets 0."""
    exact_N = reward_N.double()
    size_N = group_N.bincount()[group_N]
    centred_N = (exact_N - group_mean(exact_N, group_N)) * size_N / (size_N - 1).clamp(min=1)
    return torch.where(_all_equal(reward_N, group_N), 0.0, centred_N).float()


def whiten(x_C: Tensor, eps: float = 1e-8) -> Tensor:
    """With mean 0 and standard deviation 1 over all chosen tokens, as REINFORCE++ (arXiv:2501.03262) has its advantages."""
    if len(x_C) < 2:
        return torch.zeros_like(x_C)
    return (x_C - x_C.mean()) / (x_C.std() + eps)


def returns_to_go(reward_U: Tensor, owner_U: Tensor, *, gamma: float) -> Tensor:
    """What each turn and those after it bring, discounted by `gamma` a turn. Turns stand in the order of play."""
    returns_U = reward_U.double().clone()
    for turn in reversed(range(len(reward_U) - 1)):
        if owner_U[turn] == owner_U[turn + 1]:
            returns_U[turn] += gamma * returns_U[turn + 1]
    return returns_U


def anchored(returns_U: Tensor, anchor_U: Tensor, *, scale: bool) -> Tensor:
    """GiGPO's step credit (arXiv:2505.10978, eq. 7): what followed from a turn against what followed from the same place in others."""
    return group_relative(returns_U, anchor_U, scale=scale)


def _all_equal(reward_N: Tensor, group_N: Tensor) -> Tensor:
    """Whether each trajectory's group has but one reward."""
    groups = int(group_N.max()) + 1
    highest_G = torch.full((groups,), -torch.inf, dtype=reward_N.dtype, device=reward_N.device).scatter_reduce(0, group_N, reward_N, "amax")
    lowest_G = torch.full((groups,), torch.inf, dtype=reward_N.dtype, device=reward_N.device).scatter_reduce(0, group_N, reward_N, "amin")
    return (highest_G == lowest_G)[group_N]
