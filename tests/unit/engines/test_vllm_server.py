"""The engine for vLLM servers against a small server of our own:
all that can go wrong on the way.
"""

import asyncio
import logging
import subprocess
import sys
from contextlib import ExitStack

import pytest
import torch

pytest.importorskip("aiohttp", reason="needs the extra vllm-server")

from palestra.config.config import build
from palestra.core.errors import ConfigError
from palestra.core.types import Sampling
from palestra.engines.base import EngineFailed, Session
from palestra.engines.vllm import server as module
from palestra.engines.vllm.settings import VLLMServerSettings
from palestra.engines.vllm.transfer import own_address
from palestra.engines.vllm.weight_sync import Gate
from palestra.training.preflight import prepare
from palestra.training.setup import make_model
from tests.support.engines import episodes
from tests.support.training import ECHO, trained, weights
from tests.support.vllm_contract import answer, ask, contract_model, reload
from tests.support.vllm_stand_in import StandIn, running


@pytest.fixture(scope="module")
def model():
    return contract_model(64, "cpu")


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch):
    monkeypatch.setattr(module, "FIRST_PAUSE_S", 0.01)


@pytest.fixture
def start(model):
    """Start a stand-in; returns it and the function that ends it."""
    with ExitStack() as stack:

        def begin(**settings):
            stand_in = StandIn(model, **settings)
            return stand_in, stack.enter_context(running(stand_in))

        yield begin


def connect(model, *stand_ins, **settings):
    urls = tuple(stand_in.url for stand_in in stand_ins)
    return VLLMServerSettings(
        **{"urls": urls, "dtype": "float32", "retries": 2, "wait_s": 0, **settings}
    ).build(model, 1024)


def test_nothing_is_sampled_before_the_weights_were_compared(model, start):
    stand_in, _ = start()
    engine = connect(model, stand_in)
    with pytest.raises(
        EngineFailed,
        match="^the servers do not have the learner's weights: a hand-over comes before the "
        "first reply$",
    ):
        answer(engine, [5, 6])
    reload(engine)
    order = (
        "palestra_describe /pause palestra_load palestra_fingerprint /reset_prefix_cache "
        "palestra_set_mark /resume"
    )
    assert stand_in.paths == order.split()
    assert answer(engine, [5, 6]).ids


def test_weights_are_rounded_to_the_servers_type(model, start, tmp_path):
    stand_in, _ = start()
    stand_in.model.to(torch.bfloat16)
    stand_in.facts["dtypes"] = ["bfloat16"]
    reload(connect(model, stand_in, dtype="bfloat16", folder=str(tmp_path)))
    assert stand_in.received == {torch.bfloat16}
    assert not list(tmp_path.iterdir())  # nothing is left of the file


def test_episodes_stay_with_their_server_and_are_spread_evenly(model, start):
    one, _ = start()
    two, _ = start()
    engine = connect(model, one, two)
    reload(engine)
    sessions = [Session(str(i)) for i in range(6)]

    async def turns():
        for _ in range(3):
            await asyncio.gather(
                *(engine.generate([5, 6], Sampling(max_tokens=2), session) for session in sessions)
            )

    asyncio.run(turns())
    assert (one.replies, two.replies) == (9, 9)
    homes = [engine._homes[session] for session in sessions]
    assert [home is homes[i % 2] for i, home in enumerate(homes)] == [True] * 6
    for session in sessions:
        engine.release(session)
    assert not engine._homes


@pytest.mark.parametrize("fault", ["hang up", "abort"])
def test_a_connection_that_fails_is_tried_again(model, start, fault):
    stand_in, _ = start()
    engine = connect(model, stand_in)
    reload(engine)
    expected = answer(engine, [5, 6])
    stand_in.fault, stand_in.faults = fault, 2
    assert answer(engine, [5, 6]) == expected
    assert stand_in.replies == 4


