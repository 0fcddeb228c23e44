"""How trajectories become tensors, by hand."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from palestra.algos.batch import pack
from palestra.algos.grpo import GRPO
from palestra.core.types import Stop
from palestra.models.attention import SharedPrefixes
from tests.support.batches import trajectory


def test_pack_by_hand():
    one = trajectory(("see", [1, 2]), ("say", [3, 4]), ("see", [5]), ("say", [6]), reward=1.0)
    two = trajectory(("see", [7]), ("say", [8]), reward=0.5)
    batch = pack([[one], [two]])
    assert batch.ids_T.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert batch.positions_T.tolist() == [0, 1, 2, 3, 4, 5, 0, 1]
    assert batch.action_mask_T.int().tolist() == [0, 0, 1, 1, 0, 1, 0, 1]
    assert batch.trajectory_C.tolist() == [0, 0, 0, 1]
    assert batch.turn_C.tolist() == [
        0,
        0,
        1,
        2,
    ]  # the second trajectory's only turn is the third of all
    assert batch.reward_U.tolist() == [0.0, 1.0, 0.5]
    assert batch.trajectory_U.tolist() == [0, 0, 1]
    assert batch.anchor_U.tolist() == [0, 0, 1]  # all observations are "", but groups are apart
    assert torch.allclose(batch.sampled_logp_C, torch.tensor([-0.1, -0.2, -0.1, -0.1]))
    assert batch.reward_N.tolist() == [1.0, 0.5]
    assert batch.group_N.tolist() == [0, 1]


def test_a_trajectory_that_ends_with_observation_tokens_is_credited_all_the_same():
    """Where the reward is written on the last token and the last token is not the policy's, success
    and failure look alike.
    """
    won = trajectory(("see", [1]), ("say", [2, 3]), ("see", [4, 5, 6]), reward=1.0)
    lost = trajectory(("see", [1]), ("say", [2, 3]), ("see", [4, 5, 6]), reward=0.0)
    batch = pack([[won, lost]])
    # mean .5, not scaled: +.5 on both tokens of the winner, -.5 on both of the loser
    assert GRPO(scale=False).advantages(batch).tolist() == [0.5, 0.5, -0.5, -0.5]
    assert (
        batch.action_mask_T.int().tolist() == [0, 1, 1] * 2
    )  # what follows the last chosen token is left out


def test_take_split_and_rows_keep_tokens_with_their_owners():
    batch = pack(
        [
            [
                trajectory(("see", [10 * i]), ("say", [10 * i + 1] * (i + 1)), reward=float(i))
                for i in range(4)
            ]
        ]
    )
    # lengths 2, 3, 4, 5: rows of at most 6 tokens are {0, 1}, {2}, {3}
    rows = list(batch.microbatches(6))
    assert [row.lengths_S.tolist() for row in rows] == [[2, 3], [4], [5]]
    assert [row.trajectory_C.tolist() for row in rows] == [[0, 1, 1], [2, 2, 2], [3, 3, 3, 3]]
    halves = list(batch.split(2, torch.Generator().manual_seed(0)))
    order = torch.randperm(4, generator=torch.Generator().manual_seed(0)).tolist()
    parts = [
        sorted(order[:2]),
        sorted(order[2:]),
    ]  # drawn at random, and within a part in the order of play
    assert [half.trajectory_S.tolist() for half in halves] == parts
    assert [half.ids_T.tolist() for half in halves] == [
        [token for i in part for token in (10 * i, *[10 * i + 1] * (i + 1))] for part in parts
    ]
    assert halves[0].trajectory_C.tolist() == [i for i in parts[0] for _ in range(i + 1)]


def test_what_segments_begin_with_alike_is_computed_once():
    opening = list(range(100, 120))
    segments = [[*opening, 1, 2], [*opening, 1, 3, 4], [*opening[:17], 5], [6, 7]]
    batch = pack([[trajectory(("see", ids[:-1]), ("say", ids[-1:])) for ids in segments]])
    shared = SharedPrefixes.of(batch.lengths_S.tolist(), batch.in_common_S, batch.ids_T.device)
    # lengths 22, 23, 18, 2: the second goes on after 21 tokens of the first, the third after 17,
    # the fourth has nothing in common
    assert batch.in_common_S == [0, 21, 17, 0]
    assert shared.new_S == [22, 2, 1, 2]
    assert batch.ids_T[shared.kept_R].tolist() == [*segments[0], 3, 4, 5, 6, 7]
    assert batch.ids_T[shared.kept_R][shared.index_T].tolist() == [
        token for ids in segments for token in ids
    ]
    assert shared.index_T.tolist() == [*range(22), *range(21), 22, 23, *range(17), 24, 25, 26]
    # rows of 25 tokens to compute: the first three need 22 + 2 + 1
    assert [row.lengths_S.tolist() for row in batch.microbatches(25)] == [[22, 23, 18], [2]]
    # and of 23: a row that begins with the second computes all of it
    assert [row.lengths_S.tolist() for row in batch.microbatches(23)] == [[22], [23], [18, 2]]
    assert list(batch.take(torch.tensor([], dtype=torch.long)).microbatches(23)) == []


@given(st.lists(st.lists(st.integers(0, 1), min_size=2, max_size=60), min_size=1, max_size=6))
def test_sharing_loses_no_token(segments):
    batch = pack([[trajectory(("see", ids[:-1]), ("say", ids[-1:])) for ids in segments]])
    shared = SharedPrefixes.of(batch.lengths_S.tolist(), batch.in_common_S, batch.ids_T.device)
    assert batch.ids_T[shared.kept_R][shared.index_T].tolist() == batch.ids_T.tolist()
    assert batch.positions_T[shared.kept_R][shared.index_T].tolist() == batch.positions_T.tolist()
    assert sum(shared.new_S) == len(shared.kept_R)
    assert min(shared.new_S) >= 1


def test_units_stay_whole():
    pairs = pack(
        [
            [trajectory(("see", [i]), ("say", [2] * i)), trajectory(("see", [i]), ("say", [3]))]
            for i in (1, 2, 3)
        ]
    )
    # lengths 2 2 | 3 2 | 4 2: whole pairs have 4, 5 and 6 tokens
    assert [row.lengths_S.tolist() for row in pairs.microbatches(9, "group")] == [
        [2, 2, 3, 2],
        [4, 2],
    ]
    assert [row.lengths_S.tolist() for row in pairs.microbatches(1, "group")] == [
        [2, 2],
        [3, 2],
        [4, 2],
    ]  # one that is too long stays whole
    for part in pairs.split(2, torch.Generator().manual_seed(1), "group"):
        assert (
            sorted(part.trajectory_S.tolist()) == part.trajectory_S.tolist()
            or len(part.lengths_S) == 4
        )
        assert all(
            part.group_N[part.trajectory_S].tolist().count(number) == 2
            for number in part.group_N[part.trajectory_S].tolist()
        )


def test_a_unit_has_a_signal_where_any_of_its_tokens_has():
    batch = pack(
        [
            [trajectory(("see", [1]), ("say", [2])), trajectory(("see", [1]), ("say", [3]))],
            [trajectory(("see", [1]), ("say", [4]))],
        ]
    )
    batch = batch.with_(advantage_C=torch.tensor([0.0, 0.5, 0.0]))
    assert batch.with_signal().trajectory_S.tolist() == [1]
    assert batch.with_signal("group").trajectory_S.tolist() == [0, 1]


def test_what_comes_after_the_last_chosen_token_is_for_a_critic_only():
    cut = trajectory(("see", [1]), ("say", [2, 3]), ("see", [4, 5, 6]), stop=Stop.HORIZON)
    assert pack([[cut]]).ids_T.tolist() == [1, 2, 3]
    batch = pack([[cut]], keep_tail=True)
    assert (batch.ids_T.tolist(), batch.truncated_N.tolist()) == ([1, 2, 3, 4, 5, 6], [True])
