"""What vLLM in process and vLLM as servers share: what is asked of it, what is refused, and how its
weights are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from palestra.core.types import Sampling
from palestra.engines.base import EngineFailed
from palestra.engines.fingerprint import differences
from palestra.engines.vllm.weight_layout import as_learners
from palestra.models.lora import plain_name

COOLEST, HOTTEST = 0.01, 2.0
"""Temperatures other than 0 that vLLM takes as they are."""
LOGPROBS_MODE = "processed_logprobs"
"""At the sampling temperature, and at 1 where tokens are taken greedily; "raw" is at 1 always."""
WEIGHTS_FILE = "model.safetensors"
"""In the folder by which weights are handed over."""


def sampling_arguments(sampling: Sampling) -> dict[str, Any]:
    """`Sampling` as arguments of vLLM's SamplingParams; what vLLM would do otherwise than we mean
    is refused.
    """
    greedy = sampling.temperature == 0
    if not greedy and not COOLEST <= sampling.temperature <= HOTTEST:
        raise ValueError(
            f"temperature = {sampling.temperature}: vLLM takes 0, or {COOLEST} to {HOTTEST}"
        )
    if not greedy and (sampling.top_p < 1 or sampling.top_k > 0):
        raise ValueError(
            "top_p and top_k: vLLM reports log-probs after the cut, and training needs "
            "those before it"
        )
    return {
        "temperature": sampling.temperature,
        "max_tokens": sampling.max_tokens,
        "stop_token_ids": list(sampling.stop_ids),
        "ignore_eos": True,
        "seed": sampling.seed,
        "logprobs": 0,
        "detokenize": False,
    }


def check_length(ids: Sequence[int], sampling: Sampling, context_tokens: int) -> None:
    if len(ids) + sampling.max_tokens > context_tokens:
        raise ValueError(
            f"{len(ids)} tokens and a reply of {sampling.max_tokens} exceed the context "
            f"of {context_tokens}"
        )


def check_ids(ids: Sequence[int], vocabulary: int) -> None:
    """vLLM looks ids up without a check: a wrong one ends its process."""
    if min(ids) < 0 or max(ids) >= vocabulary:
        raise ValueError(f"token ids from {min(ids)} to {max(ids)} in a vocabulary of {vocabulary}")


def check_finish(reason: str | None) -> None:
    if reason not in ("stop", "length"):
        raise EngineFailed(
            f"vLLM ended a reply for another reason than its length or a stop token: {reason}"
        )


def weight_shapes(model: PreTrainedModel) -> dict[str, torch.Size]:
    """By the names of `plain_weights`."""
    return {
        plain_name(name): weight.shape
        for name, weight in model.named_parameters()
        if ".lora_" not in name
    }


def _alone(weight: Tensor) -> Sequence[Tensor]:
    return [weight]


def weights_by_our_names(
    model: Any,
    shapes: Mapping[str, torch.Size],
    shards_of: Callable[[Tensor], Sequence[Tensor]] = _alone,
    *,
    worker: int = 0,
) -> Iterator[tuple[str, Tensor]]:
    """The weights of vLLM's `model` under the learner's names, in the learner's `shapes`.

    Of several workers each has a `model` with a share of every weight; `shards_of` asks all of them
    for theirs.
    """
    shards = ((name, shards_of(weight)) for name, weight in model.named_parameters())
    return as_learners(shards, model.packed_modules_mapping, shapes, worker=worker)


def check_fingerprints(whose: str, expected: Mapping[str, int], found: Mapping[str, int]) -> None:
    """A weight that is not the learner's is an error."""
    wrong = differences(expected, found)
    if wrong:
        more = f" (and {len(wrong) - 3} more)" if len(wrong) > 3 else ""
        raise EngineFailed(
            f"{whose} weights are not the learner's after the hand-over: "
            f"{'; '.join(wrong[:3])}{more}"
        )


def leave_weights_unpacked() -> None:
    """On CPUs vLLM packs the weights of linear layers away, where they can neither be overwritten
    nor compared.
    """
    from vllm.model_executor.layers import utils

    def plain(layer: Any, remove_weight: bool) -> None:
        layer.cpu_linear = torch.nn.functional.linear

    utils.dispatch_cpu_unquantized_gemm = plain
