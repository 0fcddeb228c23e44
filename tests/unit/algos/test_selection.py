"""Which trajectories are learned from: those that earned enough, and pairs of which one earned
more.
"""

from dataclasses import replace

from palestra.algos.rft import RFT
from palestra.algos.selection import pairs, solved
from palestra.core.types import Group, Stop, Task
from tests.support.batches import trajectory


def earned(reward, ids, *, task="t", name="id", stop=Stop.DONE):
    return replace(
        trajectory(("see", [1]), ("say", ids), reward=reward, task=task, stop=stop), id=name
    )


def test_solved():
    good, poor = earned(0.7, [3]), earned(0.69, [4])
    silent = replace(trajectory(("see", [1])), success=True)
    assert solved([good, poor, silent, earned(1.0, [5], stop=Stop.TIMEOUT)], min_reward=0.7) == [
        good
    ]
    assert solved([silent], min_reward=0.0) == []


def test_rewards_are_compared_beyond_rounding():
    tenths = replace(earned(0.1, [3]), turns=earned(0.1, [3]).turns * 10)
    assert tenths.reward < 1.0  # 0.9999999999999999
    assert solved([tenths], min_reward=1.0) == [tenths]
    assert 0.3 - 0.1 < 0.2  # 0.19999999999999998
    assert (
        len(pairs([earned(0.3, [3]), earned(0.1, [4])], min_gap=0.2, min_reward=0.0, per_task=1))
        == 1
    )


def test_the_best_are_found_beyond_rounding():
    """Ten times 0.1 is 0.9999999999999999: as good as 1, and in ten turns the slower way."""
    tenths = replace(earned(0.1, [3]), turns=earned(0.1, [3]).turns * 10)
    assert RFT(min_reward=1.0).learnable(Group(tenths.task, [tenths])) == [tenths]
    parts = replace(earned(0.1, [3]), turns=earned(0.1, [3]).turns * 3)
    whole = earned(0.3, [4])
    assert parts.reward > whole.reward  # 0.30000000000000004
    assert RFT(min_reward=0.1).learnable(Group(whole.task, [parts, whole])) == [whole]


def test_a_group_in_which_nothing_was_good_enough_can_be_resampled():
    """Unlike those of algorithms to which every group teaches something: RFT has no use for it."""
    algo = RFT(min_reward=0.5)
    poor, good = earned(0.4, [3]), earned(0.6, [4])
    assert algo.may_lack_signal
    assert not algo.has_signal(Group(poor.task, [poor, poor]))
    assert algo.has_signal(Group(poor.task, [poor, good]))


def names(groups):
    return [tuple(one.id for one in group.trajectories) for group in groups]


def test_pairs_with_the_largest_gaps_first():
    # rewards a 1.0, b 0.8, c 0.5, d 0.0; chosen must have 0.7, gaps must be 0.3:
    # a-d 1.0, b-d 0.8, a-c 0.5, b-c 0.3 (a-b is only 0.2; c and d are never chosen)
    # a-d is taken; b-d would reject d twice, a-c would choose a twice; b-c remains
    played = [
        earned(r, [i], name=n)
        for i, (n, r) in enumerate({"c": 0.5, "a": 1.0, "d": 0.0, "b": 0.8}.items())
    ]
    groups = pairs(played, min_gap=0.3, min_reward=0.7, per_task=9)
    assert names(groups) == [("a", "d"), ("b", "c")]
    assert all(group.task == Task("env", "train", "t") for group in groups)
    assert names(pairs(played, min_gap=0.3, min_reward=0.7, per_task=1)) == [("a", "d")]
    assert names(pairs(played, min_gap=0.3, min_reward=0.9, per_task=9)) == [("a", "d")]
    assert names(pairs(played, min_gap=0.31, min_reward=0.7, per_task=9)) == [("a", "d")]
    assert pairs(played, min_gap=1.1, min_reward=0.7, per_task=9) == []


