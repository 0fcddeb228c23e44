"""Engines: where replies come from. Importing this package imports none of them."""

from typing import Any

from palestra.registry import Registry

engines: Registry[Any] = Registry(
    "engines",
    {
        "native": "palestra.engines.native:NativeSettings",
        "vllm": "palestra.engines.vllm:VLLMSettings",
        "vllm-server": "palestra.engines.vllm_server:VLLMServerSettings",
    },
    base="palestra.settings:Settings",
)
