"""How trajectories become tensors, by hand."""

import torch

from palestra.algos.grpo import GRPO
from palestra.batch import pack
from palestra.types import Stop
from tests.helpers import trajectory


def test_pack_by_hand():
    one = trajectory(("see", [1, 2]), ("say", [3, 4]), ("see", [5]), ("say", [6]), reward=1.0)
    two = trajectory(("see", [7]), ("say", [8]), reward=0.5)
    batch = pack([[one], [two]])
    assert batch.ids_T.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert batch.positions_T.tolist() == [0, 1, 2, 3, 4, 5, 0, 1]
    assert batch.chosen_T.int().tolist() == [0, 0, 1, 1, 0, 1, 0, 1]
    assert batch.owner_C.tolist() == [0, 0, 0, 1]
    assert batch.turn_C.tolist() == [0, 0, 1, 2]  # the second trajectory's only turn is the third of all
    assert batch.reward_U.tolist() == [0.0, 1.0, 0.5]
    assert batch.owner_U.tolist() == [0, 0, 1]
    assert batch.anchor_U.tolist() == [0, 0, 1]  # all observations are "", but groups are apart
    assert torch.allclose(batch.sampled_logp_C, torch.tensor([-0.1, -0.2, -0.1, -0.1]))
    assert batch.reward_N.tolist() == [1.0, 0.5]
    assert batch.group_N.tolist() == [0, 1]


def test_a_trajectory_that_ends_with_observation_tokens_is_credited_all_the_same():
    """Where the reward is written on the last token and the last token is not the policy's, success and failure look alike."""
    won = trajectory(("see", [1]), ("say", [2, 3]), ("see", [4, 5, 6]), reward=1.0)
    lost = trajectory(("see", [1]), ("say", [2, 3]), ("see", [4, 5, 6]), reward=0.0)
    batch = pack([[won, lost]])
    # mean .5, not scaled: +.5 on both tokens of the winner, -.5 on both of the loser
    assert GRPO(scale=False).advantages(batch).tolist() == [0.5, 0.5, -0.5, -0.5]
    assert batch.chosen_T.int().tolist() == [0, 1, 1] * 2  # what follows the last chosen token is left out


def test_take_split_and_rows_keep_tokens_with_their_owners():
    batch = pack([[trajectory(("see", [10 * i]), ("say", [10 * i + 1] * (i + 1)), reward=float(i)) for i in range(4)]])
    # lengths 2, 3, 4, 5: rows of at most 6 tokens are {0, 1}, {2}, {3}
    rows = list(batch.rows(6))
    assert [row.lengths_S.tolist() for row in rows] == [[2, 3], [4], [5]]
    assert [row.owner_C.tolist() for row in rows] == [[0, 1, 1], [2, 2, 2], [3, 3, 3, 3]]
    halves = list(batch.split(2, torch.Generator().manual_seed(0)))
    order = torch.randperm(4, generator=torch.Generator().manual_seed(0)).tolist()
    assert [half.owner_S.tolist() for half in halves] == [order[:2], order[2:]]
    assert [half.ids_T.tolist() for half in halves] == [
        [token for i in half for token in (10 * i, *[10 * i + 1] * (i + 1))] for half in (order[:2], order[2:])
    ]
    assert halves[0].owner_C.tolist() == [i for i in order[:2] for _ in range(i + 1)]


def test_units_stay_whole():
    pairs = pack([[trajectory(("see", [i]), ("say", [2] * i)), trajectory(("see", [i]), ("say", [3]))] for i in (1, 2, 3)])
    # lengths 2 2 | 3 2 | 4 2: whole pairs have 4, 5 and 6 tokens
    assert [row.lengths_S.tolist() for row in pairs.rows(9, "group")] == [[2, 2, 3, 2], [4, 2]]
    assert [row.lengths_S.tolist() for row in pairs.rows(1, "group")] == [[2, 2], [3, 2], [4, 2]]  # one that is too long stays whole
    for part in pairs.split(2, torch.Generator().manual_seed(1), "group"):
        assert sorted(part.owner_S.tolist()) == part.owner_S.tolist() or len(part.lengths_S) == 4
        assert all(part.group_N[part.owner_S].tolist().count(number) == 2 for number in part.group_N[part.owner_S].tolist())


def test_a_unit_has_a_signal_where_any_of_its_tokens_has():
    batch = pack(
        [[trajectory(("see", [1]), ("say", [2])), trajectory(("see", [1]), ("say", [3]))], [trajectory(("see", [1]), ("say", [4]))]]
    )
    batch = batch.with_(advantage_C=torch.tensor([0.0, 0.5, 0.0]))
    assert batch.with_signal().owner_S.tolist() == [1]
    assert batch.with_signal("group").owner_S.tolist() == [0, 1]


def test_what_comes_after_the_last_chosen_token_is_for_a_critic_only():
    cut = trajectory(("see", [1]), ("say", [2, 3]), ("see", [4, 5, 6]), stop=Stop.HORIZON)
    assert pack([[cut]]).ids_T.tolist() == [1, 2, 3]
    batch = pack([[cut]], keep_tail=True)
    assert (batch.ids_T.tolist(), batch.was_cut_N.tolist()) == ([1, 2, 3, 4, 5, 6], [True])
