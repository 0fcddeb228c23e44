"""An adapter changes nothing until it learns, is all that learns, and is what peft and vLLM take it
for.
"""

import copy
import json

import pytest
import torch

from palestra.algos.grpo import GRPO
from palestra.algos.ppo import PPO
from palestra.config.config import build
from palestra.config.lora import LoraSettings
from palestra.config.optimizer import OptimizerConfig
from palestra.core.errors import ConfigError
from palestra.engines.fingerprint import digest
from palestra.learner import checkpoint
from palestra.learner.learner import Learner
from palestra.learner.logprobs import predict
from palestra.models.folder import load_pretrained
from palestra.models.loading import load_model
from palestra.models.lora import adapter_of, add_adapter, plain_weights
from palestra.models.tiny import tiny_model
from palestra.models.tokenizers import byte_tokenizer, load_tokenizer
from tests.support.learners import some_groups, updated

peft = pytest.importorskip("peft")

CPU = torch.device("cpu")


@pytest.fixture
def base(tmp_path):
    """The folder of a small model with weights large enough for attention to matter."""
    model = tiny_model(
        vocabulary=300, width=32, layers=2, heads=2, context=128, stop_id=1, seed=3, device=CPU
    )
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(6)
    checkpoint.export(tmp_path / "base", model, byte_tokenizer())
    return tmp_path / "base"


def adapted(base, dtype=torch.float32, *, critic=None, **settings):
    model = load_model(base, device=CPU, dtype=dtype)
    lora = LoraSettings(**{"rank": 4, **settings})
    add_adapter(
        model,
        rank=lora.rank,
        alpha=lora.alpha,
        targets=lora.targets,
        base=str(base),
        seed=7,
    )
    return Learner(model, OptimizerConfig(lr=1e-2), temperature=1.0, seed=0, critic=critic)


def logits(model):
    with torch.no_grad():
        return model(torch.tensor([[5, 9, 33, 70, 12]])).logits.float()


def test_it_begins_by_changing_nothing_and_only_the_adapter_learns(base):
    learner = adapted(base)
    before = load_model(base, device=CPU, dtype=torch.float32)
    assert type(learner.model) is type(before)
    assert torch.equal(logits(learner.model), logits(before))
    frozen = {
        name: p.detach().clone()
        for name, p in learner.model.named_parameters()
        if name not in adapter_of(learner.model)
    }
    # rank 4 x (inputs + outputs) of q, k, v, o (32 + 32 each) and gate, up, down (32 + 80 each), in
    # two layers
    assert sum(p.numel() for p in learner.trained().values()) == 2 * 4 * (4 * 64 + 3 * 112)
    updated(learner, GRPO())
    updated(learner, GRPO())
    assert not torch.equal(logits(learner.model), logits(before))
    assert all(
        torch.equal(p, dict(learner.model.named_parameters())[name]) for name, p in frozen.items()
    )
    assert set(learner.trained()) == set(adapter_of(learner.model))
    assert len(learner.optimizer.state) == len(learner.trained())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_plain_weights_are_a_model_that_computes_the_same(base, dtype):
    """What is handed over to vLLM: names, shapes and results of a model without an adapter."""
    learner = adapted(base, dtype, targets="all-linear")
    for _ in range(5):
        updated(learner, GRPO())
    plain = load_model(base, device=CPU, dtype=torch.float32)
    handed = dict(plain_weights(learner.model))
    assert list(handed) == [name for name, _ in plain.named_parameters()]
    with torch.no_grad():
        for name, parameter in plain.named_parameters():
            parameter.copy_(handed[name])
    expected = logits(load_model(base, device=CPU, dtype=torch.float32))
    moved = (logits(plain) - expected).abs().max()
    assert (logits(plain) - logits(learner.model)).abs().max() < (
        1e-4 if dtype == torch.float32 else 0.5
    ) * moved
    assert digest(plain_weights(plain)) == digest(plain.named_parameters())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_saved_is_pefts_and_loads_merged(base, tmp_path, dtype):
    learner = adapted(base, dtype, targets=["q_proj", "down_proj"])
    updated(learner, GRPO())
    checkpoint.export(tmp_path / "adapter", learner.model, byte_tokenizer())
    written = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert (written["r"], written["lora_alpha"], sorted(written["target_modules"])) == (
        4,
        32,
        ["down_proj", "q_proj"],
    )
    assert written["base_model_name_or_path"] == str(base)
    theirs = peft.PeftModel.from_pretrained(
        load_model(base, device=CPU, dtype=dtype),
        tmp_path / "adapter",
        autocast_adapter_dtype=False,
    )
    assert torch.equal(logits(theirs), logits(learner.model))
    merged, tokenizer = load_pretrained(str(tmp_path / "adapter"), device=CPU, dtype=dtype)
    handed = {name: weight.to(dtype) for name, weight in plain_weights(learner.model)}
    found = dict(merged.named_parameters())
    assert set(found) == set(handed)
    assert all(p.requires_grad for p in found.values())
    assert all(
        torch.allclose(found[name].float(), handed[name].float(), atol=1e-6, rtol=1e-6)
        for name in handed
    )
    assert tokenizer.encode("abc") == load_tokenizer(base).encode("abc")


