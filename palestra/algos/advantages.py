"""Credit: from rewards to advantages. Pure functions; shapes in the names.

N: trajectories. U: turns. C: chosen tokens. X: either of the two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from palestra.core.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor


RELATIVE, ABSOLUTE = 1e-6, 1e-9
"""Credits that differ by no more are equal: they are sums of floats, and the order of a sum must
not pass for a signal.
"""


def group_mean(x_N: Tensor, group_N: Tensor) -> Tensor:
    """The mean of each trajectory's group."""
    groups = int(group_N.max()) + 1
    sums_G = torch.zeros(groups, dtype=x_N.dtype, device=x_N.device).index_add_(0, group_N, x_N)
    return (sums_G / group_N.bincount(minlength=groups).clamp(min=1))[group_N]


def group_relative(
    reward_N: Tensor, group_N: Tensor, *, scale: bool = True, eps: float = 1e-6
) -> Tensor:
    """GRPO (arXiv:2402.03300): each reward against its group's mean, in standard deviations if
    `scale`.

    Without `scale` it is the advantage of Dr. GRPO (arXiv:2503.20783). A group of one has no signal
    and gets 0.
    """
    exact_N = reward_N.double()
    centered_N = exact_N - group_mean(exact_N, group_N)
    centered_N = torch.where(_all_equal(reward_N, group_N), 0.0, centered_N)
    if not scale:
        return centered_N.float()
    size_N = group_N.bincount()[group_N]
    variance_N = group_mean(centered_N.square(), group_N) * size_N / (size_N - 1).clamp(min=1)
    return (centered_N / (variance_N.sqrt() + eps)).float()


def leave_one_out(reward_N: Tensor, group_N: Tensor) -> Tensor:
    """RLOO (arXiv:2402.14740): each reward against the mean of the others of its group.

    A group of one gets 0.
    """
    exact_N = reward_N.double()
    size_N = group_N.bincount()[group_N]
    centered_N = (exact_N - group_mean(exact_N, group_N)) * size_N / (size_N - 1).clamp(min=1)
    return torch.where(_all_equal(reward_N, group_N), 0.0, centered_N).float()


def whiten(x_C: Tensor, eps: float = 1e-8) -> Tensor:
    """With mean 0 and standard deviation 1 over all chosen tokens, as REINFORCE++
    (arXiv:2501.03262) has its advantages.
    """
    if len(x_C) < 2 or _is_rounding(x_C.max() - x_C.min(), x_C.abs().max()):
        return torch.zeros_like(x_C)
    exact_C = x_C.double()
    return ((exact_C - exact_C.mean()) / (exact_C.std() + eps)).to(x_C.dtype)


def against_baseline(reward_N: Tensor, baseline_N: Tensor) -> Tensor:
    """ReMax (arXiv:2310.10505): each reward against that of the greedy episode of the same task."""
    difference_N = reward_N.double() - baseline_N.double()
    return torch.where(_is_rounding(difference_N, baseline_N), 0.0, difference_N).float()


def returns_to_go(reward_U: Tensor, trajectory_U: Tensor, *, gamma: float) -> Tensor:
    """What each turn and those after it bring, discounted by `gamma` a turn.

    Turns stand in the order of play, in float64.
    """
    runs, owners = (
        int((trajectory_U[1:] != trajectory_U[:-1]).sum()) + 1,
        int((trajectory_U.bincount() > 0).sum()),
    )
    if runs > max(owners, 1):
        raise ValueError(
            f"the items of one owner must stand together; those of {owners} owners came "
            f"in {runs} pieces"
        )
    returns_U, seen, decay = reward_U.double(), 1, gamma
    while seen < len(trajectory_U):  # each pass doubles how many turns every turn has seen
        together = trajectory_U[seen:] == trajectory_U[:-seen]
        if not together.any():
            break
        later = torch.where(together, decay * returns_U[seen:], 0.0)
        returns_U = torch.cat([returns_U[:-seen] + later, returns_U[-seen:]])
        seen, decay = 2 * seen, decay * decay
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
    """Generalized advantage estimation (arXiv:1506.02438, eq. 16) over items X: chosen tokens, or
    turns.

    The items of one owner stand together, in the order of play. Observation tokens are no items:
    the trace passes over them undiscounted. `bootstrap_N` is the value after an owner's last item:
    0 where the episode ended by itself, the critic's estimate where only the horizon ended it.
    """
    is_last_X = torch.ones_like(owner_X, dtype=torch.bool)
    is_last_X[:-1] = owner_X[1:] != owner_X[:-1]
    exact_X = value_X.double()
    next_X = torch.where(is_last_X, bootstrap_N.double()[owner_X], exact_X.roll(-1))
    surprise_X = reward_X.double() + gamma * next_X - exact_X
    return returns_to_go(surprise_X, owner_X, gamma=gamma * lam).float()


