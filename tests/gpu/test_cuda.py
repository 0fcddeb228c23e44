"""On a CUDA device: the same episodes, the same log-probs, and a checkpoint that goes on."""

import asyncio

import pytest
import torch

from palestra.algos.grpo import GRPO
from palestra.batch import pack
from palestra.config import build
from palestra.display import Display
from palestra.doctor.examine import examine
from palestra.learn.logprobs import predict
from palestra.model import new_model
from palestra.run import Run
from palestra.train import run_training
from tests.contract.test_engines import episodes, native
from tests.e2e.test_training import ECHO

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


def test_log_probs_equal_the_learners():
    model = new_model(vocabulary=97, width=64, layers=2, heads=4, context=1024, stop_id=1, seed=3, device=torch.device("cuda"))
    batch = pack([asyncio.run(episodes(native(model), 5))]).to(model.device)
    with torch.no_grad():
        assert (predict(model, batch, 1.0).logp_C - batch.sampled_logp_C).abs().max() < 1e-4
    assert GRPO().advantages(batch).device.type == "cuda"


def test_a_run_resumes(tmp_path):
    run = Run.create(tmp_path / "run", build(ECHO, {"device": "cuda", "steps": 2}))
    run_training(run, Display())
    run_training(Run.open(run.folder, {"steps": 4}), Display())
    assert [row["step"] for row in run.metrics() if "loss" in row] == [1, 2, 3, 4]


def test_the_doctor_finds_nothing_wrong_and_measures_what_fits(tmp_path):
    findings = list(examine(build(ECHO, {"device": "cuda"}), folder=tmp_path, fit=True))
    assert [finding for finding in findings if not finding.ok] == []
    assert "measured: a row of" in findings[-2].detail
    assert "estimated" not in findings[-1].detail
