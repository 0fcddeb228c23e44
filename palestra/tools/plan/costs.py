"""Memory and time of the parts of a step, as pure functions.

Constants are fitted to what was measured on one H200 (docs/guides/scaling.md).
"""

from __future__ import annotations

from dataclasses import dataclass

from palestra.tools.plan.machines import Gpu
from palestra.tools.plan.shapes import Shape

# learner
LEARNER_SHARE = 0.47
"""The share of a GPU's peak that the learner reaches, counting attention."""
RECOMPUTED = 4 / 3
"""The cost of activation checkpointing: a second forward pass."""
LOGIT_BYTES = 4 * 4 * (1 << 28)
"""Logits, probabilities and their gradients, of one chunk of tokens."""
ALL_REDUCE, PER_ROW = 8, 8
"""Bytes a parameter that go over the link: float32 gradients in both directions; bfloat16 weights
twice and float32 gradients once.
"""
LINK_SHARE = 0.7
"""The share of a link's speed that is reached."""

# engines
ROOFLINE_TIMES = 2.1
"""The time of a decoding step of the torch engine, in multiples of reading weights and cache."""
LAYER_S = 1.5e-5
"""The fixed cost of every layer in a decoding step."""
VLLM_SEQUENCE_S = 1.8e-5
"""The time that vLLM's scheduler adds to a step for each sequence in it."""
PREFILL_SHARE = 0.5
"""The share of a GPU's peak that is reached in prefill."""
BUSY = 0.55
"""The share of collecting in which an engine's slots are all in use: a step ends with its longest
episode.
"""
HAND_OVER_RATE = 58e9
"""Bytes a second at which vLLM copies weights that are on its own GPU, fingerprints included."""
TENSOR_PARALLEL_SHARE = {1: 1.0, 2: 0.9, 4: 0.8, 8: 0.65}
"""The share of the added bandwidth that an engine over several GPUs makes use of. Not measured."""


@dataclass(frozen=True, slots=True)
class Work:
    """The work of one training step; tokens are means."""

    episodes: int
    group: int
    turns: float
    reply_tokens: float
    episode_tokens: float
    opening_tokens: float
    """Instructions and first observation: computed once for a group."""
    env_s: float = 0.0
    """The time of an environment's step."""

    @property
    def sampled_tokens(self) -> float:
        return self.episodes * self.turns * self.reply_tokens

    @property
    def tokens(self) -> float:
        return self.episodes * self.episode_tokens

    @property
    def shown_tokens(self) -> float:
        """Tokens that an engine computes and does not sample."""
        own = max(self.episode_tokens - self.opening_tokens - self.turns * self.reply_tokens, 0.0)
        return self.episodes * (own + self.opening_tokens / self.group)


# memory of a learner, bytes on one GPU


def state_bytes(shape: Shape, *, shards: int, adapter_rank: int | None = None) -> float:
    """Weights, master weights, gradients and Adam's moments, divided over `shards` GPUs.

    Not sharded: 2 (bfloat16) + 4 + 4 + 8 bytes a parameter, and 2 for the bfloat16 gradients.
    Sharded: 4 + 4 + 8, and two layers at a time, gathered in bfloat16 with their gradients.
    """
    parameters = shape.parameters
    if adapter_rank is not None:
        learned = shape.adapter_parameters(adapter_rank)
        gathered = 2 * 2 * shape.layer_parameters if shards > 1 else 0
        return 2 * parameters / shards + 18 * learned + gathered
    if shards == 1:
        return 20 * parameters
    head = shape.vocabulary * shape.width
    gathered = 2 * 2 * max(2 * shape.layer_parameters, shape.layer_parameters + head)
    return 16 * parameters / shards + gathered


def row_bytes(shape: Shape, microbatch_tokens: int, *, checkpointing: bool) -> float:
    """Activations that one row of tokens keeps for the backward pass, and its logits."""
    kv = shape.kv_heads * shape.head_width
    layer = 2 * (9 * shape.width + 2 * kv + 3 * shape.inner)
    kept = shape.layers * layer
    if checkpointing:
        # Each layer keeps its input; one layer at a time is computed again.
        kept = 2 * shape.layers * shape.width + layer
    return microbatch_tokens * kept + min(LOGIT_BYTES, 16 * microbatch_tokens * shape.vocabulary)


# memory of an engine


def engine_bytes(shape: Shape, *, tensor_parallel: int) -> float:
    """An engine's copy of the weights, in bfloat16."""
    return 2 * shape.parameters / tensor_parallel


def cache_bytes(shape: Shape, episodes: float, tokens: float, *, tensor_parallel: int) -> float:
    """The keys and values of this many episodes with this many tokens each."""
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
    """The time of the forward and backward passes and the optimizer's step.

    Sharded weights are gathered for every row, concurrently with its computation.
    """
    own_tokens = max(tokens / gpus, min(tokens, microbatch_tokens))  # a row is not divided
    flops = own_tokens * (6 * shape.parameters + 6 * shape.layers * shape.width * length)
    compute = flops * (RECOMPUTED if checkpointing else 1) / (gpu.flops * LEARNER_SHARE)
    if gpus == 1:
        return compute
    if not sharded:
        return compute + ALL_REDUCE * shape.parameters / (link * LINK_SHARE)
    gathering = own_tokens / microbatch_tokens * PER_ROW * shape.parameters / (link * LINK_SHARE)
    return max(compute, gathering)


def decode_seconds(
    shape: Shape, gpu: Gpu, episodes: float, length: float, *, tensor_parallel: int, vllm: bool
) -> float:
    """The time of one token for each of this many episodes of this length. It is bound by reading
    the weights and the cache.
    """
    read = 2 * shape.parameters + episodes * length * shape.cache_bytes
    speed = gpu.bandwidth * tensor_parallel * TENSOR_PARALLEL_SHARE[tensor_parallel]
    scheduling = episodes * VLLM_SEQUENCE_S if vllm else 0.0
    return ROOFLINE_TIMES * read / speed + shape.layers * LAYER_S + scheduling


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
    """The time of all episodes of a step, divided over the engines."""
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
    """The time of a weight sync: none if engine and learner share the weights.

    `moved`: the weights come from other GPUs.
    """
    own = 2 * shape.parameters
    moving = own / (link * LINK_SHARE) if moved else 0.0
    loading = own / tensor_parallel / HAND_OVER_RATE if vllm else 0.0
    return moving + loading
