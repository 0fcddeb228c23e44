"""Checkpoints of sharded weights: each rank writes some of the tensors, unsharded.

This is Hugging Face's layout of several files, which any number of ranks and other programs can
read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers import PreTrainedModel

from palestra.core.process_group import ProcessGroup
from palestra.models.weights import full_tensor


def owners(sizes: Mapping[str, int], ranks: int) -> dict[str, int]:
    """Which rank writes which tensor: about equally many elements each, in the tensors' order."""
    total = max(sum(sizes.values()), 1)
    before = 0
    rank_of: dict[str, int] = {}
    for name, size in sizes.items():
        # The rank in whose share the tensor's middle element falls.
        rank_of[name] = (2 * before + size) * ranks // (2 * total)
        before += size
    return rank_of


def save_shares(
    folder: Path, stem: str, tensors: Mapping[str, Tensor], world: ProcessGroup
) -> dict[str, str]:
    """Write one file per rank, with unsharded tensors. All ranks call this with the same names.

    Returns the file of each tensor.
    """
    owned_by = owners({name: tensor.numel() for name, tensor in tensors.items()}, world.size)
    numbers = range(1, world.size + 1)
    files = [f"{stem}-{number:05d}-of-{world.size:05d}.safetensors" for number in numbers]
    own: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        # Gathered one at a time: all of them together may not fit into the memory of a rank.
        complete = full_tensor(tensor)
        if owned_by[name] == world.rank:
            own[name] = complete.detach().contiguous().cpu().clone()
    save_file(own, folder / files[world.rank], metadata={"format": "pt"})
    return {name: files[rank] for name, rank in owned_by.items()}


def save_model(
    folder: Path, model: PreTrainedModel, dtype: torch.dtype, world: ProcessGroup
) -> None:
    """Write a Hugging Face directory of several files."""
    named = dict(model.named_parameters())
    rounded = {name: p.detach().to(dtype) for name, p in named.items()}
    file_of = save_shares(folder, "model", rounded, world)
    if world.is_first:
        size = sum(p.numel() for p in named.values()) * dtype.itemsize
        index = {"metadata": {"total_size": size}, "weight_map": file_of}
        (folder / "model.safetensors.index.json").write_bytes(
            msgspec.json.format(msgspec.json.encode(index))
        )
        with described(model, dtype):
            model.config.save_pretrained(folder)
        if model.generation_config is not None:
            model.generation_config.save_pretrained(folder)


@contextmanager
def described(model: PreTrainedModel, dtype: torch.dtype) -> Iterator[None]:
    """Within it, the model's configuration is the one to save: the original class, the type of the
    weights, and an attention implementation that other programs know.
    """
    config = model.config
    # fully_shard replaces the model's class by a subclass of FSDPModule.
    original = next(kind for kind in type(model).__mro__ if not issubclass(kind, FSDPModule))
    saved: dict[str, Any] = {
        "architectures": [original.__name__],
        "dtype": dtype,
        "_attn_implementation": "sdpa",
    }
    own = {name: getattr(config, name) for name in saved}
    for name, value in saved.items():
        setattr(config, name, value)
    try:
        yield
    finally:
        for name, value in own.items():
            setattr(config, name, value)


def read_tensors(paths: Iterable[Path]) -> Iterator[tuple[str, Tensor]]:
    """All tensors, one at a time: together they may not fit into memory."""
    for path in paths:
        with safe_open(path, "pt") as file:
            for name in file.keys():  # noqa: SIM118  it is not a dictionary
                yield name, file.get_tensor(name)


def shard_like(tensor: Tensor, other: Tensor) -> Tensor:
    """An unsharded tensor on the device of `other`, and sharded like it."""
    tensor = tensor.to(other.device)
    if not isinstance(other, DTensor):
        return tensor
    return distribute_tensor(tensor, other.device_mesh, other.placements, src_data_rank=None)