def test_a_server_that_never_answers_rightly_is_named_in_the_end(model, start):
    stand_in, _ = start()
    engine = connect(model, stand_in)
    reload(engine)
    stand_in.fault, stand_in.faults = "hang up", 99
    with pytest.raises(
        EngineFailed,
        match=rf"^no vLLM server is left: {stand_in.url}/inference/v1/generate: \S[^\n]+$",
    ):
        answer(engine, [5, 6])
    assert stand_in.replies == 3  # once and two retries


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (
            "500",
            "no vLLM server is left: {url}/inference/v1/generate: HTTP 500: EngineCore "
            "encountered an issue$",
        ),
        (
            "404",
            "{url}/inference/v1/generate: HTTP 404: .*VLLM_SERVER_DEV_MODE=1 and --tokens-only",
        ),
        ("403", "{url}/inference/v1/generate: HTTP 403: .*start it with --tokens-only"),
        ("302", "{url}/inference/v1/generate: HTTP 302"),
        ("hang", "{url}/inference/v1/generate: no answer within 0.3 s$"),
        ("no number", "{url}: a sampled token has no log-prob"),
        ("nonsense", "{url}/inference/v1/generate: expected JSON, got b'<html>"),
    ],
)
def test_what_will_not_pass_is_not_tried_again(model, start, fault, message):
    stand_in, _ = start()
    engine = connect(model, stand_in, reply_timeout_s=0.3)
    reload(engine)
    stand_in.fault, stand_in.faults = fault, 1
    with pytest.raises(EngineFailed, match=message.format(url=stand_in.url)):
        answer(engine, [5, 6])
    assert stand_in.replies == 1


def test_a_server_that_dies_is_replaced_by_the_other_and_can_come_back(model, start, caplog):
    one, end = start()
    two, _ = start()
    engine = connect(model, one, two)
    reload(engine)
    one.reply_s = 0.05

    async def scenario():
        playing = asyncio.create_task(episodes(engine, 6, turns=4))
        while not one.replies:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(end)
        return await playing

    with caplog.at_level(logging.WARNING):
        assert len(asyncio.run(scenario())) == 6
        reload(engine, version=1)  # without it
    assert [bool(server.trouble) for server in engine._servers] == [True, False]
    assert caplog.text.count(f"given up until the next hand-over: {one.url}") == 1

    start(port=one.port)  # with weights of its own
    reload(engine, version=2)
    assert not any(server.trouble for server in engine._servers)
    assert len(asyncio.run(episodes(engine, 4))) == 4


def test_when_the_last_server_dies_it_is_waited_for_and_given_the_weights_again(
    model, start, caplog
):
    one, end = start()
    engine = connect(model, one, wait_s=60, retries=0)
    reload(engine)
    expected = asyncio.run(episodes(engine, 6, turns=4))
    one.reply_s = 0.05

    async def scenario():
        playing = asyncio.create_task(episodes(engine, 6, turns=4))
        before = one.replies
        while one.replies < before + 3:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(end)
        while not engine._servers[0].trouble:
            await asyncio.sleep(0.01)
        other, _ = start(port=one.port)  # with weights of its own
        return other, await playing

    with caplog.at_level(logging.WARNING):
        other, played = asyncio.run(scenario())
    assert [t.segments[0].ids for t in played] == [t.segments[0].ids for t in expected]
    assert other.mark == one.mark
    assert "no vLLM server is left" in caplog.text


def test_a_server_that_started_again_before_it_was_missed_ends_the_run(model, start):
    """Some replies may be of its own weights."""
    one, end = start()
    engine = connect(model, one, wait_s=60, retries=99)
    reload(engine)

    async def scenario():
        end()
        asked = asyncio.create_task(ask(engine, [5, 6]))
        while not engine._servers[0].is_suspect:
            await asyncio.sleep(0.001)
        start(port=one.port)
        await asked

    with pytest.raises(
        EngineFailed,
        match=f"{one.url}: no longer has version 0 of the weights; was it started again",
    ):
        asyncio.run(scenario())


def test_it_is_not_waited_for_for_ever(model, start):
    one, end = start()
    engine = connect(model, one, wait_s=0.2)
    reload(engine)
    end()
    with pytest.raises(EngineFailed, match=f"no vLLM server is left: {one.url}.* .waited for 0 s"):
        answer(engine, [5, 6])


def test_beside_the_learner_it_is_not_waited_for(model, start):
    """The weights that it had are the learner's no more."""
    one, end = start()
    settings = VLLMServerSettings(urls=(one.url,), dtype="float32", retries=0, wait_s=60)
    engine = settings.build(model, 1024, overlaps_updates=True)
    reload(engine)
    end()
    with pytest.raises(EngineFailed, match=f"no vLLM server is left: {one.url}"):
        answer(engine, [5, 6])


def test_to_begin_with_all_servers_must_be_there(model, start):
    one, end = start()
    two, _ = start()
    end()
    with pytest.raises(
        EngineFailed,
        match=f"^the weights could not be handed over: {one.url}/collective_rpc: Cannot connect",
    ):
        reload(connect(model, one, two))


