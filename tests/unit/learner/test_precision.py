"""Computing in bfloat16 over exact weights, and log-probs without all logits at once."""

import copy

import pytest
import torch

from palestra.algos.grpo import GRPO
from palestra.config.config import build
from palestra.config.optimizer import OptimizerConfig
from palestra.core.errors import ConfigError
from palestra.core.types import Group, Task
from palestra.learner import checkpoint, chunked_logprob
from palestra.learner.chunked_logprob import ChunkedLogProb
from palestra.learner.learner import Learner
from palestra.learner.master_weights import MasterWeights
from palestra.models.tiny import tiny_model
from palestra.models.tokenizers import byte_tokenizer
from palestra.training.preflight import preflight
from tests.support.batches import trajectory
from tests.support.training import ECHO


@pytest.mark.parametrize("held", [1 << 28, 300])
def test_scores_and_their_gradients_equal_the_plain_formula(monkeypatch, held):
    monkeypatch.setattr(
        chunked_logprob, "MOST_LOGITS", held
    )  # 300: six rows of fifty words at a time
    rng = torch.Generator().manual_seed(0)
    hidden, weight = (
        torch.randn(20, 8, generator=rng, dtype=torch.double),
        torch.randn(50, 8, generator=rng, dtype=torch.double),
    )
    ids, mix = (
        torch.randint(0, 50, (20,), generator=rng),
        torch.randn(2, 20, generator=rng, dtype=torch.double),
    )

    def plain(hidden, weight):
        logp = (hidden @ weight.t() / 0.7).log_softmax(-1)
        return logp.gather(-1, ids[:, None])[:, 0], -(logp.exp() * logp).sum(-1)

    found = []
    for score in (plain, lambda hidden, weight: ChunkedLogProb.apply(hidden, weight, ids, 0.7)):
        inputs = [x.clone().requires_grad_() for x in (hidden, weight)]
        logp, entropy = score(*inputs)
        (logp @ mix[0] + entropy @ mix[1]).backward()
        found.append([logp, entropy, *(x.grad for x in inputs)])
    for expected, got in zip(*found, strict=True):
        assert torch.allclose(expected, got, atol=1e-12, rtol=1e-10)


def test_float64_is_for_the_cpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ConfigError, match="float64.*device = 'cpu'"):
        preflight(build(ECHO, {"device": "auto", "dtype": "float64"}))
    preflight(build(ECHO, {"device": "cpu", "dtype": "float64"}))


def test_small_steps_are_not_lost_in_rounding():
    working = torch.nn.Parameter(torch.ones(1, dtype=torch.bfloat16))
    masters = MasterWeights({"w": working})
    for _ in range(100):
        masters.full_precision["w"].data -= 1e-4  # in bfloat16 the neighbors of 1 are 0.004 away
        masters.copy_to_model()
    assert masters.full_precision["w"].item() == pytest.approx(0.99, abs=1e-5)
    assert working.item() == pytest.approx(0.99, abs=0.004)
    assert working.item() < 1


def test_gradients_are_added_up_exactly():
    working = torch.nn.Parameter(torch.ones(1, dtype=torch.bfloat16))
    masters = MasterWeights({"w": working})
    for gradient in (256.0, *[0.5] * 8):  # 256 + 0.5 is 256 in bfloat16
        working.grad = torch.tensor([gradient], dtype=torch.bfloat16)
        masters.accumulate_grads()
    assert masters.full_precision["w"].grad.item() == 260
    assert working.grad is None


def test_exact_weights_are_their_own_masters():
    weight = torch.nn.Parameter(torch.ones(1))
    masters = MasterWeights({"w": weight})
    assert masters.full_precision["w"] is weight


def some_groups():
    members = [
        trajectory(("see", [3, 4]), ("say", [5 + n, 6]), reward=float(n % 2)) for n in range(4)
    ]
    return [Group(Task("env", "train", "t"), members)]


def rounded_learner():
    model = tiny_model(
        vocabulary=300,
        width=16,
        layers=2,
        heads=2,
        context=64,
        stop_id=1,
        seed=0,
        device=torch.device("cpu"),
    )
    return Learner(
        copy.deepcopy(model).to(torch.bfloat16),
        OptimizerConfig(lr=1e-3, microbatch_tokens=5),
        temperature=1.0,
        seed=0,
    )


def learn(learner, steps):
    for step in steps:
        algo = GRPO()
        learner.update(
            algo.add_advantages(learner.prepare(some_groups(), algo)), algo, lr=1e-3, step=step
        )


def test_a_rounded_model_resumes_from_its_exact_weights(tmp_path):
    whole, first = rounded_learner(), rounded_learner()
    learn(whole, range(1, 7))
    learn(first, range(1, 4))
    checkpoint.save(tmp_path / "step-000003", first, byte_tokenizer(), {"step": 3})
    second = rounded_learner()
    checkpoint.restore(tmp_path / "step-000003", second)
    learn(second, range(4, 7))
    assert all(torch.equal(p, second.trained()[name]) for name, p in whole.trained().items())
    assert all(
        torch.equal(p, q)
        for p, q in zip(whole.model.parameters(), second.model.parameters(), strict=True)
    )
    assert whole.model.dtype == torch.bfloat16
    assert all(p.dtype == torch.float32 for p in whole.trained().values())
