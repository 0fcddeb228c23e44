"""Attention of engine and learner: one function for any layout of tokens.

Engine and learner run the same module through it. The `Layout` of the tokens (packed segments, or
requests over KV cache slots) is an argument of the forward pass.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from functools import cache, partial
from itertools import accumulate
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention.varlen import varlen_attn
from transformers import PreTrainedModel
from transformers.modeling_utils import AttentionInterface

from palestra.models.weights import fp32_or_wider

ATTENTION = "palestra"


class Layout(Protocol):
    """Which tokens of a forward pass attend to which."""

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, *, scale: float, layer: int
    ) -> Tensor:
        """All [1, heads, tokens, dim]; the result like `query`."""


def _attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    layout: Layout | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Transformers calls this in every layer.

    Without a layout it is plain attention under the given mask.
    """
    if others.get("softcap") is not None or others.get("s_aux") is not None:
        raise NotImplementedError(
            "models with soft-capped attention or attention sinks are not supported"
        )
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    if layout is not None:
        out = layout.attend(query, key, value, scale=scale, layer=int(module.layer_idx))  # type: ignore[arg-type]
    else:
        is_causal = attention_mask is None and query.shape[2] > 1
        out = sdpa(query, key, value, scale=scale, mask=attention_mask, is_causal=is_causal)
    return out.transpose(1, 2).contiguous(), None


AttentionInterface.register(ATTENTION, _attention)


@cache
def keep_attention_eager() -> None:
    """Exclude attention from torch.compile: a layout is a Python object with other lengths in every
    call. Cached, because a second wrapper would be another function and trigger a recompilation.
    """
    AttentionInterface.register(ATTENTION, torch.compiler.disable(_attention))


def sdpa(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    scale: float,
    mask: Tensor | None = None,
    is_causal: bool = False,
) -> Tensor:
    """Scaled dot-product attention, with grouped queries if the model has fewer key heads.

    In decoding, with one token per row, the query heads of a group are treated as tokens of their
    key head: on a CPU in bfloat16 this is ten times faster.
    """
    rows, heads, tokens, dim = query.shape
    if tokens == 1 and heads != key.shape[1]:
        grouped = query.reshape(rows, key.shape[1], -1, dim)
        out = functional.scaled_dot_product_attention(
            grouped, key, value, attn_mask=mask, scale=scale
        )
        return out.reshape(query.shape)
    return functional.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=mask,
        is_causal=is_causal,
        scale=scale,
        enable_gqa=query.shape[1] != key.shape[1],
    )


@dataclass(frozen=True, slots=True)
class SharedPrefixes:
    """A prefix that a segment shares with the one before it is computed once: attention is causal,
    so its hidden states are the same in both.
    """

    kept_R: Tensor
    """The indices of the computed tokens."""
    index_T: Tensor
    """The index of each token among the computed ones."""
    new_S: list[int]
    """The number of computed tokens in each segment."""

    @classmethod
    def of(cls, lengths: list[int], shared: list[int], device: torch.device) -> SharedPrefixes:
        """`shared`: the length of the prefix that each segment shares with the one before it."""
        new = [length - prefix for length, prefix in zip(lengths, shared, strict=True)]
        kept, index, start, computed = [], [], 0, 0
        last = torch.empty(0, dtype=torch.long)
        for length, prefix, own in zip(lengths, shared, new, strict=True):
            kept.append(torch.arange(start + prefix, start + length))
            last = torch.cat([last[:prefix], torch.arange(computed, computed + own)])
            index.append(last)
            start, computed = start + length, computed + own
        return cls(torch.cat(kept).to(device), torch.cat(index).to(device), new)


