"""Credit assignment: from rewards to advantages, as pure functions.

Suffixes name the shape. N: trajectories. U: turns. C: action tokens. X: turns or action tokens.
G: groups. All sums are taken in float64, so that their rounding stays below float32's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from palestra.core.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor


RELATIVE, ABSOLUTE = 1e-6, 1e-9
"""Rewards that differ by no more than this count as equal: they are sums of floats, and rounding
must not be mistaken for a learning signal.
"""


def group_mean(x_N: Tensor, group_N: Tensor) -> Tensor:
    """The mean of `x_N` over each trajectory's group."""
    groups = int(group_N.max()) + 1
    sums_G = torch.zeros(groups, dtype=x_N.dtype, device=x_N.device).index_add_(0, group_N, x_N)
    return (sums_G / group_N.bincount(minlength=groups).clamp(min=1))[group_N]


def group_relative(
    reward_N: Tensor, group_N: Tensor, *, scale: bool = True, eps: float = 1e-6
) -> Tensor:
    """GRPO (arXiv:2402.03300): each reward minus its group's mean, divided by the group's standard
    deviation if `scale`.

    Without `scale` this is the advantage of Dr. GRPO (arXiv:2503.20783). A group of one has no
    learning signal and gets 0.
    """
    double_N = reward_N.double()
    centered_N = double_N - group_mean(double_N, group_N)
    centered_N = torch.where(_all_equal(reward_N, group_N), 0.0, centered_N)
    if not scale:
        return centered_N.float()
    size_N = group_N.bincount()[group_N]
    # The unbiased variance: divided by size - 1, as torch.std does.
    variance_N = group_mean(centered_N.square(), group_N) * size_N / (size_N - 1).clamp(min=1)
    return (centered_N / (variance_N.sqrt() + eps)).float()


def leave_one_out(reward_N: Tensor, group_N: Tensor) -> Tensor:
    """RLOO (arXiv:2402.14740): each reward minus the mean of the other rewards in its group.

    A group of one gets 0.
    """
    double_N = reward_N.double()
    size_N = group_N.bincount()[group_N]
    # R_i - mean_others(R) = (R_i - mean(R)) * n / (n - 1)
    centered_N = (double_N - group_mean(double_N, group_N)) * size_N / (size_N - 1).clamp(min=1)
    return torch.where(_all_equal(reward_N, group_N), 0.0, centered_N).float()


def whiten(x_C: Tensor, eps: float = 1e-8) -> Tensor:
    """Normalize to mean 0 and standard deviation 1 over all action tokens, as REINFORCE++
    (arXiv:2501.03262) does with its advantages.
    """
    if len(x_C) < 2 or _is_rounding(x_C.max() - x_C.min(), x_C.abs().max()):
        return torch.zeros_like(x_C)
    double_C = x_C.double()
    return ((double_C - double_C.mean()) / (double_C.std() + eps)).to(x_C.dtype)


def against_baseline(reward_N: Tensor, baseline_N: Tensor) -> Tensor:
    """ReMax (arXiv:2310.10505): each reward minus that of the greedy episode of the same task."""
    difference_N = reward_N.double() - baseline_N.double()
    return torch.where(_is_rounding(difference_N, baseline_N), 0.0, difference_N).float()


def returns_to_go(reward_U: Tensor, trajectory_U: Tensor, *, gamma: float) -> Tensor:
    """The discounted return of each turn: its reward and those of all later turns, in float64.

    Turns are in chronological order, trajectory by trajectory; `gamma` is the discount per turn.
    """
    runs = int((trajectory_U[1:] != trajectory_U[:-1]).sum()) + 1
    owners = int((trajectory_U.bincount() > 0).sum())
    if runs > max(owners, 1):
        raise ValueError(
            f"the items of one owner must stand together; those of {owners} owners came "
            f"in {runs} pieces"
        )
    # A scan by doubling, log2(longest trajectory) vectorized passes. Invariant: returns_U[u] is the
    # discounted sum over the turns u .. u + span - 1 of its trajectory, and decay is gamma**span.
    returns_U = reward_U.double()
    span = 1
    decay = gamma
    while span < len(trajectory_U):
        same_trajectory = trajectory_U[span:] == trajectory_U[:-span]
        if not same_trajectory.any():
            break
        later = torch.where(same_trajectory, decay * returns_U[span:], 0.0)
        returns_U = torch.cat([returns_U[:-span] + later, returns_U[-span:]])
        span = 2 * span
        decay = decay * decay
    return returns_U


