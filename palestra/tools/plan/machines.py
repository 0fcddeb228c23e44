"""GPUs and the links between them, with their makers' figures."""

from __future__ import annotations

from dataclasses import dataclass

GIB = 2**30
HOST_GPUS = 8
"""GPUs of one host, joined by NVLink."""
NVLINK = 450e9
"""Bytes a second each way, between GPUs of one host."""


@dataclass(frozen=True, slots=True)
class Gpu:
    name: str
    memory: float
    """Bytes that a program can have."""
    bandwidth: float
    """Bytes a second, of its memory."""
    flops: float
    """bfloat16 without sparsity, a second."""


GPUS = {
    "h100": Gpu("H100", 79 * GIB, 3.35e12, 990e12),
    "h200": Gpu("H200", 139 * GIB, 4.8e12, 990e12),
}

LINKS = {"infiniband": 50e9, "ethernet": 12.5e9}
"""Bytes a second from one GPU to other hosts: 400 Gbit/s each, or 100 Gbit/s each."""


def link_between(gpus: int, link: str) -> float:
    """Bytes a second over the slowest link of a ring of this many GPUs."""
    return NVLINK if gpus <= HOST_GPUS else LINKS[link]
