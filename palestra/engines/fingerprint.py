"""Digests of weights, by which two copies of a model are compared bit for bit."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import chain, islice

import torch
from torch import Tensor

Named = Iterable[tuple[str, Tensor]]

CHUNK = 2**22
"""64-bit words that are multiplied at once: 32 MiB of temporary memory."""
GOLDEN = 0x9E3779B97F4A7C15 - 2**64
"""The golden ratio in 64 bits: odd, and its multiples are well distributed modulo 2**64."""


@cache
def _multipliers(device: torch.device) -> Tensor:
    """An odd number for each position in a chunk."""
    return (torch.arange(1, CHUNK + 1, device=device) * GOLDEN) | 1


def fingerprint(weights: Named) -> dict[str, int]:
    """A 64-bit number for each weight: the sum of its words, each times an odd number that depends
    on its position.

    Changing one word always changes the number; other changes go unnoticed with a probability of
    about 2**-63. Integer sums do not depend on their order, so that the number is the same on every
    device.
    """
    sums = {name: _sums(weight) for name, weight in weights}
    if not sums:
        return {}
    # All numbers are copied from the device at once.
    numbers = iter(torch.stack(list(chain.from_iterable(sums.values()))).tolist())
    found: dict[str, int] = {}
    for name, chunks in sums.items():
        total = 0
        for number in islice(numbers, len(chunks)):
            total = (total * GOLDEN + number) % 2**64
        found[name] = total
    return found


def digest(weights: Named) -> str:
    """A short digest of all weights together."""
    return hashlib.sha256(repr(sorted(fingerprint(weights).items())).encode()).hexdigest()[:12]


def _sums(weight: Tensor) -> list[Tensor]:
    """A number for each chunk, left on the device."""
    multipliers = _multipliers(weight.device)
    return [(chunk * multipliers[: len(chunk)]).sum() for chunk in _words(weight).split(CHUNK)]


def _words(weight: Tensor) -> Tensor:
    """The bits as 64-bit words: a view if the alignment allows it, else a zero-padded copy."""
    flat = weight.detach().contiguous().flatten()
    per_word = 8 // flat.element_size()
    if len(flat) % per_word or flat.storage_offset() % per_word:
        flat = torch.cat([flat, flat.new_zeros(-len(flat) % per_word)])
    return flat.view(torch.int64)


def differences(expected: Mapping[str, int], found: Mapping[str, int]) -> list[str]:
    """One line for each weight that differs between the two sides."""
    missing = [f"{name} is missing" for name in expected if name not in found]
    unknown = [f"{name} is unknown to the learner" for name in found if name not in expected]
    changed = [
        f"{name} differs" for name, number in expected.items() if found.get(name, number) != number
    ]
    return [*missing, *unknown, *changed]
