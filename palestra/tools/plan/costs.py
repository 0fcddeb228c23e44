"""Memory and time of the parts of a step, as pure functions.

Constants are fitted to what was measured on one H200 (docs/scaling.md).
"""

from __future__ import annotations

from dataclasses import dataclass

from palestra.tools.plan.machines import Gpu
from palestra.tools.plan.shapes import Shape

# learner
LEARNER_SHARE = 0.47
"""Of a GPU's peak that the learner reaches, attention counted in."""
RECOMPUTED = 4 / 3
"""What activation checkpointing costs: a second forward pass."""
LOGIT_BYTES = 4 * 4 * (1 << 28)
"""Logits, probabilities and their gradients, of as many tokens as are looked at together."""
ALL_REDUCE, PER_ROW = 8, 8
"""Bytes a parameter that go over the link: float32 gradients there and back; bfloat16 weights twice
and float32 gradients once.
"""
LINK_SHARE = 0.7
"""Of a link's speed that is reached."""

# engines
ROOFLINE_TIMES = 2.1
"""A decoding step of the native engine takes so many times what reading weights and cache would
take.
"""
LAYER_S = 1.5e-5
"""What every layer of a decoding step costs whatever its size."""
VLLM_SEQUENCE_S = 1.8e-5
"""What vLLM's scheduler adds to a step for each sequence in it."""
PREFILL_SHARE = 0.5
"""Of a GPU's peak, while the tokens of observations are computed."""
BUSY = 0.55
"""The share of collecting in which an engine's places are all in use: a step ends with its longest
episode.
"""
HAND_OVER_RATE = 58e9
"""Bytes a second at which vLLM takes weights over that are on its own GPU, fingerprints included.

"""
TENSOR_PARALLEL_SHARE = {1: 1.0, 2: 0.9, 4: 0.8, 8: 0.65}
"""Of the speed that as many times the bandwidth would give, for an engine over several GPUs.

Not measured.
"""


@dataclass(frozen=True, slots=True)
class Work:
    """What one training step plays and learns from; tokens are means."""

    episodes: int
    group: int
    turns: float
    reply_tokens: float
    episode_tokens: float
    opening_tokens: float
    """Instructions and first observation: computed once for a group."""
    env_s: float = 0.0
    """What an environment takes for an answer."""

    @property
    def sampled_tokens(self) -> float:
        return self.episodes * self.turns * self.reply_tokens

    @property
    def tokens(self) -> float:
        return self.episodes * self.episode_tokens

    @property
    def shown_tokens(self) -> float:
        """That an engine computes and does not sample."""
        own = max(self.episode_tokens - self.opening_tokens - self.turns * self.reply_tokens, 0.0)
        return self.episodes * (own + self.opening_tokens / self.group)


# memory of a learner, bytes on one GPU


def state_bytes(shape: Shape, *, shards: int, adapter_rank: int | None = None) -> float:
    """Weights to compute with, exact weights, gradients and Adam's moments, divided over `shards`
    GPUs.

    Whole: 2 (bfloat16) + 4 + 4 + 8 bytes a parameter, and 2 for gradients on their way. Sharded: 4
    + 4 + 8, and what is gathered of two layers at a time in bfloat16, with gradients.
    """
    whole = shape.parameters
    if adapter_rank is not None:
        learned = shape.adapter_parameters(adapter_rank)
        return (
            2 * whole / shards
            + 18 * learned
            + (2 * 2 * shape.layer_parameters if shards > 1 else 0)
        )
    if shards == 1:
        return 20 * whole
    head = shape.vocabulary * shape.width
    return 16 * whole / shards + 2 * 2 * max(
        2 * shape.layer_parameters, shape.layer_parameters + head
    )


def row_bytes(shape: Shape, microbatch_tokens: int, *, checkpointing: bool) -> float:
    """What is kept of one row of tokens for the way back, logits included."""
    kv = shape.kv_heads * shape.head_width
    layer = 2 * (9 * shape.width + 2 * kv + 3 * shape.inner)
    kept = 2 * shape.layers * shape.width + layer if checkpointing else shape.layers * layer
    return microbatch_tokens * kept + min(LOGIT_BYTES, 16 * microbatch_tokens * shape.vocabulary)


# memory of an engine


def engine_bytes(shape: Shape, *, tensor_parallel: int) -> float:
    """Weights of its own in bfloat16."""
    return 2 * shape.parameters / tensor_parallel


def cache_bytes(shape: Shape, episodes: float, tokens: float, *, tensor_parallel: int) -> float:
    """Keys and values of so many episodes with room for so many tokens each."""
    return episodes * tokens * shape.cache_bytes / tensor_parallel


# seconds


def learn_seconds(
    shape: Shape,
    gpu: Gpu,
    tokens: float,
    length: float,
    *,
    gpus: int,
    checkpointing: bool,
    sharded: bool,
    microbatch_tokens: int,
    link: float,
) -> float:
    """Forward, backward and the optimizer's step.

    Sharded weights are gathered for every row, beside the work on it.
    """
    own_tokens = max(tokens / gpus, min(tokens, microbatch_tokens))  # a row is not divided
    flops = own_tokens * (6 * shape.parameters + 6 * shape.layers * shape.width * length)
    compute = flops * (RECOMPUTED if checkpointing else 1) / (gpu.flops * LEARNER_SHARE)
    if gpus == 1:
        return compute
    if not sharded:
        return compute + ALL_REDUCE * shape.parameters / (link * LINK_SHARE)
    return max(
        compute, own_tokens / microbatch_tokens * PER_ROW * shape.parameters / (link * LINK_SHARE)
    )


def decode_seconds(
    shape: Shape, gpu: Gpu, episodes: float, length: float, *, tensor_parallel: int, vllm: bool
) -> float:
    """One token for each of so many episodes of this length: reading weights and cache is what
    takes time.
    """
    read = 2 * shape.parameters + episodes * length * shape.cache_bytes
    reading = (
        ROOFLINE_TIMES
        * read
        / (gpu.bandwidth * tensor_parallel * TENSOR_PARALLEL_SHARE[tensor_parallel])
    )
    return reading + shape.layers * LAYER_S + (episodes * VLLM_SEQUENCE_S if vllm else 0.0)


def collect_seconds(
    shape: Shape,
    gpu: Gpu,
    work: Work,
    *,
    engines: int,
    tensor_parallel: int,
    slots: int,
    vllm: bool,
) -> float:
    """All episodes of a step, divided over the engines."""
    share = work.episodes / engines
    live = max(min(share, slots), 1.0)
    step = decode_seconds(
        shape, gpu, live, 0.6 * work.episode_tokens, tensor_parallel=tensor_parallel, vllm=vllm
    )
    longest = work.turns * work.reply_tokens
    decoding = max(work.sampled_tokens / engines / live, longest) * step
    speed = gpu.flops * tensor_parallel * TENSOR_PARALLEL_SHARE[tensor_parallel] * PREFILL_SHARE
    showing = 2 * shape.parameters * work.shown_tokens / engines / speed
    return (decoding + showing) / BUSY + max(share / live, 1.0) * work.turns * work.env_s


def hand_over_seconds(
    shape: Shape, *, link: float, moved: bool, vllm: bool, tensor_parallel: int
) -> float:
    """Until the engines have the new weights: nothing where they are the learner's own.

    `moved`: they come from other GPUs.
    """
    own = 2 * shape.parameters
    return (own / (link * LINK_SHARE) if moved else 0.0) + (
        own / tensor_parallel / HAND_OVER_RATE if vllm else 0.0
    )
