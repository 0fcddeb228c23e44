"""How the CUDA graphs of the torch engine run a model: by ten kernels per layer for Llama's layout,
else by the model's own modules.

A decoding step of a small model is a few hundred kernels whose launch takes as long as their work,
so that their number determines the cost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from palestra.engines.torch import kernels
from palestra.engines.torch.slots import SlotCache
from palestra.models.attention import hidden_states

log = logging.getLogger(__name__)

KNOWN = ("LlamaModel", "MistralModel", "Qwen2Model", "Qwen3Model")

Attend = Callable[[Tensor, int, float], Tensor]
"""Queries [tokens, heads, dim], a layer and a scale in; what these tokens see out."""


@dataclass(frozen=True, slots=True)
class NewPlaces:
    """Where each new token stands in its episode, and where its keys and values go."""

    positions_T: Tensor
    rows_T: Tensor
    write_at_T: Tensor


Decoder = Callable[[Tensor, NewPlaces, Attend], Tensor]
"""Ids of new tokens, laid end to end; their hidden states out."""


def decoder_of(model: PreTrainedModel, cache: SlotCache, context_tokens: int) -> Decoder:
    """The fastest way to run `model` over a cache that nobody uses yet."""
    plain = Plain(model, cache)
    if not _is_known(model):
        return plain
    few = Few(model, cache, context_tokens)
    difference = _difference(plain, few, model, cache)
    if difference < (0.05 if model.dtype == torch.bfloat16 else 1e-3):
        return few
    log.warning(
        "%s looks like Llama and computes something else (relative difference %.2g)",
        type(model).__name__,
        difference,
    )
    return plain


class Plain:
    """The model's own modules."""

    def __init__(self, model: PreTrainedModel, cache: SlotCache) -> None:
        self.model, self.cache = model, cache

    def __call__(self, ids_T: Tensor, at: NewPlaces, attend: Attend) -> Tensor:
        self.cache.append(at.rows_T, at.write_at_T)
        return hidden_states(
            self.model,
            ids_T[None],
            at.positions_T[None],
            past_key_values=self.cache,
            layout=_Layout(attend),
        )[0]


@dataclass(frozen=True, slots=True)
class _Layout:
    """An `Attend` in the terms of a model's attention."""

    function: Attend

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, *, scale: float, layer: int
    ) -> Tensor:
        return self.function(query[0].transpose(0, 1), layer, scale).transpose(0, 1)[None]


@dataclass(frozen=True, slots=True)
class _Layer:
    before: tuple[Tensor, float]
    """Weight and epsilon of the normalization before attention; all in the order in which they
    come.
    """
    joined: tuple[Tensor, Tensor | None]
    """Weights and bias of query, key and value."""
    head_norms: tuple[Tensor, Tensor] | None
    scale: float
    out: nn.Linear
    between: tuple[Tensor, float]
    gated: tuple[Tensor, Tensor | None]
    down: nn.Linear


class Few:
    """Llama's layout (and Qwen's and Mistral's) with what is small fused and what is multiplied
    alike joined.
    """

    def __init__(self, model: PreTrainedModel, cache: SlotCache, context_tokens: int) -> None:
        trunk: Any = model.base_model
        self.cache = cache
        self.embedding, self.last = trunk.embed_tokens, _norm(trunk.norm)
        self.heads: int = model.config.num_attention_heads
        self.layers = list(_layers(trunk))
        positions = torch.arange(context_tokens, device=model.device)[None]
        cosines, sines = trunk.rotary_emb(self.embedding.weight[:1, None], positions)
        half = cosines.shape[-1] // 2
        self.turns = (cosines[0, :, :half].contiguous(), sines[0, :, :half].contiguous())

    @torch.no_grad()
    def __call__(self, ids_T: Tensor, at: NewPlaces, attend: Attend) -> Tensor:
        x_TD, residual_TD = self.embedding(ids_T), None
        where = (at.positions_T, at.rows_T, at.write_at_T)
        for number, layer in enumerate(self.layers):
            x_TD, residual_TD = kernels.add_norm(x_TD, residual_TD, *layer.before)
            keys, values = self.cache.keys[number], self.cache.values[number]
            joined = functional.linear(x_TD, *layer.joined)
            query = kernels.place(
                joined,
                self.turns,
                where,
                keys,
                values,
                heads=self.heads,
                norms=layer.head_norms,
                eps=layer.before[1],
            )
            x_TD = layer.out(attend(query, number, layer.scale).flatten(1))
            x_TD, residual_TD = kernels.add_norm(x_TD, residual_TD, *layer.between)
            x_TD = layer.down(kernels.gate(functional.linear(x_TD, *layer.gated)))
        return kernels.add_norm(x_TD, residual_TD, *self.last)[0]


