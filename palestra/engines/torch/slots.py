"""A key-value cache of slots: one row per episode, kept between its turns, so that a turn only
computes what is new.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

from palestra.models.attention import sdpa


class SlotCache(Cache):
    """Keys and values of all layers, [slots, heads, tokens, dim].

    Where a call writes and reads is set before it.
    """

    def __init__(self, model: PreTrainedModel, slots: int, tokens: int) -> None:
        config = model.config.get_text_config()
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        shape = (
            slots,
            heads,
            tokens + 1,
            dim,
        )  # the last column is scratch: rows that rest write there
        _check_room(
            2 * config.num_hidden_layers * math.prod(shape) * model.dtype.itemsize, model.device
        )
        self.keys = [
            torch.zeros(shape, dtype=model.dtype, device=model.device)
            for _ in range(config.num_hidden_layers)
        ]
        self.values = [torch.zeros_like(keys) for keys in self.keys]
        self.scratch = tokens
        super().__init__(layers=[])

    def append(self, slots: Tensor, positions: Tensor) -> None:
        """The next call brings tokens laid end to end; token i goes to `slots[i]`,
        `positions[i]`.
        """
        self._write = (slots, positions)
        self._read: tuple[Tensor | slice, int] | None = None

    def decode(
        self, rows: Tensor, positions: Tensor, read_rows: Tensor | slice, read_tokens: int
    ) -> None:
        """The next call brings one token for each of `rows`, and reads the first `read_tokens` of
        `read_rows`.
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
        """Copy the first tokens of slots to others: (from, to, how many)."""
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
    """Fail before the first step rather than in it, and with both numbers."""
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
    """New tokens of several slots end to end: each sees its own slot, up to itself."""

    cache: SlotCache
    pieces: list[Piece]
    masks: list[Tensor | None] = field(init=False)

    def __post_init__(self) -> None:
        device = self.cache.keys[0].device
        self.masks = [
            None
            if p.new in (1, p.total)
            else torch.ones(p.new, p.total, dtype=torch.bool, device=device).tril_(p.total - p.new)
            for p in self.pieces
        ]

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, *, scale: float, layer: int
    ) -> Tensor:
        keys, values = self.cache.keys[layer], self.cache.values[layer]
        out = [
            sdpa(
                q,
                keys[p.slot : p.slot + 1, :, : p.total],
                values[p.slot : p.slot + 1, :, : p.total],
                scale=scale,
                mask=mask,
                is_causal=mask is None and p.new > 1,
            )
            for p, mask, q in zip(
                self.pieces,
                self.masks,
                query.split([p.new for p in self.pieces], dim=2),
                strict=True,
            )
        ]
        return torch.cat(out, dim=2)
