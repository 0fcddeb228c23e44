"""Attention of engine and learner: one function for any layout of tokens.

Engine and learner run the same module through it. How its tokens are laid out (segments end to end,
or requests over cache slots) is a `Layout` that travels with the call.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from functools import cache
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
    """Which of the tokens in a call may see each other."""

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


@cache  # a second one would be another function to a compiler, which would begin anew
def keep_attention_eager() -> None:
    """Let compilers leave attention out: a layout is a Python object with other lengths in every
    call.
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
    """Scaled dot-product attention, with fewer key heads than query heads where the model has it
    so.

    Of one token each, the query heads that have a key head in common look at it together: on a CPU
    that is ten times as fast in bfloat16.
    """
    rows, heads, tokens, dim = query.shape
    if tokens == 1 and heads != key.shape[1]:
        together = query.reshape(rows, key.shape[1], -1, dim)
        return functional.scaled_dot_product_attention(
            together, key, value, attn_mask=mask, scale=scale
        ).reshape(query.shape)
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
    """What segments have in common with the one before them is computed once, as its hidden states
    depend on nothing that follows.
    """

    kept_R: Tensor
    """The tokens that are computed."""
    index_T: Tensor
    """Where each token is among those."""
    new_S: list[int]
    """How many of those belong to each segment."""

    @classmethod
    def of(cls, lengths: list[int], shared: list[int], device: torch.device) -> SharedPrefixes:
        """`shared`: how many tokens each segment begins with like the one before it."""
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
    """Segments end to end: each token sees its own segment, up to itself.

    What segments share is there once.
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
        pieces = zip(
            query.split(self.new, dim=2),
            *(x.split(self.lengths, dim=2) for x in (key, value)),
            strict=True,
        )
        return torch.cat([_attend_piece(q, k, v, scale) for q, k, v in pieces], dim=2)

    def _attend_at_once(self, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """By flash attention over sequences of any lengths, which takes half precision only."""
        if self._bounds is None:
            new, whole = (
                torch.tensor([0, *accumulate(n)], dtype=torch.int32, device=query.device)
                for n in (self.new, self.lengths)
            )
            self._bounds = (new, whole)
        q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))
        longest = (max(self.new), max(self.lengths))
        out = varlen_attn(
            q, k, v, *self._bounds, *longest, scale=scale, window_size=(-1, 0), **_GROUPED
        )
        assert isinstance(out, Tensor)
        return out.transpose(0, 1)[None]


def _attend_piece(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    """The last tokens of a segment, or all of them, against all of it."""
    new, whole = query.shape[2], key.shape[2]
    if new == whole:
        return sdpa(query, key, value, scale=scale, is_causal=True)
    mask = torch.ones(new, whole, dtype=torch.bool, device=query.device).tril_(whole - new)
    return sdpa(query, key, value, scale=scale, mask=mask)


class Spread(torch.autograd.Function):
    """Tokens to all places that have them in common; backwards their gradients are added up in
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
        exact = fp32_or_wider(gradient.dtype)
        total = torch.zeros(1, heads, ctx.tokens, dim, device=gradient.device, dtype=exact)
        return total.index_add_(2, places, gradient.to(exact)).to(gradient.dtype), None


_GROUPED: dict[str, Any] = (
    {"enable_gqa": True} if "enable_gqa" in inspect.signature(varlen_attn).parameters else {}
)
"""Newer versions of torch want to be told that there may be fewer key heads than query heads."""


def hidden_states(model: PreTrainedModel, ids: Tensor, positions: Tensor, **extra: Any) -> Tensor:
    """The last layer's output, before the head. `ids` and `positions` are [rows, tokens]."""
    return trunk_states(model.base_model, ids, positions, **extra)


def trunk_states(trunk: torch.nn.Module, ids: Tensor, positions: Tensor, **extra: Any) -> Tensor:
    """The same of a network without a head."""
    states: Tensor = trunk(
        input_ids=ids, position_ids=positions, use_cache=False, **extra
    ).last_hidden_state
    return states


def logits_of(model: PreTrainedModel, hidden: Tensor) -> Tensor:
    """What the head makes of hidden states, in float32: rounded to bfloat16, a logit of 20 would be
    off by 0.06.
    """
    head = model.get_output_embeddings()
    if (
        hidden.device.type != "cuda"
        or hidden.dtype == torch.float32
        or head.bias is not None
        or torch.is_grad_enabled()
    ):
        return head(hidden).float()
    return torch.mm(hidden, head.weight.t(), out_dtype=torch.float32)
