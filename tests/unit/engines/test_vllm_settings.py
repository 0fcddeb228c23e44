"""The vLLM engine where there is no vLLM: it can be configured, and says what is missing."""

import subprocess
import sys

import pytest

from palestra.config.config import build
from palestra.engines.base import EngineFailed
from palestra.engines.vllm import engine as module
from palestra.engines.vllm.settings import VLLMSettings
from tests.support.training import ECHO


def test_a_recipe_can_name_it():
    config = build(ECHO, {"engine": {"name": "vllm", "max_sequences": 32}})
    assert config.engine == VLLMSettings(max_sequences=32)


def test_without_vllm_it_says_so_in_one_line(model, monkeypatch):
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(
        EngineFailed, match=r"^engine.name = 'vllm'[^\n]* pip install 'palestra\[vllm\]'[^\n]*$"
    ):
        VLLMSettings().build(model, 64)


def test_importing_it_does_not_import_vllm():
    code = "import sys, palestra.engines.vllm.engine; sys.exit('vllm' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
