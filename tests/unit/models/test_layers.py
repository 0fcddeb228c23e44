"""Layers that are computed again or compiled give the same gradients, keep less or run faster, and
leave the engine alone.
"""

import asyncio
import copy
import shutil

import pytest
import torch
from torch._dynamo.utils import counters

from palestra.algos.grpo import GRPO
from palestra.algos.ppo import PPO
from palestra.config.optimizer import OptimizerConfig
from palestra.core.types import Group
from palestra.engines.torch.engine import TorchEngine
from palestra.engines.torch.settings import TorchEngineSettings
from palestra.learner.layers import layers_of, rework_layers
from palestra.learner.learner import Learner
from palestra.learner.logprobs import predict
from palestra.models.tiny import tiny_model
from tests.support.batches import trajectory
from tests.support.engines import episodes
from tests.support.learners import learner_with, some_groups, updated

needs_compiler = pytest.mark.skipif(
    shutil.which("g++") is None and shutil.which("clang++") is None, reason="needs a C++ compiler"
)


def gradients(model, algo, **optim):
    learner = learner_with(
        model, critic=algo.critic_settings, microbatch_tokens=20, clip_norm=1e9, **optim
    )
    updated(learner, algo)
    return {name: p.grad for name, p in learner.trained().items()}


@pytest.mark.parametrize(
    "algo",
    [GRPO(), PPO(), PPO(critic={"kind": "model"})],
    ids=["grpo", "a head", "a critic of its own"],
)
def test_activation_checkpointing_does_not_change_the_gradient(model, algo):
    expected = gradients(model, algo)
    found = gradients(model, algo, activation_checkpointing=True)
    assert set(found) == set(expected)
    assert all((found[name] - gradient).abs().max() <= 1e-6 for name, gradient in expected.items())


def saved_bytes(learner):
    """What is kept between the way forth and the way back."""
    kept = []

    def pack(tensor):
        kept.append(tensor.nbytes)
        return tensor

    batch = learner.prepare(some_groups(), GRPO())
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        predict(learner.model, batch, 1.0)
    return sum(kept)


def test_activation_checkpointing_keeps_less_and_computes_layers_twice(model):
    assert saved_bytes(learner_with(model, activation_checkpointing=True)) < 0.3 * saved_bytes(
        learner_with(model)
    )
    learner = learner_with(model, activation_checkpointing=True)
    calls = []
    layers_of(learner.model)[0].self_attn.register_forward_pre_hook(
        lambda *_: calls.append(torch.is_grad_enabled())
    )
    updated(learner, GRPO())
    assert calls == [True, True]


def test_the_engine_does_not_notice(model):
    """It shares the layers, and with them its cache must still be written and read."""
    learner = learner_with(model, activation_checkpointing=True)
    updated(learner, GRPO())
    plain = copy.deepcopy(model)
    plain.load_state_dict(learner.model.state_dict())
    replies = []
    for one in (learner.model, plain):
        engine = TorchEngine(one, TorchEngineSettings(slots=4), context_tokens=200)
        replies.append([t.segments for t in asyncio.run(episodes(engine, 3, turns=3))])
    assert replies[0] == replies[1]
    assert not learner.model.training


def test_a_copy_runs_its_own_layers(model):
    learner = learner_with(model, activation_checkpointing=True)
    twin = copy.deepcopy(learner.model)
    with torch.no_grad():
        for parameter in layers_of(twin)[0].parameters():
            parameter.zero_()
    batch = learner.prepare(some_groups(), GRPO())
    assert not torch.allclose(
        predict(twin, batch, 1.0).logp_C, predict(learner.model, batch, 1.0).logp_C
    )


def test_a_model_without_layers_is_refused():
    with pytest.raises(ValueError, match="Linear has no layers"):
        rework_layers(torch.nn.Linear(2, 2), compiled=False, recomputed=True)


def deep_model():
    """With more layers than a compiler tries before it gives up on compiling a function again for
    each.
    """
    return tiny_model(
        vocabulary=97,
        width=16,
        layers=10,
        heads=2,
        context=128,
        stop_id=1,
        seed=3,
        device=torch.device("cpu"),
    )


def group_of(count, length):
    members = [
        trajectory(("see", [3] * (length + n)), ("say", [5 + n] * length), reward=float(n % 2))
        for n in range(count)
    ]
    return [Group(None, members)]


@needs_compiler
@pytest.mark.parametrize("recomputed", [False, True])
def test_compiled_layers_give_the_same_gradient_and_are_compiled_once(recomputed):
    torch._dynamo.reset()
    counters.clear()
    plain = Learner(deep_model(), OptimizerConfig(lr=1e-3, clip_norm=1e9), temperature=1.0, seed=0)
    optim = OptimizerConfig(
        lr=1e-3, clip_norm=1e9, compile=True, activation_checkpointing=recomputed
    )
    compiled = Learner(deep_model(), optim, temperature=1.0, seed=0)
    graphs = []
    for count, length in [(4, 3), (4, 5), (7, 4), (2, 9)]:  # the layout of a row differs each time
        for learner in (plain, compiled):
            updated(learner, GRPO(), group_of(count, length))
        pairs = zip(plain.model.parameters(), compiled.model.parameters(), strict=True)
        assert all((one.grad - other.grad).abs().max() < 1e-4 for one, other in pairs)
        graphs.append(counters["stats"]["unique_graphs"])
    assert 0 < graphs[0] <= 8
    assert graphs[-1] == graphs[1]
    with torch.no_grad():
        predict(compiled.model, compiled.prepare(some_groups(), GRPO()), 1.0)
    assert (
        counters["stats"]["unique_graphs"] == graphs[-1]
    )  # what needs no gradient is not compiled
