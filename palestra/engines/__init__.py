"""Engines: where replies come from. Importing this package imports none of them."""

from typing import Any

from palestra.core.registry import Registry

engines: Registry[Any] = Registry(
    "engines",
    {
        "torch": "palestra.engines.torch.settings:TorchEngineSettings",
        "vllm": "palestra.engines.vllm.settings:VLLMSettings",
        "vllm-server": "palestra.engines.vllm.settings:VLLMServerSettings",
    },
    base="palestra.core.settings:Settings",
)
