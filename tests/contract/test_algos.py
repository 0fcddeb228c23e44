"""Every algorithm: blind to order, to how tokens are packed into rows, and to faults."""

import pytest
import torch

from palestra.algos import algos
from palestra.algos.base import Prediction
from palestra.batch import pack
from tests.helpers import trajectory


@pytest.fixture(params=[*algos.names(), "palestra.algos.sft:SFT"])
def algo(request):
    return algos[request.param]()


def some_batch(order=(0, 1, 2, 3)):
    members = [
        trajectory(("see", [1]), ("say", [2, 3]), reward=1.0),
        trajectory(("see", [1]), ("say", [4]), ("see", [5, 6]), ("say", [7]), reward=0.0),
        trajectory(("see", [1, 2]), ("say", [8]), reward=0.5),
        trajectory(("see", [1]), ("say", [9, 2, 3]), ("see", [5]), reward=0.25),
    ]
    return pack([[members[i] for i in order]])


def test_the_order_of_a_group_does_not_matter(algo):
    order = (2, 0, 3, 1)
    straight, shuffled = (algo.advantages(batch)[_first(batch)] for batch in (some_batch(), some_batch(order)))
    assert shuffled.tolist() == pytest.approx(straight[list(order)].tolist())


def test_rows_add_up_to_the_whole(algo):
    batch = some_batch()
    batch = batch.with_(advantage_C=algo.advantages(batch))
    batch = batch.with_(weight_C=algo.weights(batch))
    logp = batch.old_logp_C + torch.linspace(-0.3, 0.3, len(batch.owner_C))
    batch = batch.with_(sampled_logp_C=logp)  # carried along, so that each row finds its own

    def total(part):
        loss, _ = algo.loss(Prediction(part.sampled_logp_C, torch.zeros_like(part.weight_C)), part)
        return (loss * part.weight_C).sum().item()

    assert sum(total(row) for row in batch.rows(4)) == pytest.approx(total(batch))


def _first(batch):
    """The first chosen token of each trajectory."""
    return torch.tensor([int((batch.owner_C == n).nonzero()[0]) for n in range(len(batch))])
