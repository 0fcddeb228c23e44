"""Digests of weights: what two copies of a model compare to know that they are the same, bit for
bit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from functools import cache, reduce

import torch
from torch import Tensor

Named = Iterable[tuple[str, Tensor]]

PIECE = 2**22
"""64-bit words that are multiplied at once: 32 MiB of memory beside the weights."""
GOLDEN = 0x9E3779B97F4A7C15 - 2**64
"""Odd, and its multiples look random modulo 2**64."""


@cache
def _multipliers(device: torch.device) -> Tensor:
    """An odd number for each place in a piece."""
    return (torch.arange(1, PIECE + 1, device=device) * GOLDEN) | 1


def fingerprint(weights: Named) -> dict[str, int]:
    """A 64-bit number for each weight: the sum of its words, each times an odd number of its place.

    One changed word always changes it, and so do other changes save with a chance of about 2**-63.
    Sums of integers do not depend on their order, so it is the same on every device; all are read
    from there at once.
    """
    sums = {name: _sums(weight) for name, weight in weights}
    if not sums:
        return {}
    numbers = iter(torch.stack([number for pieces in sums.values() for number in pieces]).tolist())
    return {
        name: reduce(_append, (next(numbers) for _ in pieces), 0) for name, pieces in sums.items()
    }


def digest(weights: Named) -> str:
    """A short name for all of them together."""
    return hashlib.sha256(repr(sorted(fingerprint(weights).items())).encode()).hexdigest()[:12]


def _append(total: int, number: int) -> int:
    return (total * GOLDEN + number) % 2**64


def _sums(weight: Tensor) -> list[Tensor]:
    """A number for each piece, left on the device."""
    multipliers = _multipliers(weight.device)
    return [(piece * multipliers[: len(piece)]).sum() for piece in _words(weight).split(PIECE)]


def _words(weight: Tensor) -> Tensor:
    """The bits as 64-bit words, in place where they lie so, with zeros at the end where the last
    word is not full.
    """
    flat = weight.detach().contiguous().flatten()
    per_word = 8 // flat.element_size()
    if len(flat) % per_word or flat.storage_offset() % per_word:
        flat = torch.cat([flat, flat.new_zeros(-len(flat) % per_word)])
    return flat.view(torch.int64)


def differences(expected: Mapping[str, int], found: Mapping[str, int]) -> list[str]:
    """What is wrong with each weight that is not the same on both sides, one line each."""
    missing = [f"{name} is missing" for name in expected if name not in found]
    unknown = [f"{name} is unknown to the learner" for name in found if name not in expected]
    changed = [
        f"{name} differs" for name, number in expected.items() if found.get(name, number) != number
    ]
    return [*missing, *unknown, *changed]
