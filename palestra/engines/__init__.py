"""Engines: where replies come from. Importing this package imports none of them."""

from typing import Any

from palestra.core.registry import Registry

engines: Registry[Any] = Registry(
    "engines",
    {
        "torch": "palestra.engines.torch.engine:TorchEngineSettings",
        "vllm": "palestra.engines.vllm.engine:VLLMSettings",
        "vllm-server": "palestra.engines.vllm.server:VLLMServerSettings",
    },
    base="palestra.core.settings:Settings",
)