def test_one_trajectory_may_be_chosen_once_and_rejected_once():
    # a 1.0, b 0.8, c 0.0; gap 0.1: a-c 1.0 is taken; b-c 0.8 would reject c twice; a-b 0.2 would
    # choose a twice
    a, b, c = earned(1.0, [3], name="a"), earned(0.8, [4], name="b"), earned(0.0, [5], name="c")
    assert names(pairs([a, b, c], min_gap=0.1, min_reward=0.7, per_task=9)) == [("a", "c")]
    # d 0.0 as well: a-c 1.0, b-d 0.8; then nobody who may be chosen is left
    d = earned(0.0, [6], name="d")
    assert names(pairs([d, b, c, a], min_gap=0.1, min_reward=0.7, per_task=9)) == [
        ("a", "c"),
        ("b", "d"),
    ]
    # a 1.0, b 0.9, e 0.0 with the same tokens as a: a-e is no pair; b-e 0.9, then a-b 0.1: b is
    # chosen in one and rejected in the other
    b, e = earned(0.9, [4], name="b"), earned(0.0, [3], name="e")
    assert names(pairs([a, b, e], min_gap=0.1, min_reward=0.7, per_task=9)) == [
        ("b", "e"),
        ("a", "b"),
    ]


def test_pairs_stay_within_a_task_and_tasks_keep_their_order():
    good = [earned(1.0, [3], task=task, name=f"{task}+") for task in ("z", "a", "m")]
    bad = [earned(0.0, [4], task=task, name=f"{task}-") for task in ("a", "z")]
    assert names(pairs([*good, *bad], min_gap=0.5, min_reward=0.7, per_task=2)) == [
        ("z+", "z-"),
        ("a+", "a-"),
    ]
    elsewhere = replace(bad[0], task=Task("other", "train", "m"))
    assert pairs([good[2], elsewhere], min_gap=0.5, min_reward=0.7, per_task=2) == []


def test_equal_gaps_are_in_the_order_of_ids_whatever_the_input_order():
    played = [
        earned(r, [i], name=n)
        for i, (n, r) in enumerate([("b", 1.0), ("a", 1.0), ("y", 0.0), ("x", 0.0)])
    ]
    expected = [("a", "x"), ("b", "y")]
    assert names(pairs(played, min_gap=0.1, min_reward=0.5, per_task=9)) == expected
    assert names(pairs(played[::-1], min_gap=0.1, min_reward=0.5, per_task=9)) == expected


def test_what_never_makes_a_pair():
    good, bad = earned(1.0, [3]), earned(0.0, [4])
    assert len(pairs([good, bad], min_gap=0.1, min_reward=0.5, per_task=1)) == 1
    assert (
        pairs([good, earned(0.0, [3])], min_gap=0.1, min_reward=0.5, per_task=1) == []
    )  # the same tokens
    assert (
        pairs([good, replace(bad, stop=Stop.ENV_FAULT)], min_gap=0.1, min_reward=0.5, per_task=1)
        == []
    )
    assert pairs([good, trajectory(("see", [1]))], min_gap=0.1, min_reward=0.5, per_task=1) == []
    assert (
        pairs([good, earned(1.0, [4])], min_gap=0.0, min_reward=0.5, per_task=1) == []
    )  # neither is better


def test_episodes_of_two_runs_may_share_their_ids():
    played = [earned(r, [i], name="000001-0000") for i, r in enumerate([1.0, 1.0, 0.0, 0.0])]
    groups = pairs(played, min_gap=0.1, min_reward=0.5, per_task=9)
    assert [[one.segments[0].ids[1] for one in group.trajectories] for group in groups] == [
        [0, 2],
        [1, 3],
    ]


def test_a_training_task_is_not_compared_with_a_held_out_one():
    better, worse = earned(1.0, [1]), earned(0.0, [2])
    held_out = replace(worse, task=replace(worse.task, split="test"))
    assert len(pairs([better, worse], min_gap=0.1, min_reward=0.5, per_task=4)) == 1
    assert pairs([better, held_out], min_gap=0.1, min_reward=0.5, per_task=4) == []


def test_a_greedy_episode_that_others_were_compared_with_is_not_learned_from():
    assert solved([replace(earned(1.0, [1]), is_baseline=True)], min_reward=0.5) == []
