"""A KV cache of slots: one per episode, kept between its turns, so that a turn computes only its
new tokens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

from palestra.engines.torch.ragged import ragged_attention
from palestra.models.attention import sdpa

FEW = 16
"""New tokens of an episode up to which the ragged kernel is used: above, its keys are worth reading
once for all of them.
"""


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
        self.attend_ragged = ragged_attention(model.dtype, model.device)
        """Attention of single tokens to their own slots, where there is a kernel for it."""
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


class RaggedLayout:
    """New tokens of several slots, packed: each attends to its own slot, up to itself."""

    def __init__(self, cache: SlotCache, pieces: list[Piece]) -> None:
        self.cache, self.pieces = cache, pieces
        device = cache.keys[0].device
        self._masks: list[Tensor | None] = []
        few_slots: list[int] = []
        few_lengths: list[int] = []
        few_places: list[int] = []
        start = 0
        for piece in pieces:
            mask = None
            if cache.attend_ragged is not None and piece.new <= FEW:
                few_slots += [piece.slot] * piece.new
                few_lengths += range(piece.total - piece.new + 1, piece.total + 1)
                few_places += range(start, start + piece.new)
            # A single token sees all of its slot, and a whole episode has the plain causal mask.
            elif piece.new not in (1, piece.total):
                mask = torch.ones(piece.new, piece.total, dtype=torch.bool, device=device)
                mask = mask.tril_(piece.total - piece.new)
            self._masks.append(mask)
            start += piece.new
        self._few = torch.tensor(few_places, device=device)
        self._few_slots = torch.tensor(few_slots, device=device)
        self._few_lengths = torch.tensor(few_lengths, device=device)

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, *, scale: float, layer: int
    ) -> Tensor:
        keys, values = self.cache.keys[layer], self.cache.values[layer]
        query_THD = query[0].transpose(0, 1)
        if len(self._few) == len(query_THD):
            return self._attend_few(query_THD, keys, values, scale).transpose(0, 1)[None]
        out = torch.empty_like(query)
        if len(self._few):
            few_THD = self._attend_few(query_THD[self._few], keys, values, scale)
            out[0, :, self._few] = few_THD.transpose(0, 1)
        start = 0
        for piece, mask in zip(self.pieces, self._masks, strict=True):
            own, start = slice(start, start + piece.new), start + piece.new
            if self.cache.attend_ragged is not None and piece.new <= FEW:
                continue
            slot = slice(piece.slot, piece.slot + 1)
            out[:, :, own] = sdpa(
                query[:, :, own],
                keys[slot, :, : piece.total],
                values[slot, :, : piece.total],
                scale=scale,
                mask=mask,
                is_causal=mask is None and piece.new > 1,
            )
        return out

    def _attend_few(self, query_THD: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
        assert self.cache.attend_ragged is not None
        return self.cache.attend_ragged(
            query_THD, keys, values, self._few_slots, self._few_lengths, scale
        )
