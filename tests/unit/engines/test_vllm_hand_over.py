"""Ranks that share a vLLM server hand the weights over together.

Here the ranks are engines in one process, which talk by a barrier.
"""

import asyncio
import threading

import pytest
import torch

pytest.importorskip("aiohttp", reason="needs the extra vllm-server")

from palestra.core.process_group import ProcessGroup
from palestra.engines.base import EngineFailed
from palestra.engines.vllm.settings import VLLMServerSettings
from tests.support.vllm_contract import ask, contract_model
from tests.support.vllm_stand_in import StandIn, running


class Room(ProcessGroup):
    """Ranks that are threads of one process."""

    def meet(self, barrier, board):
        object.__setattr__(self, "_place", (barrier, board))
        return self

    def all_gather_bytes(self, message):
        barrier, board = self._place
        board[self.rank] = message
        barrier.wait(20)
        everybody = list(board)
        barrier.wait(20)
        return everybody


def ranks(model, url, count=2, **settings):
    """An engine for each rank."""
    barrier, board = threading.Barrier(count), [b""] * count
    chosen = VLLMServerSettings(**{"urls": (url,), "dtype": "float32", "retries": 0, **settings})
    return [
        chosen.build(model, 1024, world=Room(rank, count).meet(barrier, board))
        for rank in range(count)
    ]


async def load_all(engines, version):
    return await asyncio.gather(
        *(engine.sync_weights(version) for engine in engines), return_exceptions=True
    )


@pytest.fixture
def model():
    return contract_model(64, "cpu")


@pytest.fixture
def server(model):
    stand_in = StandIn(model)
    with running(stand_in) as stand_in.end:
        yield stand_in


def test_one_rank_speaks_to_the_server_and_all_know_what_it_has(model, server):
    engines = ranks(model, server.url, 3)
    asyncio.run(load_all(engines, 2))
    assert server.loads == 1
    assert [engine.version for engine in engines] == [2, 2, 2]
    assert [engine._servers[0].mark for engine in engines] == [server.mark] * 3
    for engine in engines:
        assert asyncio.run(ask(engine, [5, 6])).version == 2


@pytest.mark.parametrize("busy", [0, 1])
def test_no_reply_of_any_rank_is_cut_short(model, server, busy):
    engines = ranks(model, server.url)
    server.reply_s = 0.5

    async def scenario():
        await load_all(engines, 0)
        asked = asyncio.create_task(ask(engines[busy], [5, 6]))
        while not server.in_flight:
            await asyncio.sleep(0.01)
        loading = asyncio.create_task(load_all(engines, 3))
        await asyncio.sleep(0.1)
        late = [asyncio.create_task(ask(engine, [5, 7])) for engine in engines]
        await loading
        return [(await reply).version for reply in (asked, *late)]

    assert asyncio.run(scenario()) == [0, 3, 3]
    assert server.cut_short == 0


def test_an_error_is_the_same_on_all_ranks(model, server):
    engines = ranks(model, server.url, 3)
    asyncio.run(load_all(engines, 0))
    server.drop_weight = "model.norm.weight"
    with torch.no_grad():
        model.model.norm.weight.mul_(2)
    errors = asyncio.run(load_all(engines, 1))
    assert {type(error) for error in errors} == {EngineFailed}
    (line,) = {str(error) for error in errors}
    assert (
        line == f"{server.url}: vLLM's weights are not the learner's after the hand-over: "
        "model.norm.weight differs"
    )
    assert [engine.version for engine in engines] == [0, 0, 0]


def test_a_server_that_was_started_again_is_noticed_by_those_who_follow_too(model, server):
    engines = ranks(model, server.url, retries=9)
    asyncio.run(load_all(engines, 4))
    server.mark, server.fault, server.faults = "", "hang up", 1
    with pytest.raises(EngineFailed, match=f"{server.url}: no longer has version 4 of the weights"):
        asyncio.run(ask(engines[1], [5, 6]))


def test_a_shared_server_is_not_waited_for(model, server):
    """The others may still play with it, and would have to take part."""
    engines = ranks(model, server.url, wait_s=60)
    asyncio.run(load_all(engines, 0))
    server.end()
    with pytest.raises(EngineFailed, match=rf"^no vLLM server is left: {server.url}[^\n]+$"):
        asyncio.run(asyncio.wait_for(ask(engines[1], [5, 6]), 20))


def test_requests_are_counted_over_all_ranks(model, server):
    """Three at a time of one server: for two ranks, one each."""
    engines = ranks(model, server.url, concurrency=3)
    server.reply_s = 0.1
    most = 0

    async def scenario():
        nonlocal most
        await load_all(engines, 0)
        asked = [
            asyncio.create_task(ask(engine, [5, n])) for engine in engines for n in range(2, 6)
        ]
        while not all(task.done() for task in asked):
            most = max(most, server.in_flight)
            await asyncio.sleep(0.01)

    asyncio.run(scenario())
    assert most == 2
