"""Numbers worked out by hand; the arithmetic is in the comments."""

from dataclasses import replace

import pytest
import torch

from palestra.algos.advantages import (
    against_baseline,
    anchored,
    group_mean,
    group_relative,
    leave_one_out,
    returns_to_go,
    whiten,
)
from palestra.algos.batch import pack
from palestra.algos.gigpo import GiGPO
from tests.support.batches import trajectory


def test_group_mean():
    # groups {0: 1, 3}, {1: 5}: means 2 and 5
    assert group_mean(torch.tensor([1.0, 3.0, 5.0]), torch.tensor([0, 0, 1])).tolist() == [
        2.0,
        2.0,
        5.0,
    ]


def test_group_relative_in_standard_deviations():
    # mean 0.25, deviations .75 -.25 -.25 -.25, sum of squares .5625 + 3 * .0625 = .75, std sqrt(.75
    # / 3) = 0.5
    advantages = group_relative(
        torch.tensor([1.0, 0.0, 0.0, 0.0]), torch.zeros(4, dtype=torch.long), eps=0.0
    )
    assert advantages.tolist() == pytest.approx([1.5, -0.5, -0.5, -0.5])


def test_group_relative_without_scaling():
    # group 0: mean 0.5 -> +-0.5; group 1: mean (1 + 0 + 0.5) / 3 = 0.5 -> 0.5, -0.5, 0
    rewards, groups = torch.tensor([1.0, 0.0, 1.0, 0.0, 0.5]), torch.tensor([0, 0, 1, 1, 1])
    assert group_relative(rewards, groups, scale=False).tolist() == pytest.approx(
        [0.5, -0.5, 0.5, -0.5, 0.0]
    )


def test_groups_are_judged_apart_and_in_any_order():
    # interleaved: group 0 holds 4, 2 (mean 3, std sqrt(2)); group 1 holds 10, 20 (mean 15, std
    # sqrt(50))
    # 1/sqrt(2) = 0.7071 and -5/sqrt(50) = -0.7071
    advantages = group_relative(
        torch.tensor([4.0, 10.0, 2.0, 20.0]), torch.tensor([0, 1, 0, 1]), eps=0.0
    )
    assert advantages.tolist() == pytest.approx([0.70710678, -0.70710678, -0.70710678, 0.70710678])


def test_a_group_of_equals_and_a_group_of_one_have_no_signal():
    advantages = group_relative(torch.tensor([1.0, 1.0, 0.7]), torch.tensor([0, 0, 1]))
    assert advantages.tolist() == [0.0, 0.0, 0.0]
    for reward in (0.7, 0.9, 1 / 3):  # whose mean over eight is not exactly itself
        assert (
            group_relative(torch.full((8,), reward), torch.zeros(8, dtype=torch.long)).tolist()
            == [0.0] * 8
        )


def test_rewards_that_differ_by_their_last_bit_have_no_signal():
    """Divided by their own deviation they would be worth as much as 1 and 0: +-0.7071."""
    next_after = torch.nextafter(torch.tensor(0.3), torch.tensor(1.0)).item()
    one_bit, group_N = torch.tensor([0.3, next_after]), torch.zeros(2, dtype=torch.long)
    assert one_bit[0] != one_bit[1]
    more = torch.tensor([0.3, 0.30001])
    for rewards, is_signal in ((one_bit, False), (more, True)):
        for advantages in (
            group_relative(rewards, group_N),
            group_relative(rewards, group_N, scale=False),
            leave_one_out(rewards, group_N),
            against_baseline(rewards, torch.tensor([0.3, 0.3])),
            whiten(rewards),
        ):
            assert bool((advantages != 0).any()) is is_signal


def test_leave_one_out():
    # group 0: others' means (0+2)/2 = 1, (1+2)/2 = 1.5, (1+0)/2 = 0.5; group 1 has nobody to
    # compare with
    advantages = leave_one_out(torch.tensor([1.0, 0.0, 2.0, 5.0]), torch.tensor([0, 0, 0, 1]))
    assert advantages.tolist() == pytest.approx([0.0, -1.5, 1.5, 0.0])


def test_whiten():
    # 1, 2, 3: mean 2, deviation 1
    assert whiten(torch.tensor([1.0, 2.0, 3.0])).tolist() == pytest.approx([-1.0, 0.0, 1.0])
    assert whiten(torch.tensor([4.0])).tolist() == [0.0]


def test_returns_to_go():
    # trajectory 0: 0, 0, 1 at gamma 0.5: 0.25, 0.5, 1; trajectory 1: 2, 1: 2 + 0.5 * 1 = 2.5, 1
    rewards, owners = torch.tensor([0.0, 0.0, 1.0, 2.0, 1.0]), torch.tensor([0, 0, 0, 1, 1])
    assert returns_to_go(rewards, owners, gamma=0.5).tolist() == [0.25, 0.5, 1.0, 2.5, 1.0]


def test_anchored():
    # place 0 was left with returns 1 and 0: +-0.5; place 1 was seen once: no comparison
    assert anchored(
        torch.tensor([1.0, 0.3, 0.0]), torch.tensor([0, 1, 0]), scale=False
    ).tolist() == [0.5, 0.0, -0.5]


def test_gigpo_credits_turns_besides_trajectories():
    # Both begin at "door". One opens it at once and wins; the other dawdles, comes back to "door",
    # opens it and loses.
    won = trajectory(("see", [1]), ("say", [2]), reward=1.0)
    lost = trajectory(
        ("see", [1]),
        ("say", [3]),
        ("see", [1]),
        ("say", [2]),
        ("see", [1]),
        ("say", [4]),
        reward=0.0,
    )
    won = replace(won, turns=[replace(won.turns[0], observation="door")])
    places = ["door", "wall", "door"]
    lost = replace(
        lost,
        turns=[
            replace(turn, observation=place) for turn, place in zip(lost.turns, places, strict=True)
        ],
    )
    batch = pack([[won, lost]])
    # episodes: +.5, -.5. Turns at "door" return 1, 0, 0: mean 1/3 -> +2/3, -1/3, -1/3; "wall"
    # stands alone: 0
    expected = [0.5 + 2 / 3, -0.5 - 1 / 3, -0.5, -0.5 - 1 / 3]
    assert GiGPO(scale=False).advantages(batch).tolist() == pytest.approx(expected)


def test_whitening_makes_no_signal_of_rounding():
    for value, count in ((0.9, 1000), (0.7, 100_001)):
        assert whiten(torch.full((count,), value)).abs().max() == 0
    # mean 2, deviation sqrt(((-1)^2 + 0 + 1) / 2) = 1
    assert whiten(torch.tensor([1.0, 2.0, 3.0])).tolist() == pytest.approx([-1, 0, 1])
