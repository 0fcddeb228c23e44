"""vLLM servers in processes of their own on a CUDA device: weights go there through a file, and
must arrive bit for bit.
"""

from importlib.util import find_spec

import pytest
import torch

from tests.slow.test_vllm_server import TestOnCPU as OnAnyDevice
from tests.slow.test_vllm_server import (
    test_another_run_on_the_same_server_is_noticed as _another_run,
)
from tests.support.vllm_contract import contract_model
from tests.support.vllm_servers import connect, serving

needs_vllm = pytest.mark.skipif(
    find_spec("vllm") is None or not torch.cuda.is_available(),
    reason="needs a CUDA device and vLLM",
)
pytestmark = [pytest.mark.gpu, pytest.mark.timeout(900), needs_vllm]


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    with serving(
        contract_model(128, "cuda"),
        tmp_path_factory.mktemp("model"),
        "--gpu-memory-utilization",
        "0.05",
    ) as running:
        yield running


@pytest.fixture(scope="module")
def engine(servers):
    return connect(servers)


class TestOnCUDA(OnAnyDevice):
    # TensorFloat-32: rounding what the layers say to its 10 bits makes 0.017 on a CPU, at
    # temperature 0.5
    logprob_error = 0.06


def test_another_run_on_the_same_server_is_noticed(servers):
    _another_run(servers)
