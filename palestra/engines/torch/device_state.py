"""The state of each slot on the device, as the CUDA graphs of the torch engine read it.

It lives on the device, and graphs change it without asking Python.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy
import torch
from torch import Tensor

from palestra.core.types import Sampling
from palestra.engines.torch.kernels import BLOCK_NEW

MOST_STOPS = 4
"""Maximum number of stop tokens of a request."""


class SlotState:
    """One entry for each slot, and a last one for padding to write to."""

    def __init__(self, slots: int, tokens: int, device: torch.device) -> None:
        def numbers(*shape: int) -> Tensor:
            return torch.zeros(slots + 1, *shape, dtype=torch.long, device=device)

        self.ids, self.positions, self.produced, self.limit, self.seeds = (
            numbers() for _ in range(5)
        )
        """The newest token, where it belongs, how many the reply has, how many it may have, and the
        seed of its noise.
        """
        self.stops = numbers(MOST_STOPS) - 1
        self.active = numbers()
        """1 if the slot's reply is unfinished, else 0."""
        self.sharpness, self.noise = (torch.ones(slots + 1, device=device) for _ in range(2))
        self.reply_ids = numbers(tokens + 1)
        self.reply_logprobs = torch.zeros(slots + 1, tokens + 1, device=device)
        """The last column is scratch: inactive slots write there."""


@dataclass(frozen=True, slots=True)
class NewTokens:
    """The next tokens of one slot's context, after which it holds `total`, and how the reply to
    them is drawn.
    """

    slot: int
    ids: list[int]
    total: int
    sampling: Sampling


class PrefillInputs:
    """What a captured prefill of at most `tokens` new tokens of `requests` reads: filled on the
    host, copied over in one go.
    """

    TOKEN_FIELDS = ("ids", "slots", "write_at", "positions")
    BLOCK_FIELDS = ("slot", "first", "count", "position")
    REQUEST_FIELDS = (
        "rows",
        "last",
        "total",
        "limit",
        "seed",
        *(f"stop_{n}" for n in range(MOST_STOPS)),
    )

    def __init__(
        self, tokens: int, requests: int, slots: int, scratch: int, device: torch.device
    ) -> None:
        self.tokens, self.requests, self.slots, self.scratch = tokens, requests, slots, scratch
        self.blocks = -(-tokens // BLOCK_NEW) + requests
        sizes = [(name, tokens) for name in self.TOKEN_FIELDS] + [
            (f"block_{name}", self.blocks) for name in self.BLOCK_FIELDS
        ]
        sizes += [(name, requests) for name in self.REQUEST_FIELDS]
        self._places: dict[str, slice] = {}
        end = 0
        for name, size in sizes:
            self._places[name] = slice(end, end + size)
            end += size
        self._size = end
        self._numbers = torch.zeros(end, dtype=torch.long, device=device)
        self._shares = torch.ones(2, requests, device=device)
        self.fill([])

    def __getitem__(self, name: str) -> Tensor:
        return self._numbers[self._places[name]]

    @property
    def block_table(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        slot, first, count, position = (self[f"block_{name}"] for name in self.BLOCK_FIELDS)
        return slot, first, count, position

    @property
    def stops(self) -> Tensor:
        return torch.stack([self[f"stop_{n}"] for n in range(MOST_STOPS)], dim=1)

    @property
    def sharpness(self) -> Tensor:
        return self._shares[0]

    @property
    def noise(self) -> Tensor:
        return self._shares[1]

    def fill(self, pieces: list[NewTokens]) -> None:
        host = numpy.zeros(self._size, dtype=numpy.int64)
        shares = numpy.ones((2, self.requests), dtype=numpy.float32)
        at = {name: host[place] for name, place in self._places.items()}
        at["write_at"][:] = self.scratch
        at["rows"][:] = self.slots  # padding writes to the entry behind the last slot
        start = block = 0
        for number, piece in enumerate(pieces):
            new = len(piece.ids)
            own, position = slice(start, start + new), piece.total - new
            at["ids"][own], at["slots"][own] = piece.ids, piece.slot
            at["positions"][own] = at["write_at"][own] = numpy.arange(position, piece.total)
            for first in range(0, new, BLOCK_NEW):
                values = (piece.slot, start + first, min(BLOCK_NEW, new - first), position + first)
                for name, value in zip(self.BLOCK_FIELDS, values, strict=True):
                    at[f"block_{name}"][block] = value
                block += 1
            start += new
            self._fill_request(at, shares, number, piece, start - 1)
        self._numbers.copy_(pinned(torch.from_numpy(host), self._numbers.device), non_blocking=True)
        self._shares.copy_(pinned(torch.from_numpy(shares), self._shares.device), non_blocking=True)

    def _fill_request(
        self,
        at: dict[str, numpy.ndarray],
        shares: numpy.ndarray,
        number: int,
        piece: NewTokens,
        last: int,
    ) -> None:
        sampling = piece.sampling
        stops = [*sampling.stop_ids, *[-1] * (MOST_STOPS - len(sampling.stop_ids))]
        values = (
            piece.slot,
            last,
            piece.total,
            sampling.max_tokens,
            sampling.seed & 0x7FFFFFFFFFFFFFFF,
            *stops,
        )
        for name, value in zip(self.REQUEST_FIELDS, values, strict=True):
            at[name][number] = value
        shares[:, number] = (1 / (sampling.temperature or 1.0), float(sampling.temperature > 0))


def pinned(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor in pinned memory, from which a copy to `device` can be asynchronous."""
    return tensor.pin_memory() if device.type == "cuda" else tensor
