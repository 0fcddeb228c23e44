"""The contract of the vLLM engines through HTTP, with a small server of our own in vLLM's place."""

import asyncio
from contextlib import ExitStack

import pytest

pytest.importorskip("aiohttp", reason="needs the extra vllm-server")

from palestra.engines.vllm.settings import VLLMServerSettings
from tests.support.engines import episode, episodes
from tests.support.vllm_contract import Contract, contract_model
from tests.support.vllm_stand_in import StandIn, running


@pytest.fixture(scope="module")
def engine():
    model = contract_model(64, "cpu")
    stand_ins = [StandIn(model), StandIn(model)]
    with ExitStack() as stack:
        for stand_in in stand_ins:
            stack.enter_context(running(stand_in))
        yield VLLMServerSettings(
            urls=tuple(stand_in.url for stand_in in stand_ins), dtype="float32", concurrency=16
        ).build(model, 1024)


class TestThroughHTTP(Contract):
    logprob_error = 1e-4

    def is_busy(self, engine):
        return engine._gate.replies > 0

    def test_an_episode_does_not_depend_on_its_company(self, engine):
        alone = [asyncio.run(episode(engine, number)) for number in range(4)]
        together = asyncio.run(episodes(engine, 4))
        assert [t.segments[0].ids for t in together] == [t.segments[0].ids for t in alone]
