"""Numbers worked out by hand; the arithmetic is in the comments."""

import pytest
import torch

from palestra.algos.advantages import group_mean, group_relative, leave_one_out, whiten


def test_group_mean():
    # groups {0: 1, 3}, {1: 5}: means 2 and 5
    assert group_mean(torch.tensor([1.0, 3.0, 5.0]), torch.tensor([0, 0, 1])).tolist() == [2.0, 2.0, 5.0]


def test_group_relative_in_standard_deviations():
    # mean 0.25, deviations .75 -.25 -.25 -.25, sum of squares .5625 + 3 * .0625 = .75, std sqrt(.75 / 3) = 0.5
    advantages = group_relative(torch.tensor([1.0, 0.0, 0.0, 0.0]), torch.zeros(4, dtype=torch.long), eps=0.0)
    assert advantages.tolist() == pytest.approx([1.5, -0.5, -0.5, -0.5])


def test_group_relative_without_scaling():
    # group 0: mean 0.5 -> +-0.5; group 1: mean (1 + 0 + 0.5) / 3 = 0.5 -> 0.5, -0.5, 0
    rewards, groups = torch.tensor([1.0, 0.0, 1.0, 0.0, 0.5]), torch.tensor([0, 0, 1, 1, 1])
    assert group_relative(rewards, groups, scale=False).tolist() == pytest.approx([0.5, -0.5, 0.5, -0.5, 0.0])


def test_groups_are_judged_apart_and_in_any_order():
    # interleaved: group 0 holds 4, 2 (mean 3, std sqrt(2)); group 1 holds 10, 20 (mean 15, std sqrt(50))
    # 1/sqrt(2) = 0.7071 and -5/sqrt(50) = -0.7071
    advantages = group_relative(torch.tensor([4.0, 10.0, 2.0, 20.0]), torch.tensor([0, 1, 0, 1]), eps=0.0)
    assert advantages.tolist() == pytest.approx([0.70710678, -0.70710678, -0.70710678, 0.70710678])


def test_a_group_of_equals_and_a_group_of_one_have_no_signal():
    advantages = group_relative(torch.tensor([1.0, 1.0, 0.7]), torch.tensor([0, 0, 1]))
    assert advantages.tolist() == [0.0, 0.0, 0.0]
    for reward in (0.7, 0.9, 1 / 3):  # whose mean over eight is not exactly itself
        assert group_relative(torch.full((8,), reward), torch.zeros(8, dtype=torch.long)).tolist() == [0.0] * 8


def test_leave_one_out():
    # group 0: others' means (0+2)/2 = 1, (1+2)/2 = 1.5, (1+0)/2 = 0.5; group 1 has nobody to compare with
    advantages = leave_one_out(torch.tensor([1.0, 0.0, 2.0, 5.0]), torch.tensor([0, 0, 0, 1]))
    assert advantages.tolist() == pytest.approx([0.0, -1.5, 1.5, 0.0])


def test_whiten():
    # 1, 2, 3: mean 2, deviation 1
    assert whiten(torch.tensor([1.0, 2.0, 3.0])).tolist() == pytest.approx([-1.0, 0.0, 1.0])
    assert whiten(torch.tensor([4.0])).tolist() == [0.0]