def gae(
    reward_X: Tensor,
    value_X: Tensor,
    owner_X: Tensor,
    bootstrap_N: Tensor,
    *,
    gamma: float,
    lam: float,
) -> Tensor:
    """Generalized advantage estimation (arXiv:1506.02438, eq. 16) over items X: action tokens or
    turns.

    The items of one trajectory (`owner_X`) are contiguous and in chronological order. Observation
    tokens are not items: the trace skips them without a discount. `bootstrap_N` is the value after
    a trajectory's last item: 0 if the environment terminated the episode, the critic's estimate if
    only the horizon truncated it.
    """
    is_last_X = torch.ones_like(owner_X, dtype=torch.bool)
    is_last_X[:-1] = owner_X[1:] != owner_X[:-1]
    double_X = value_X.double()
    next_value_X = torch.where(is_last_X, bootstrap_N.double()[owner_X], double_X.roll(-1))
    # The temporal-difference error: delta_t = r_t + gamma * V(s_{t+1}) - V(s_t).
    delta_X = reward_X.double() + gamma * next_value_X - double_X
    return returns_to_go(delta_X, owner_X, gamma=gamma * lam).float()


def turn_relative(
    reward_U: Tensor, trajectory_U: Tensor, group_N: Tensor, *, gamma: float
) -> Tensor:
    """RLOO (arXiv:2402.14740) per turn: the return of a turn minus the mean return of the same turn
    in the other trajectories of its group.

    If no other trajectory is that long, the baseline is the mean of the others' whole returns. A
    group of one gets 0, and trajectories without turns do not count. No baseline depends on the
    trajectory it is subtracted from, so the policy gradient stays unbiased. Turns are in
    chronological order, trajectory by trajectory.
    """
    returns_U = returns_to_go(reward_U, trajectory_U, gamma=gamma)
    turns = len(trajectory_U)
    index_U = torch.arange(turns, device=trajectory_U.device)
    is_first_U = torch.ones_like(trajectory_U, dtype=torch.bool)
    is_first_U[1:] = trajectory_U[1:] != trajectory_U[:-1]
    first_U = torch.where(is_first_U, index_U, 0).cummax(0).values
    # One cell per group and turn number; turn numbers are below `turns`, so cells do not collide.
    cell_U = group_N[trajectory_U] * turns + index_U - first_U
    baseline_U, others_U = _mean_in_cell_of_others(returns_U, cell_U)
    # Every trajectory has a first turn, whose return is the whole one: the baseline of a
    # trajectory's first turn is the mean of the others' whole returns.
    baseline_U = torch.where(others_U > 0, baseline_U, baseline_U[first_U])
    difference_U = returns_U - baseline_U
    has_no_signal_U = (others_U[first_U] == 0) | _is_rounding(difference_U, baseline_U)
    return torch.where(has_no_signal_U, 0.0, difference_U).float()


def anchored(returns_U: Tensor, anchor_U: Tensor, *, scale: bool) -> Tensor:
    """GiGPO's step advantage (arXiv:2505.10978, eq. 7): the return of a turn relative to the turns
    of the group that started from the same state (the anchor).
    """
    return group_relative(returns_U, anchor_U, scale=scale)


def mean_of_others(x_N: Tensor, group_N: Tensor) -> Tensor:
    """The mean over the other trajectories of each one's group; 0 in a group of one."""
    size_N = group_N.bincount()[group_N]
    sum_N = group_mean(x_N, group_N) * size_N
    return (sum_N - x_N) / (size_N - 1).clamp(min=1) * (size_N > 1)


def _all_equal(reward_N: Tensor, group_N: Tensor) -> Tensor:
    """Whether all rewards of a trajectory's group are equal up to rounding."""
    groups = int(group_N.max()) + 1
    double_N = reward_N.double()
    highest_G = torch.full((groups,), -torch.inf, dtype=double_N.dtype, device=double_N.device)
    lowest_G = -highest_G
    highest_G = highest_G.scatter_reduce(0, group_N, double_N, "amax")
    lowest_G = lowest_G.scatter_reduce(0, group_N, double_N, "amin")
    largest_G = torch.maximum(highest_G.abs(), lowest_G.abs())
    return _is_rounding(highest_G - lowest_G, largest_G)[group_N]


def _is_rounding(difference: Tensor, size: Tensor) -> Tensor:
    """Whether a difference of numbers of this size is no more than rounding."""
    return difference.abs() <= RELATIVE * size.abs() + ABSOLUTE


def _mean_in_cell_of_others(x_U: Tensor, cell_U: Tensor) -> tuple[Tensor, Tensor]:
    """The mean of `x_U` over the other turns in the same cell, and how many they are."""
    cells, cell_U = torch.unique(cell_U, return_inverse=True)
    size_U = cell_U.bincount(minlength=len(cells))[cell_U]
    sums = torch.zeros(len(cells), dtype=x_U.dtype, device=x_U.device).index_add_(0, cell_U, x_U)
    return (sums[cell_U] - x_U) / (size_U - 1).clamp(min=1), size_U - 1