def test_weights_that_differ_end_the_run_with_the_server_paused(model, start):
    stand_in, _ = start()
    engine = connect(model, stand_in)
    reload(engine)
    stand_in.drop_weight = "model.norm.weight"
    with torch.no_grad():
        model.model.norm.weight.mul_(2)
    try:
        with pytest.raises(
            EngineFailed,
            match=f"{stand_in.url}: vLLM's weights are not the learner's after the hand-over: "
            ".*norm.weight differs$",
        ):
            reload(engine, version=1)
    finally:
        with torch.no_grad():
            model.model.norm.weight.div_(2)
    assert (engine.version, stand_in.is_paused) == (0, True)


def test_a_server_that_started_again_is_noticed_at_the_next_hand_over(model, start):
    stand_in, end = start()
    engine = connect(model, stand_in)
    reload(engine, version=3)
    end()
    start(port=stand_in.port)
    with pytest.raises(
        EngineFailed,
        match=f"{stand_in.url}: no longer has version 3 of the weights; was it started again",
    ):
        reload(engine, version=4)


@pytest.mark.parametrize(
    ("fact", "value", "message"),
    [
        (
            "logprobs_mode",
            "raw_logprobs",
            "its log-probs are raw_logprobs; start it with --logprobs-mode processed_logprobs$",
        ),
        (
            "dtypes",
            ["bfloat16"],
            "engine.dtype = 'float32', and its weights are bfloat16; see its --dtype$",
        ),
        (
            "context_tokens",
            512,
            "a context of 1024 tokens is needed and its --max-model-len is 512$",
        ),
    ],
)
def test_a_server_that_was_started_otherwise_is_refused(model, start, fact, value, message):
    stand_in, _ = start()
    stand_in.facts[fact] = value
    with pytest.raises(EngineFailed, match=f"^{stand_in.url}: {message}"):
        reload(connect(model, stand_in))
    assert stand_in.paths == ["palestra_describe"]


def test_a_server_without_our_extension_is_refused(model, start, monkeypatch):
    stand_in, _ = start()
    monkeypatch.delattr(StandIn, "palestra_describe")
    with pytest.raises(
        EngineFailed,
        match="start it with --worker-extension-cls palestra.engines.vllm.worker.WorkerExtension$",
    ):
        reload(connect(model, stand_in))


def test_a_server_of_several_gpus(model, start):
    stand_in, _ = start()
    stand_in.workers = 2
    engine = connect(model, stand_in)
    reload(engine)
    assert answer(engine, [5, 6]).ids
    stand_in.others["palestra_fingerprint"] = {
        **stand_in.palestra_fingerprint(""),
        "model.norm.weight": 7,
    }
    with pytest.raises(
        EngineFailed, match="not the learner's after the hand-over: model.norm.weight differs$"
    ):
        reload(engine, version=1)


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        (
            {"tensor_parallel": 1},
            "the GPUs of a server can only be tensor parallel; start several servers instead$",
        ),
        (
            {"data_parallel": 2},
            "the GPUs of a server can only be tensor parallel; start several servers instead$",
        ),
        (
            {"mark": "other"},
            "its workers do not agree on what they are: .*'mark': ''.* and .*'mark': 'other'",
        ),
    ],
)
def test_workers_that_do_not_belong_together_are_refused(model, start, monkeypatch, facts, message):
    stand_in, _ = start()
    stand_in.workers = 2
    described = {**stand_in.palestra_describe(), **facts}
    stand_in.others["palestra_describe"] = described
    if "mark" not in facts:
        monkeypatch.setattr(stand_in, "palestra_describe", lambda: described)
    with pytest.raises(EngineFailed, match=f"^{stand_in.url}: {message}"):
        reload(connect(model, stand_in))


def test_a_folder_that_cannot_be_written_is_named(model, start, tmp_path):
    stand_in, _ = start()
    with pytest.raises(
        EngineFailed,
        match=r"^engine.folder = '.*/nowhere': the weights could not be written there: [^\n]+$",
    ):
        reload(connect(model, stand_in, folder=str(tmp_path / "nowhere")))


