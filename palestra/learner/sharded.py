"""Checkpoints of weights that are shared between ranks: each rank writes some of the tensors,
whole.

That is Hugging Face's layout of several files: any number of ranks can read them, and any other
program.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

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
    """Which rank writes which tensor: about as many numbers each, in the tensors' order."""
    total, before, found = max(sum(sizes.values()), 1), 0, {}
    for name, size in sizes.items():
        found[name] = (2 * before + size) * ranks // (2 * total)
        before += size
    return found


def save_shares(
    folder: Path, stem: str, tensors: Mapping[str, Tensor], world: ProcessGroup
) -> dict[str, str]:
    """All ranks do this with the same names.

    Each file has whole tensors; returns which file has which.
    """
    owned_by = owners({name: tensor.numel() for name, tensor in tensors.items()}, world.size)
    files = {
        rank: f"{stem}-{rank + 1:05d}-of-{world.size:05d}.safetensors" for rank in range(world.size)
    }
    own: dict[str, Tensor] = {}
    for name, tensor in tensors.items():  # one at a time is whole on every rank
        complete = full_tensor(tensor)
        if owned_by[name] == world.rank:
            own[name] = complete.detach().contiguous().cpu().clone()
    save_file(own, folder / files[world.rank], metadata={"format": "pt"})
    return {name: files[rank] for name, rank in owned_by.items()}


def save_model(
    folder: Path, model: PreTrainedModel, dtype: torch.dtype, world: ProcessGroup
) -> None:
    """As a Hugging Face directory of several files."""
    named = dict(model.named_parameters())
    where = save_shares(
        folder, "model", {name: p.detach().to(dtype) for name, p in named.items()}, world
    )
    if world.is_first:
        size = sum(p.numel() for p in named.values()) * dtype.itemsize
        index = {"metadata": {"total_size": size}, "weight_map": where}
        (folder / "model.safetensors.index.json").write_bytes(
            msgspec.json.format(msgspec.json.encode(index))
        )
        with described(model, dtype):
            model.config.save_pretrained(folder)
        if model.generation_config is not None:
            model.generation_config.save_pretrained(folder)


@contextmanager
def described(model: PreTrainedModel, dtype: torch.dtype) -> Iterator[None]:
    """The model's configuration says what other programs ask of it: its class and type, and an
    attention that they know.
    """
    config = model.config
    own = {
        name: getattr(config, name) for name in ("architectures", "dtype", "_attn_implementation")
    }
    original = next(
        kind for kind in type(model).__mro__ if not issubclass(kind, FSDPModule)
    )  # sharding makes a class of its own
    config.architectures, config.dtype, config._attn_implementation = (
        [original.__name__],
        dtype,
        "sdpa",
    )
    try:
        yield
    finally:
        for name, value in own.items():
            setattr(config, name, value)


def read_tensors(paths: Iterable[Path]) -> Iterator[tuple[str, Tensor]]:
    """One at a time: together they may not fit."""
    for path in paths:
        with safe_open(path, "pt") as file:
            for name in file.keys():  # noqa: SIM118  it is not a dictionary
                yield name, file.get_tensor(name)


def shard_like(tensor: Tensor, other: Tensor) -> Tensor:
    """A whole tensor as `other` is: on its device, and this rank's share of it where that is a
    share.
    """
    tensor = tensor.to(other.device)
    return (
        distribute_tensor(tensor, other.device_mesh, other.placements, src_data_rank=None)
        if isinstance(other, DTensor)
        else tensor
    )
