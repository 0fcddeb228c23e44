"""The learner with its weights shared out by FSDP2 over NCCL: one rank, which has all of the
shares, trains what a plain learner does.
"""

import pytest
import torch

from palestra.config.config import build
from palestra.runs.run import Run
from tests.support.joined import train_together
from tests.support.training import ECHO, trained

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600), needs_cuda]

ON_CUDA = ECHO | {
    "device": "cuda",
    "steps": 4,
    "engine": {"slots": 16, "graphs": False},
    "save": {"every": 2},
}


def curve(run, name):
    return [row[name] for row in run.metrics() if name in row]


@pytest.mark.parametrize(
    "algo",
    [{"name": "grpo"}, {"name": "grpo", "kl": 0.1}, {"name": "ppo"}],
    ids=["grpo", "kl", "ppo"],
)
def test_one_rank_over_nccl_trains_what_a_plain_learner_does(tmp_path, algo):
    alone = trained(tmp_path / "alone", ON_CUDA | {"algo": algo})
    shared = Run.create(
        tmp_path / "shared", build(ON_CUDA | {"algo": algo, "launch": {"sharding": "fsdp"}})
    )
    train_together(1, shared.folder)
    for name in ("loss", "grad_norm", "reward", "policy/entropy"):
        assert curve(shared, name) == pytest.approx(curve(alone, name), abs=1e-4), name
    assert (
        max(curve(shared, "policy/mismatch_kl")) < 1e-6
    )  # the engine has the weights that the learner has


def test_its_checkpoint_goes_on_without_it(tmp_path):
    shared = Run.create(
        tmp_path / "shared", build(ON_CUDA | {"launch": {"sharding": "fsdp"}, "steps": 2})
    )
    train_together(1, shared.folder)
    whole = trained(tmp_path / "whole", ON_CUDA)
    Run.open(shared.folder, {"steps": 4, "launch.sharding": "none"}).write_config()
    train_together(1, shared.folder)
    assert curve(Run.open(shared.folder), "loss") == pytest.approx(curve(whole, "loss"), abs=1e-4)
