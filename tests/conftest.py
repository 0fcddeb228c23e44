"""What tests share: small models made on the spot."""

import os
import signal

os.environ["HF_HUB_OFFLINE"] = "1"  # before it is read: no test asks the network

import pytest
import torch

from palestra.models.tiny import tiny_model
from palestra.models.tokenizers import byte_tokenizer, word_tokenizer

signal.signal(
    signal.SIGINT, signal.default_int_handler
)  # a shell's background job ignores it, and so would the programs tests interrupt


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)  # models this small only get slower with more


@pytest.fixture(scope="session")
def model():
    """A random model with some hundred thousand parameters, in fp32."""
    return tiny_model(
        vocabulary=97,
        width=64,
        layers=2,
        heads=4,
        context=1024,
        stop_id=1,
        seed=3,
        device=torch.device("cpu"),
    )


@pytest.fixture(scope="session")
def words():
    return word_tokenizer(["red", "blue", "green", "say", "right", "wrong"])


@pytest.fixture(scope="session")
def byte_level():
    return byte_tokenizer()