def _layers(trunk: Any) -> Iterator[_Layer]:
    for layer in trunk.layers:
        attention, mlp = layer.self_attn, layer.mlp
        head_norms = None
        if hasattr(attention, "q_norm"):
            head_norms = (attention.q_norm.weight, attention.k_norm.weight)
        yield _Layer(
            before=_norm(layer.input_layernorm),
            joined=side_by_side(attention.q_proj, attention.k_proj, attention.v_proj),
            head_norms=head_norms,
            scale=attention.scaling,
            out=attention.o_proj,
            between=_norm(layer.post_attention_layernorm),
            gated=side_by_side(mlp.gate_proj, mlp.up_proj),
            down=mlp.down_proj,
        )


def _norm(module: Any) -> tuple[Tensor, float]:
    return module.weight, module.variance_epsilon


def side_by_side(*linears: nn.Linear) -> tuple[Tensor, Tensor | None]:
    """Weights and biases of layers that read the same input, as one.

    They stay their own: what is written to them is seen here.
    """
    weight = _joined([linear.weight for linear in linears])
    return weight, None if linears[0].bias is None else _joined([linear.bias for linear in linears])


def _joined(parts: list[Tensor]) -> Tensor:
    if not _are_adjacent(parts):
        joined = torch.cat([part.detach() for part in parts])
        for part, own in zip(parts, joined.split([len(part) for part in parts]), strict=True):
            part.data = own
    first = parts[0].detach()
    return first.as_strided(
        (sum(map(len, parts)), *first.shape[1:]), first.stride(), first.storage_offset()
    )


def _are_adjacent(parts: list[Tensor]) -> bool:
    storages = {part.untyped_storage().data_ptr() for part in parts}
    ends = [part.data_ptr() + part.nbytes for part in parts[:-1]]
    return len(storages) == 1 and ends == [part.data_ptr() for part in parts[1:]]


def _is_known(model: PreTrainedModel) -> bool:
    """Whether the layers are what `Few` takes them for: of a known class, and nothing put in the
    place of their parts.
    """
    trunk: Any = model.base_model
    if type(trunk).__name__ not in KNOWN or model.config.hidden_act != "silu":
        return False
    names = ("q_proj", "k_proj", "v_proj", "o_proj"), ("gate_proj", "up_proj", "down_proj")
    for layer in trunk.layers:
        for owner, own in zip((layer.self_attn, layer.mlp), names, strict=True):
            linears = [getattr(owner, name) for name in own]
            if (
                any(type(linear) is not nn.Linear for linear in linears)
                or len({linear.bias is None for linear in linears[:-1]}) > 1
            ):
                return False
    return True


def _difference(one: Decoder, other: Decoder, model: PreTrainedModel, cache: SlotCache) -> float:
    """How far two ways to run the model are apart on a dozen random tokens, as a share of the
    largest number.
    """
    count, device = 12, model.device
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, model.config.vocab_size, (count,), generator=generator).to(device)
    positions = torch.arange(count, device=device)
    rows = torch.zeros(count, dtype=torch.long, device=device)
    # One block: slot 0, tokens 0 .. count - 1, from position 0.
    first = torch.zeros(1, dtype=torch.long, device=device)
    length = torch.full((1,), count, device=device)

    def attend(query: Tensor, layer: int, scale: float) -> Tensor:
        return kernels.attend_new(
            query,
            cache.keys[layer],
            cache.values[layer],
            (first, first, length, first),
            scale=scale,
        )

    with torch.no_grad():
        expected, found = (
            decoder(ids, NewPlaces(positions, rows, positions), attend) for decoder in (one, other)
        )
        return ((found - expected).abs().max() / expected.abs().max()).item()