class PackedLayout:
    """Packed segments: each token attends to its own segment, up to itself.

    Shared prefixes are computed once.
    """

    def __init__(self, lengths: list[int], shared: SharedPrefixes | None = None) -> None:
        self.lengths = lengths
        self.new = lengths if shared is None else shared.new_S
        self.places = None if shared is None or shared.new_S == lengths else shared.index_T
        self._bounds: tuple[Tensor, Tensor] | None = None

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, *, scale: float, layer: int
    ) -> Tensor:
        if self.places is not None:
            key, value = (Spread.apply(x, self.places) for x in (key, value))
        if query.device.type == "cuda" and query.dtype != torch.float32:
            return self._attend_at_once(query, key, value, scale)
        queries = query.split(self.new, dim=2)
        keys = key.split(self.lengths, dim=2)
        values = value.split(self.lengths, dim=2)
        segments = zip(queries, keys, values, strict=True)
        return torch.cat([_attend_piece(q, k, v, scale) for q, k, v in segments], dim=2)

    def _attend_at_once(self, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Flash attention over sequences of any lengths, which supports half precision only."""
        if self._bounds is None:
            # Cumulative sequence lengths of queries and of keys.
            bounds = partial(torch.tensor, dtype=torch.int32, device=query.device)
            new, full = [0, *accumulate(self.new)], [0, *accumulate(self.lengths)]
            self._bounds = (bounds(new), bounds(full))
        q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))
        longest = (max(self.new), max(self.lengths))
        out = varlen_attn(
            q, k, v, *self._bounds, *longest, scale=scale, window_size=(-1, 0), **_GROUPED
        )
        assert isinstance(out, Tensor)
        return out.transpose(0, 1)[None]


def _attend_piece(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    """Attention of a segment's last tokens, or of all of them, to the whole segment."""
    new, total = query.shape[2], key.shape[2]
    if new == total:
        return sdpa(query, key, value, scale=scale, is_causal=True)
    mask = torch.ones(new, total, dtype=torch.bool, device=query.device).tril_(total - new)
    return sdpa(query, key, value, scale=scale, mask=mask)


class Spread(torch.autograd.Function):
    """Copies tokens to all segments that share them; the backward pass sums their gradients in
    float32.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, places: Tensor) -> Tensor:
        ctx.save_for_backward(places)
        ctx.tokens = x.shape[2]
        return x.index_select(2, places)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (gradient,) = gradients
        (places,) = ctx.saved_tensors
        heads, dim = gradient.shape[1], gradient.shape[3]
        dtype = fp32_or_wider(gradient.dtype)
        total = torch.zeros(1, heads, ctx.tokens, dim, device=gradient.device, dtype=dtype)
        return total.index_add_(2, places, gradient.to(dtype)).to(gradient.dtype), None


_GROUPED: dict[str, Any] = (
    {"enable_gqa": True} if "enable_gqa" in inspect.signature(varlen_attn).parameters else {}
)
"""Newer versions of torch need a flag for grouped queries."""


def hidden_states(model: PreTrainedModel, ids: Tensor, positions: Tensor, **extra: Any) -> Tensor:
    """The last hidden states, before the head. `ids` and `positions` are [rows, tokens]."""
    return trunk_states(model.base_model, ids, positions, **extra)


def trunk_states(trunk: torch.nn.Module, ids: Tensor, positions: Tensor, **extra: Any) -> Tensor:
    """The same of a network without a head."""
    states: Tensor = trunk(
        input_ids=ids, position_ids=positions, use_cache=False, **extra
    ).last_hidden_state
    return states


def logits_of(model: PreTrainedModel, hidden: Tensor) -> Tensor:
    """The logits in float32: rounded to bfloat16, a logit of 20 would be off by 0.06."""
    head = model.get_output_embeddings()
    is_half_on_gpu = hidden.device.type == "cuda" and hidden.dtype != torch.float32
    # `out_dtype` has no backward pass.
    if is_half_on_gpu and head.bias is None and not torch.is_grad_enabled():
        return torch.mm(hidden, head.weight.t(), out_dtype=torch.float32)
    return head(hidden).float()
