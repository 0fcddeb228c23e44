"""On a CUDA device: the same episodes, the same log-probs, and a checkpoint that goes on."""

import asyncio

import pytest
import torch

from palestra.algos.batch import pack
from palestra.algos.grpo import GRPO
from palestra.config.config import build
from palestra.config.lora import LoraSettings
from palestra.engines.torch.settings import TorchEngineSettings
from palestra.learner.logprobs import predict
from palestra.models.lora import adapter_of, add_adapter
from palestra.models.tiny import tiny_model
from palestra.runs.run import Run
from palestra.tools.doctor.checks import run_checks
from palestra.training.display import Display
from palestra.training.loop import run_training
from tests.support.batches import trajectory
from tests.support.engines import episodes, native
from tests.support.overlap import STREAM
from tests.support.training import ECHO

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def test_log_probs_equal_the_learners():
    model = tiny_model(
        vocabulary=97,
        width=64,
        layers=2,
        heads=4,
        context=1024,
        stop_id=1,
        seed=3,
        device=torch.device("cuda"),
    )
    batch = pack([asyncio.run(episodes(native(model), 5))]).to(model.device)
    with torch.no_grad():
        assert (predict(model, batch, 1.0).logp_C - batch.sampled_logp_C).abs().max() < 1e-4
    assert GRPO().advantages(batch).device.type == "cuda"


def test_a_run_resumes(tmp_path):
    run = Run.create(tmp_path / "run", build(ECHO, {"device": "cuda", "steps": 2}))
    run_training(run, Display())
    run_training(Run.open(run.folder, {"steps": 4}), Display())
    assert [row["step"] for row in run.metrics() if "loss" in row] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "overlap",
    [
        {"rollout.prefetch": 1},
        {"rollout.partial": 2},
        {"rollout.prefetch": 1, "rollout.partial": 2},
        STREAM,
    ],
)
def test_an_overlapped_run_goes_on_after_a_resume(tmp_path, overlap):
    run = Run.create(tmp_path / "run", build(ECHO, {"device": "cuda", "steps": 4, **overlap}))
    run_training(run, Display())
    run_training(Run.open(run.folder, {"steps": 6}), Display())
    rows = [row for row in run.metrics() if "loss" in row]
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert max(row["staleness/max"] for row in rows) >= 1
    assert all(row.get("policy/mismatch", 0.0) < 1e-3 for row in rows)


def test_shared_openings_equal_segments_alone_in_half_precision():
    """By flash attention with fewer queries than keys,
    on which causality is counted from the end.
    """
    model = tiny_model(
        vocabulary=97,
        width=256,
        layers=2,
        heads=4,
        context=1024,
        stop_id=1,
        seed=3,
        device=torch.device("cuda"),
    )
    model = model.to(torch.bfloat16)
    opening = [3 + i % 7 for i in range(200)]
    batch = pack(
        [[trajectory(("see", [*opening, i // 2]), ("say", [5, 6, 7, i] * 8)) for i in range(6)]]
    ).to(model.device)
    assert min(batch.in_common_S[1:]) >= 200

    def of(batches):
        model.zero_grad()
        logp_C = torch.cat([predict(model, each, 1.0).logp_C for each in batches])
        (logp_C * torch.linspace(-1, 1, len(logp_C), device=model.device)).sum().backward()
        return logp_C.detach(), torch.cat([p.grad.flatten().float() for p in model.parameters()])

    together, gradient = of([batch])
    alone, expected = of(
        [batch.take(torch.tensor([segment], device=model.device)) for segment in range(6)]
    )
    assert (together - alone).abs().max() < 0.05
    assert (gradient - expected).norm() / expected.norm() < 0.03


def test_an_adapter_is_sampled_with():
    pytest.importorskip("peft")
    model = tiny_model(
        vocabulary=97,
        width=64,
        layers=2,
        heads=4,
        context=1024,
        stop_id=1,
        seed=3,
        device=torch.device("cuda"),
    )
    add_adapter(model, rank=4, alpha=8, targets=LoraSettings().targets, base="", seed=0)
    with torch.no_grad():
        for parameter in adapter_of(model).values():
            parameter.normal_(std=0.2)
    batch = pack([asyncio.run(episodes(TorchEngineSettings(slots=4).build(model, 256), 5))]).to(
        model.device
    )
    with torch.no_grad():
        assert (predict(model, batch, 1.0).logp_C - batch.sampled_logp_C).abs().max() < 1e-4


def test_the_doctor_finds_nothing_wrong_and_measures_what_fits(tmp_path):
    findings = list(run_checks(build(ECHO, {"device": "cuda"}), folder=tmp_path, fit=True))
    assert [finding for finding in findings if not finding.ok] == []
    assert "measured: a row of" in findings[-2].detail
    assert "estimated" not in findings[-1].detail