def test_the_key_comes_from_the_environment(model, start, monkeypatch):
    stand_in, _ = start(api_key="secret")
    without = connect(model, stand_in)
    reload(without)
    with pytest.raises(
        EngineFailed,
        match="HTTP 401: Unauthorized; is engine.api_key_env the variable with the server's "
        "--api-key",
    ):
        answer(without, [5])
    with pytest.raises(
        EngineFailed,
        match="engine.api_key_env = 'PALESTRA_TEST_KEY': there is no such environment variable",
    ):
        connect(model, stand_in, api_key_env="PALESTRA_TEST_KEY")
    monkeypatch.setenv("PALESTRA_TEST_KEY", "secret")
    with_key = connect(model, stand_in, api_key_env="PALESTRA_TEST_KEY")
    reload(with_key)
    assert answer(with_key, [5]).ids


@pytest.fixture
def echo():
    """A stand-in for the model of a small run, and that run's settings."""
    policy, _ = make_model(build(ECHO, {}), prepare(build(ECHO, {})))
    stand_in = StandIn(policy)
    with running(stand_in):
        engine = {"name": "vllm-server", "urls": [stand_in.url], "dtype": "float32"}
        yield policy, stand_in, {**ECHO, "steps": 3, "eval": {"tasks": 4}, "engine": engine}


def test_a_run_trains_through_a_server(echo, tmp_path):
    policy, stand_in, settings = echo
    learned = weights(trained(tmp_path / "run", settings))
    assert stand_in.mark.endswith("/3")
    assert all(
        torch.equal(learned[name], weight) for name, weight in stand_in.model.named_parameters()
    )
    assert not torch.equal(learned["model.norm.weight"], policy.model.norm.weight)


def test_a_run_whose_servers_are_gone_ends_with_one_clear_error(echo, tmp_path):
    _, stand_in, settings = echo
    stand_in.fault, stand_in.faults = "500", 99
    with pytest.raises(EngineFailed, match=f"^no vLLM server is left: {stand_in.url}"):
        trained(tmp_path / "run", settings)


def test_ids_outside_the_vocabulary_are_not_sent(model, start):
    stand_in, _ = start()
    with pytest.raises(ValueError, match="token ids from 5 to 9999 in a vocabulary of 97"):
        answer(connect(model, stand_in), [5, 9999])
    assert not stand_in.replies


def test_hand_overs_take_turns():
    async def scenario():
        gate, log = Gate(), []

        async def hand_over(name):
            async with gate.hand_over():
                log.append(f"{name} begins")
                await asyncio.sleep(0)
                log.append(f"{name} ends")

        await asyncio.gather(hand_over("a"), hand_over("b"))
        return log

    assert asyncio.run(scenario()) == ["a begins", "a ends", "b begins", "b ends"]


@pytest.mark.parametrize(
    ("url", "address"), [("http://127.0.0.1:8000", "127.0.0.1"), ("https://127.0.0.9", "127.0.0.1")]
)
def test_servers_see_this_host_where_they_are_reached_from(url, address):
    assert own_address(url) == address


def test_nccl_needs_a_gpu(model):
    with pytest.raises(
        EngineFailed,
        match="engine.weights = 'nccl' needs the model on a CUDA device, not on cpu; use 'folder'",
    ):
        VLLMServerSettings(urls=("http://127.0.0.1:8000",), weights="nccl").build(model, 1024)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"urls": []}, "engine.urls"),
        ({"urls": ["127.0.0.1:8000"]}, "engine.urls = .*expected http://HOST:PORT"),
        ({"urls": ["http://127.0.0.1:8000/v1"]}, "expected http://HOST:PORT"),
        (
            {"urls": ["http://10.0.0.5:8000"]},
            "'http://10.0.0.5:8000' leaves this host without a key: set api_key_env",
        ),
        ({"urls": ["http://localhost.example.org:8000"]}, "leaves this host without a key"),
        ({"urls": ["http://127.0.0.1:8000", "http://127.0.0.1:8000/"]}, "given twice"),
    ],
)
def test_addresses_that_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        build({**ECHO, "engine": {"name": "vllm-server", **settings}}, {})


def test_addresses_that_are_taken():
    for url in (
        "http://localhost:8000",
        "http://[::1]:8000/",
        "http://127.0.0.2:1",
        "https://gpu.example.org",
    ):
        assert VLLMServerSettings(urls=(url,)).urls == (url,)
    assert (
        VLLMServerSettings(urls=("http://10.0.0.5:8000",), api_key_env="KEY").api_key_env == "KEY"
    )


def test_importing_it_imports_neither_vllm_nor_aiohttp():
    code = (
        "import sys, palestra.engines.vllm.server; sys.exit('vllm' in sys.modules or "
        "'aiohttp' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