def test_the_reference_is_the_adapter_as_it_was_and_the_policy_comes_back(base):
    learner = adapted(base)
    updated(learner, GRPO())  # as a warm start would: the reference is not the base model
    learner.remember_reference()
    algo = GRPO(kl=0.1)
    batch = learner.prepare(some_groups(), algo)
    with torch.no_grad():
        expected = predict(learner.model, batch, 1.0).logp_C
    assert torch.equal(batch.reference_logp_C, expected)
    updated(learner, algo)
    now = digest(learner.model.named_parameters())
    assert torch.equal(learner.prepare(some_groups(), algo).reference_logp_C, expected)
    assert digest(learner.model.named_parameters()) == now
    learner.return_to_reference()
    with torch.no_grad():
        assert torch.equal(predict(learner.model, batch, 1.0).logp_C, expected)


@pytest.mark.parametrize("kind", ["head", "model"])
def test_a_critic_learns_beside_the_adapter(base, kind):
    algo = PPO(critic={"kind": kind})
    learner = adapted(base, critic=algo.critic_settings)
    before = {name: p.detach().clone() for name, p in learner.trained().items()}
    for _ in range(2):
        updated(learner, algo)
    changed = {name for name, p in learner.trained().items() if not torch.equal(p, before[name])}
    assert {"critic.output.weight"} | set(adapter_of(learner.model)) <= changed
    assert not any("base_layer" in name or "embed" in name for name in learner.trained())


@pytest.mark.parametrize(
    ("targets", "reason"),
    [
        ("q_porj", "'q_porj'; there are down_proj, gate_proj"),
        ("lm_head", "below the head"),
        ("embed_tokens", "no linear module"),
    ],
)
def test_targets_that_are_not_there_are_refused(base, targets, reason):
    with pytest.raises(ValueError, match=reason):
        adapted(base, targets=targets)


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ({"rank": 0}, "lora.rank = 0: .*greater than 0"),
        ({"rnak": 4}, "lora.rnak = 4: there is no such setting; did you mean 'rank'"),
        ({"targets": []}, "lora.targets = .*expected 'all-linear' or names of modules"),
        ({"targets": ["all-linear", "q_proj"]}, "lora.targets = .*expected 'all-linear' or names"),
        ({}, "lora: an adapter needs a model that has learned something"),
    ],
)
def test_bad_settings_are_refused(table, reason):
    with pytest.raises(ConfigError, match=reason):
        build({"lora": table})


def test_an_adapter_of_another_shape_is_refused(base, tmp_path):
    checkpoint.save(
        tmp_path / "step-000001", adapted(base, targets="q_proj"), byte_tokenizer(), {"step": 1}
    )
    with pytest.raises(checkpoint.BadCheckpoint, match="other modules than the model's"):
        checkpoint.restore(tmp_path / "step-000001", adapted(base))


def test_a_rounded_model_resumes_from_its_exact_adapter(base, tmp_path):
    whole, first = adapted(base, torch.bfloat16), adapted(base, torch.bfloat16)
    for learner, steps in ((whole, 4), (first, 2)):
        for _ in range(steps):
            updated(learner, GRPO())
    checkpoint.save(tmp_path / "step-000002", first, byte_tokenizer(), {"step": 2})
    second = adapted(base, torch.bfloat16)
    checkpoint.restore(tmp_path / "step-000002", second)
    for _ in range(2):
        updated(second, GRPO())
    assert all(torch.equal(p, second.trained()[name]) for name, p in whole.trained().items())
    assert torch.equal(logits(whole.model), logits(second.model))


def test_the_heads_gradient_is_not_computed_where_the_head_is_frozen(base, monkeypatch):
    """Long batches are scored in pieces by a function of ours; it must not make a gradient as large
    as the head for nobody.
    """
    plain, pieces = adapted(base), adapted(base)
    updated(plain, GRPO())
    monkeypatch.setattr("palestra.learner.logprobs.FEW_LOGITS", 0)
    updated(pieces, GRPO())
    found = pieces.trained()
    assert all(
        torch.allclose(p.grad, found[name].grad, atol=1e-6) for name, p in plain.trained().items()
    )
    assert copy.deepcopy(pieces.model).get_output_embeddings().weight.grad is None
