"""A KV cache of slots: one per episode, kept between its turns, so that a turn computes only its
new tokens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

from palestra.models.attention import sdpa


class SlotCache(Cache):
    """Keys and values of all layers, [slots, heads, tokens, dim].

    `append` or `decode` sets where the next forward pass writes and reads.
    """

    def __init__(self, model: PreTrainedModel, slots: int, tokens: int) -> None:
        config = model.config.get_text_config()
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        # The last column is scratch: slots without a new token in a decoding step write there.
        shape = (slots, heads, tokens + 1, dim)
        layers = config.num_hidden_layers
        _check_room(2 * layers * math.prod(shape) * model.dtype.itemsize, model.device)
        zeros = partial(torch.zeros, shape, dtype=model.dtype, device=model.device)
        self.keys = [zeros() for _ in range(layers)]
        self.values = [zeros() for _ in range(layers)]
        self.scratch = tokens
        super().__init__(layers=[])

    def append(self, slots: Tensor, positions: Tensor) -> None:
        """Prefill: the next forward pass has packed tokens; token i is written to `slots[i]` at
        `positions[i]`.
        """
        self._write = (slots, positions)
        self._read: tuple[Tensor | slice, int] | None = None

    def decode(
        self, rows: Tensor, positions: Tensor, read_rows: Tensor | slice, read_tokens: int
    ) -> None:
        """Decoding: the next forward pass has one token for each of `rows`, and reads the first
        `read_tokens` tokens of `read_rows`.
        """
        self._write = (rows, positions)
        self._read = (read_rows, read_tokens)

    def update(
        self,
        key_states: Tensor,
        value_states: Tensor,
        layer_idx: int,
        *args: object,
        **kwargs: object,
    ) -> tuple[Tensor, Tensor]:
        keys, values = self.keys[layer_idx], self.values[layer_idx]
        rows, positions = self._write
        if self._read is None:
            keys[rows, :, positions] = key_states[0].transpose(0, 1)
            values[rows, :, positions] = value_states[0].transpose(0, 1)
            return key_states, value_states
        keys[rows, :, positions] = key_states[:, :, 0]
        values[rows, :, positions] = value_states[:, :, 0]
        read_rows, tokens = self._read
        return keys[read_rows, :, :tokens], values[read_rows, :, :tokens]

    @torch.no_grad()
    def share(self, copies: list[tuple[int, int, int]]) -> None:
        """Copy prefixes between slots: (source, target, number of tokens)."""
        by_source: dict[tuple[int, int], list[int]] = {}
        for source, target, tokens in copies:
            by_source.setdefault((source, tokens), []).append(target)
        for (source, tokens), targets in by_source.items():
            rows = torch.tensor(targets, device=self.keys[0].device)
            for memory in (*self.keys, *self.values):
                memory[rows, :, :tokens] = memory[source, :, :tokens]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return 0  # positions are always given


def _check_room(needed: int, device: torch.device) -> None:
    """Raise MemoryError before the first step rather than run out of memory in it."""
    if device.type != "cuda":
        return
    free, _ = torch.cuda.mem_get_info(device)
    if needed > free:
        raise MemoryError(
            f"the cache needs {needed / 2**30:.1f} GiB and {free / 2**30:.1f} GiB are free; "
            "lower engine.slots (and rollout.concurrency) or agent.context_tokens"
        )


@dataclass(frozen=True, slots=True)
class Piece:
    """New tokens of one slot: `new` of them, after which the slot holds `total`."""

    slot: int
    new: int
    total: int


@dataclass
class RaggedLayout:
    """New tokens of several slots, packed: each attends to its own slot, up to itself."""

    cache: SlotCache
    pieces: list[Piece]
    masks: list[Tensor | None] = field(init=False)

    def __post_init__(self) -> None:
        device = self.cache.keys[0].device
        self.masks = []
        for piece in self.pieces:
            mask = None
            # A single token sees all of its slot, and a whole episode has the plain causal mask.
            if piece.new not in (1, piece.total):
                mask = torch.ones(piece.new, piece.total, dtype=torch.bool, device=device)
                mask = mask.tril_(piece.total - piece.new)
            self.masks.append(mask)

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, *, scale: float, layer: int
    ) -> Tensor:
        keys, values = self.cache.keys[layer], self.cache.values[layer]
        queries = query.split([piece.new for piece in self.pieces], dim=2)
        out: list[Tensor] = []
        for piece, mask, own_query in zip(self.pieces, self.masks, queries, strict=True):
            slot = slice(piece.slot, piece.slot + 1)
            own_keys = keys[slot, :, : piece.total]
            own_values = values[slot, :, : piece.total]
            is_causal = mask is None and piece.new > 1
            out.append(
                sdpa(own_query, own_keys, own_values, scale=scale, mask=mask, is_causal=is_causal)
            )
        return torch.cat(out, dim=2)
