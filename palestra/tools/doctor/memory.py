"""Memory: what a run needs, measured where there is a GPU and estimated elsewhere, and the largest
sizes that fit.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass

import psutil
import torch
from transformers import PreTrainedModel

from palestra.algos.batch import Batch, pack
from palestra.algos.grpo import GRPO
from palestra.config.config import Config
from palestra.config.optimizer import OptimizerConfig
from palestra.core.types import Segment, Stop, Task, Trajectory, Turn
from palestra.engines.torch.settings import TorchEngineSettings
from palestra.learner.chunked_logprob import MOST_LOGITS
from palestra.learner.learner import Learner
from palestra.tools.doctor.env_checks import master_bytes, reference_bytes
from palestra.tools.doctor.result import Verdict, check, size
from palestra.training.setup import Components, setup

SHARE = 0.95
"""Of all memory: the rest is for fragments and for what was not thought of."""
MOST_ROW_TOKENS = 131_072
"""Longer rows are no faster."""


@dataclass(frozen=True, slots=True)
class Need:
    """Bytes, by what they are for."""

    weights: int
    """The critic's among them, the exact ones where the model computes in less, and the engine's
    where it has its own.
    """
    training: int
    """Gradients and moments."""
    reference: int
    activations: int
    """Of one row, logits included."""
    cache: int
    """Keys and values of all slots, where the engine keeps them in this process."""

    @property
    def still(self) -> int:
        """What is not there yet when the model has been loaded."""
        return self.training + self.reference + self.activations + self.cache

    def __str__(self) -> str:
        parts = {"weights": self.weights, "training": self.training, "reference": self.reference}
        parts |= {"a row": self.activations, "cache": self.cache}
        return " + ".join(f"{name} {size(count)}" for name, count in parts.items() if count)


def estimate(learner: Learner, config: Config, *, microbatch_tokens: int, slots: int) -> Need:
    """From the shapes of the model.

    Rows are as long as an episode may be, even where `microbatch_tokens` is less.
    """
    model = learner.model
    weights = sum(p.nbytes for p in model.parameters())
    critic = sum(p.nbytes for p in learner.critic.parameters()) if learner.critic is not None else 0
    tokens = max(microbatch_tokens, config.agent.context_tokens)
    copies = (
        2 if config.rollout.is_concurrent and isinstance(config.engine, TorchEngineSettings) else 1
    )
    has_own_trunk = learner.critic is not None and learner.critic.trunk is not None
    return Need(
        weights=copies * weights + critic + master_bytes(learner),
        training=3 * sum(p.nbytes for p in learner.trained().values()),
        reference=reference_bytes(learner) if config.algo.keeps_reference else 0,
        activations=tokens * bytes_per_token(model, config.optim) * (2 if has_own_trunk else 1)
        + logit_bytes(model, tokens),
        cache=slots * slot_bytes(model, config.agent.context_tokens)
        if isinstance(config.engine, TorchEngineSettings)
        else 0,
    )


def bytes_per_token(model: PreTrainedModel, optim: OptimizerConfig) -> int:
    """What each layer keeps of a token for the way back: measured, 26 vectors of its width and four
    of the inner one.

    With activation checkpointing it is what enters each layer, and one layer at a time in full.
    """
    shape = model.config.get_text_config()
    layers, width = shape.num_hidden_layers, shape.hidden_size
    inner = getattr(shape, "intermediate_size", None) or 4 * width
    full_tensor = 26 * width + 4 * inner
    return int(
        (layers * width + full_tensor if optim.activation_checkpointing else layers * full_tensor)
        * model.dtype.itemsize
    )


def logit_bytes(model: PreTrainedModel, tokens: int) -> int:
    """Logits, probabilities and their gradients in float32, of as many tokens as are looked at
    together.
    """
    return 4 * 4 * min(tokens * int(model.config.get_text_config().vocab_size), MOST_LOGITS)


def slot_bytes(model: PreTrainedModel, context_tokens: int) -> int:
    """Keys and values of one slot of the native engine."""
    shape = model.config.get_text_config()
    heads = getattr(shape, "num_key_value_heads", None) or shape.num_attention_heads
    dim = getattr(shape, "head_dim", None) or shape.hidden_size // shape.num_attention_heads
    return int(
        2 * shape.num_hidden_layers * heads * (context_tokens + 1) * dim * model.dtype.itemsize
    )


@check("memory fits")
def check_memory(parts: Components, *, available: int | None = None) -> Verdict:
    """One update of the longest row. `available`: bytes, in place of what the machine has."""
    config, learner = parts.config, parts.learner
    slots = config.engine.slots if isinstance(config.engine, TorchEngineSettings) else 0
    need = estimate(learner, config, microbatch_tokens=config.optim.microbatch_tokens, slots=slots)
    tokens = max(config.optim.microbatch_tokens, config.agent.context_tokens)
    if learner.model.device.type != "cuda":
        room = psutil.virtual_memory().available if available is None else available
        return Verdict(
            need.still <= SHARE * room,
            need.still,
            f"estimated: {need}; {size(need.still)} more of {size(room)} available",
        )
    total = torch.cuda.mem_get_info(learner.model.device)[1] if available is None else available
    peak = measured_peak(learner, tokens, config.agent.context_tokens) + need.reference
    told = (
        f"measured: a row of {tokens} tokens takes memory to {size(peak)} of {size(total)}; "
        f"estimated: {need}"
    )
    return Verdict(peak <= SHARE * total, peak, told)


def measured_peak(learner: Learner, tokens: int, context_tokens: int) -> int:
    """The most memory in use on the GPU, by anyone, while one row is learned from."""
    device = learner.model.device
    gc.collect()
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(device)
    elsewhere = total - free - torch.cuda.memory_reserved(device)
    torch.cuda.reset_peak_memory_stats(device)
    try:
        learn_one_row(learner, tokens, context_tokens)
        return elsewhere + torch.cuda.max_memory_reserved(device)
    finally:
        torch.cuda.empty_cache()


def learn_one_row(learner: Learner, tokens: int, context_tokens: int) -> None:
    """A whole update on one row of this length, at a learning rate of 0: it leaves the weights as
    they are.
    """
    model, optim = learner.model, learner.optim
    learner.optim = optim.model_copy(update={"microbatch_tokens": tokens})
    try:
        batch = made_up(tokens, context_tokens, model.config.get_text_config().vocab_size).to(
            model.device
        )
        learner.update(batch, GRPO(), lr=0.0, step=0, minibatches=1, epochs=1)
    finally:
        learner.optim = optim
        model.zero_grad(set_to_none=True)
        learner.reset_optimizer()


def made_up(tokens: int, context_tokens: int, vocabulary: int) -> Batch:
    """Segments as long as the context allows, in which all tokens but the first were chosen:
    nothing can need more.
    """
    generator = torch.Generator().manual_seed(0)
    lengths = [min(context_tokens, tokens - start) for start in range(0, tokens, context_tokens)]
    lengths = [length for length in lengths if length > 1]
    trajectories = []
    for number, length in enumerate(lengths):
        ids = torch.randint(0, vocabulary, (length,), generator=generator).tolist()
        segment = Segment(
            ids, [0] + [1] * (length - 1), [0.0] + [-1.0] * (length - 1), [-1] + [0] * (length - 1)
        )
        turn = Turn("", "", "", 0.0, (1, length))
        trajectories.append(
            Trajectory(
                str(number), Task("", "", ""), [segment], [turn], Stop.DONE, None, horizon=1, seed=0
            )
        )
    batch = pack([trajectories])
    return batch.with_(advantage_C=torch.ones(len(batch.trajectory_C)))


def largest(fits: Callable[[int], bool], least: int, most: int) -> int:
    """The largest number that fits, to a sixteenth; 0 where not even `least` does.

    Doubles first, then halves the gap.
    """
    if not fits(least):
        return 0
    low, high = least, most + 1
    while low < most:
        trial = min(2 * low, most)
        if not fits(trial):
            high = trial
            break
        low = trial
    while high - low > max(low // 16, 1) and low < most:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


@check("largest sizes that fit")
def check_fit(config: Config, *, available: int | None = None) -> Verdict:
    """Slots for all episodes in flight as far as they fit beside one longest row, and then the
    longest rows beside these slots.
    """
    wanted = min(
        config.rollout.concurrency,
        config.rollout.tasks * max(spec.group for spec in config.env_specs),
    )
    is_native = isinstance(config.engine, TorchEngineSettings)
    bare = (
        config.model_copy(update={"engine": config.engine.model_copy(update={"slots": 1})})
        if is_native
        else config
    )
    parts = setup(bare)
    try:
        is_cuda = parts.learner.model.device.type == "cuda"
        room = psutil.virtual_memory().available if available is None else available

        def fits(microbatch_tokens: int, slots: int) -> bool:
            if is_cuda:
                return _fits_on_gpu(parts, microbatch_tokens, slots)
            return (
                estimate(
                    parts.learner, config, microbatch_tokens=microbatch_tokens, slots=slots
                ).still
                <= SHARE * room
            )

        shortest = config.agent.context_tokens
        slots = largest(lambda slots: fits(shortest, slots), 1, wanted) if is_native else 0
        rows = (
            largest(lambda tokens: fits(tokens, slots), shortest, max(MOST_ROW_TOKENS, shortest))
            if slots or not is_native
            else 0
        )
    finally:
        parts.close()
    if not rows:
        return Verdict(
            False,
            0,
            f"not even one row of {shortest} tokens fits; lower agent.context_tokens or "
            "take a smaller model",
        )
    flags = f"--optim.microbatch_tokens {rows}" + (f" --engine.slots {slots}" if is_native else "")
    return Verdict(
        True, rows, flags if is_cuda else f"{flags} (estimated: it is measured only on CUDA)"
    )


def _fits_on_gpu(parts: Components, microbatch_tokens: int, slots: int) -> bool:
    """Whether a row can be learned from while so many slots are held."""
    learner, context = parts.learner, parts.config.agent.context_tokens
    total = torch.cuda.mem_get_info(learner.model.device)[1]
    reference = reference_bytes(learner) if parts.config.algo.keeps_reference else 0
    held = max(slots - 1, 0) * slot_bytes(learner.model, context) + reference
    cache = None
    try:
        cache = torch.empty(held, dtype=torch.uint8, device=learner.model.device)
        return measured_peak(learner, microbatch_tokens, context) <= SHARE * total
    except torch.cuda.OutOfMemoryError:
        return False
    finally:
        del cache
        torch.cuda.empty_cache()
