"""How trajectories become tensors, by hand."""

import torch

from palestra.algos.grpo import GRPO
from palestra.batch import pack
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
    assert batch.chosen_T.int().tolist() == [0, 1, 1, 0, 0, 0] * 2


def test_take_split_and_rows_keep_tokens_with_their_owners():
    batch = pack([[trajectory(("see", [10 * i]), ("say", [10 * i + 1] * (i + 1)), reward=float(i)) for i in range(4)]])
    # lengths 2, 3, 4, 5: rows of at most 6 tokens are {0, 1}, {2}, {3}
    rows = list(batch.rows(6))
    assert [row.lengths_S.tolist() for row in rows] == [[2, 3], [4], [5]]
    assert [row.owner_C.tolist() for row in rows] == [[0, 1, 1], [2, 2, 2], [3, 3, 3, 3]]
    halves = list(batch.split(2, torch.tensor([3, 0, 2, 1])))
    assert [half.owner_S.tolist() for half in halves] == [[3, 0], [2, 1]]
    assert halves[0].ids_T.tolist() == [30, 31, 31, 31, 31, 0, 1]
    assert halves[0].owner_C.tolist() == [3, 3, 3, 3, 0]
