"""Types of weights, and sharded weights."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor


def fp32_or_wider(dtype: torch.dtype) -> torch.dtype:
    """The type of master weights and of sums for a model that computes in `dtype`."""
    return torch.promote_types(dtype, torch.float32)


def full_tensor(weight: Tensor) -> Tensor:
    """A sharded weight (FSDP2) gathered from all ranks, which must call this together; any other
    weight as it is.
    """
    return weight.full_tensor() if isinstance(weight, DTensor) else weight
