"""Engines: token ids in, sampled token ids and their log-probs out.

Importing this package imports no engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from palestra.core.registry import Registry

if TYPE_CHECKING:
    from palestra.engines.base import EngineSettings

engines: Registry[type[EngineSettings]] = Registry(
    "engines",
    {
        "torch": "palestra.engines.torch.settings:TorchEngineSettings",
        "vllm": "palestra.engines.vllm.settings:VLLMSettings",
        "vllm-server": "palestra.engines.vllm.settings:VLLMServerSettings",
    },
    base="palestra.engines.base:EngineSettings",
)
