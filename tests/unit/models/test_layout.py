"""What the workers of an engine have of a weight makes the learner's weight again.

Worked out by hand: rows are named by their numbers.
"""

import pytest
import torch

from palestra.engines.vllm.weight_layout import as_learners, put_together

QKV = {"qkv_proj": ["q_proj", "k_proj", "v_proj"], "gate_up_proj": ["gate_proj", "up_proj"]}


def column(*numbers):
    return torch.tensor([[float(number)] for number in numbers])


def rows(weight):
    return weight[:, 0].int().tolist()


def as_rows(name, shards, worker=0, **wholes):
    """Each part's rows, from shards that are lists of row numbers; `wholes` are the learner's row
    counts.
    """
    shapes = {f"{part}.weight": torch.Size([count, 1]) for part, count in wholes.items()}
    found = as_learners(
        [(f"{name}.weight", [column(*shard) for shard in shards])], QKV, shapes, worker=worker
    )
    return {own.removesuffix(".weight"): rows(weight) for own, weight in found}


def test_rows_one_after_another():
    assert as_rows("up_proj", [[0, 1], [2, 3], [4, 5]], up_proj=6) == {
        "up_proj": [0, 1, 2, 3, 4, 5]
    }


def test_columns_side_by_side():
    whole = torch.arange(12.0).view(3, 4)
    assert torch.equal(put_together([whole[:, :2], whole[:, 2:]], whole.shape, 0), whole)


@pytest.mark.parametrize("shape", [(3,), (3, 4)])
def test_of_copies_each_worker_takes_its_own(shape):
    copies = [torch.full(shape, float(worker)) for worker in range(2)]
    for worker in range(2):
        assert torch.equal(put_together(copies, torch.Size(shape), worker), copies[worker])


def test_parts_that_are_each_shared_out():
    # gate has rows 0-3 and up rows 10-13; each worker has half of both
    found = as_rows("gate_up_proj", [[0, 1, 10, 11], [2, 3, 12, 13]], gate_proj=4, up_proj=4)
    assert found == {"gate_proj": [0, 1, 2, 3], "up_proj": [10, 11, 12, 13]}


def test_as_many_key_heads_as_workers():
    # q: 4 rows, 2 each; k and v: 2 rows, 1 each
    found = as_rows("qkv_proj", [[0, 1, 10, 20], [2, 3, 11, 21]], q_proj=4, k_proj=2, v_proj=2)
    assert found == {"q_proj": [0, 1, 2, 3], "k_proj": [10, 11], "v_proj": [20, 21]}


def test_fewer_key_heads_than_workers():
    # q: 8 rows, 2 each; k and v: two heads of one row, of which workers 0 and 1 have the first and
    # workers 2 and 3 the second.
    # The copies of workers 1 and 3 are made to differ, to see whose are taken: workers 0 and 2 take
    # 10 and 11, the others 15 and 16.
    shards = [[0, 1, 10, 20], [2, 3, 15, 20], [4, 5, 11, 21], [6, 7, 16, 21]]
    for worker in range(4):
        found = as_rows("qkv_proj", shards, worker, q_proj=8, k_proj=2, v_proj=2)
        assert found == {
            "q_proj": list(range(8)),
            "k_proj": [[10, 11], [15, 16]][worker % 2],
            "v_proj": [20, 21],
        }


def test_fused_parts_that_are_not_shared_out():
    shards = [[0, 1, 10, 11], [0, 1, 10, 12]]
    assert as_rows("gate_up_proj", shards, 1, gate_proj=2, up_proj=2) == {
        "gate_proj": [0, 1],
        "up_proj": [10, 12],
    }


@pytest.mark.parametrize(
    ("shards", "count"),
    [([[0, 1, 2, 3], [4, 9, 9, 9]], 5), ([[0, 1, 2, 9]], 3), ([[0, 1], [2, 3], [9, 9]], 4)],
    ids=["in the last worker's share", "one worker", "a whole share of it"],
)
def test_a_vocabulary_without_its_padding(shards, count):
    assert as_rows("lm_head", shards, lm_head=count) == {"lm_head": list(range(count))}


@pytest.mark.parametrize(
    "wholes", [{}, {"gate_proj": 4}, {"gate_proj": 4, "up_proj": 6}, {"gate_proj": 8, "up_proj": 8}]
)
def test_what_does_not_fit_comes_under_its_own_name(wholes):
    shards = [[0, 1, 10, 11], [2, 3, 12, 13]]
    assert as_rows("gate_up_proj", shards, 1, **wholes) == {"gate_up_proj": [2, 3, 12, 13]}


@pytest.mark.parametrize("shape", [(5, 4), (12,), (2, 4), (3, 9), (3, 4, 1)])
def test_pieces_that_do_not_make_the_weight(shape):
    pieces = [torch.zeros(3, 2), torch.zeros(3, 2)]
    assert put_together(pieces, torch.Size(shape), 0) is None
