"""Weights and their number types, whole or shared between ranks."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor


def fp32_or_wider(dtype: torch.dtype) -> torch.dtype:
    """Of what is kept, and added up, where a model computes in `dtype`: float32 at least."""
    return torch.promote_types(dtype, torch.float32)


def full_tensor(weight: Tensor) -> Tensor:
    """All of a weight of which this process has a share (FSDP2): all ranks must ask for it.

    Others are whole already.
    """
    return weight.full_tensor() if isinstance(weight, DTensor) else weight