def turn_relative(
    reward_U: Tensor, trajectory_U: Tensor, group_N: Tensor, *, gamma: float
) -> Tensor:
    """RLOO (arXiv:2402.14740) turn by turn: what followed from a turn against what followed from
    the same turn in the others of its group.

    Where no other came that far, against the mean of the others' whole returns. A group of one gets
    0, and trajectories without turns are no part of any. No baseline depends on the trajectory it
    is taken off, so the policy gradient stays unbiased. Turns stand trajectory by trajectory, in
    the order of play.
    """
    returns_U = returns_to_go(reward_U, trajectory_U, gamma=gamma)
    place_U = torch.arange(len(trajectory_U), device=trajectory_U.device)
    is_first_U = torch.ones_like(trajectory_U, dtype=torch.bool)
    is_first_U[1:] = trajectory_U[1:] != trajectory_U[:-1]
    first_U = torch.where(is_first_U, place_U, 0).cummax(0).values
    baseline_U, others_U = _mean_of_others(
        returns_U, group_N[trajectory_U] * len(trajectory_U) + place_U - first_U
    )
    # every trajectory has a first turn, so what a trajectory's first turn is held against is the
    # mean of the others' whole returns
    baseline_U = torch.where(others_U > 0, baseline_U, baseline_U[first_U])
    difference_U = returns_U - baseline_U
    is_alike_U = (others_U[first_U] == 0) | _is_rounding(difference_U, baseline_U)
    return torch.where(is_alike_U, 0.0, difference_U).float()


def anchored(returns_U: Tensor, anchor_U: Tensor, *, scale: bool) -> Tensor:
    """GiGPO's step credit (arXiv:2505.10978, eq.

    7): what followed from a turn against what followed from the same place in others.
    """
    return group_relative(returns_U, anchor_U, scale=scale)


def mean_of_others(x_N: Tensor, group_N: Tensor) -> Tensor:
    """The mean over the others of each trajectory's group; 0 in a group of one."""
    size_N = group_N.bincount()[group_N]
    sum_N = group_mean(x_N, group_N) * size_N
    return (sum_N - x_N) / (size_N - 1).clamp(min=1) * (size_N > 1)


def _all_equal(reward_N: Tensor, group_N: Tensor) -> Tensor:
    """Whether each trajectory's group has but one reward."""
    groups = int(group_N.max()) + 1
    exact_N = reward_N.double()
    highest_G = torch.full((groups,), -torch.inf, dtype=exact_N.dtype, device=exact_N.device)
    lowest_G = -highest_G
    highest_G = highest_G.scatter_reduce(0, group_N, exact_N, "amax")
    lowest_G = lowest_G.scatter_reduce(0, group_N, exact_N, "amin")
    largest_G = torch.maximum(highest_G.abs(), lowest_G.abs())
    return _is_rounding(highest_G - lowest_G, largest_G)[group_N]


def _is_rounding(difference: Tensor, size: Tensor) -> Tensor:
    return difference.abs() <= RELATIVE * size.abs() + ABSOLUTE


def _mean_of_others(x_U: Tensor, cell_U: Tensor) -> tuple[Tensor, Tensor]:
    """The mean of the others that share one's cell, and how many they are."""
    cells, cell_U = torch.unique(cell_U, return_inverse=True)
    size_U = cell_U.bincount(minlength=len(cells))[cell_U]
    sum_U = torch.zeros(len(cells), dtype=x_U.dtype, device=x_U.device).index_add_(0, cell_U, x_U)[
        cell_U
    ]
    return (sum_U - x_U) / (size_U - 1).clamp(min=1), size_U - 1
