"""The processes that train a run together: one, or several that all run the same loop and each do a
share of its work.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

import msgspec

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup as TorchProcessGroup

T = TypeVar("T")

PATIENCE = timedelta(minutes=60)
"""For a rank that is behind: its episodes may take long. One that has died is noticed at once."""


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """What a process knows of the others."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    """Among those on the same host."""
    cpu_group: TorchProcessGroup | None = None
    """For what is not a gradient."""
    background_group: TorchProcessGroup | None = None
    """For those who talk in another thread meanwhile."""

    @property
    def is_first(self) -> bool:
        """It writes the run folder and speaks to the user."""
        return self.rank == 0

    @property
    def background(self) -> ProcessGroup:
        """The same ranks, to be talked to in another thread."""
        return replace(self, cpu_group=self.background_group)

    def share(self, items: Sequence[T]) -> Sequence[T]:
        """This rank's part of what all have: the shares are in the order of ranks, and as equal as
        they can be.
        """
        return items[
            len(items) * self.rank // self.size : len(items) * (self.rank + 1) // self.size
        ]

    def all_gather_bytes(self, message: bytes) -> list[bytes]:
        """Everybody's message, in the order of ranks.

        All ranks must call this, each for the same reason.
        """
        if self.size == 1:
            return [message]
        import torch
        from torch import distributed

        lengths = [torch.zeros(1, dtype=torch.long) for _ in range(self.size)]
        distributed.all_gather(lengths, torch.tensor([len(message)]), group=self.cpu_group)
        longest = max(1, *(int(length) for length in lengths))
        padded = torch.frombuffer(bytearray(message.ljust(longest, b"\0")), dtype=torch.uint8)
        received = [torch.empty(longest, dtype=torch.uint8) for _ in range(self.size)]
        distributed.all_gather(received, padded, group=self.cpu_group)
        return [
            bytes(one.numpy().tobytes()[: int(length)])
            for one, length in zip(received, lengths, strict=True)
        ]

    def total(self, numbers: Mapping[str, float]) -> dict[str, float]:
        """The sums over all ranks, which need not have the same names.

        Every rank gets the same ones to the last bit.
        """
        sums: dict[str, float] = {}
        for message in self.all_gather_bytes(msgspec.json.encode(numbers)):
            for name, number in msgspec.json.decode(message, type=dict[str, float | None]).items():
                sums[name] = sums.get(name, 0.0) + (
                    math.nan if number is None else number
                )  # JSON has null for what is not a number
        return sums

    def wait(self) -> None:
        """Until all ranks are here."""
        self.all_gather_bytes(b"")


SINGLE = ProcessGroup()
_current = SINGLE


def current() -> ProcessGroup:
    """The world that this process has joined; `ALONE` where it has joined none."""
    return _current


@contextmanager
def join() -> Iterator[ProcessGroup]:
    """Meet the other ranks, as the environment says (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR,
    MASTER_PORT).
    """
    global _current
    import torch
    from torch import distributed

    has_cuda = torch.cuda.is_available()
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    if has_cuda:
        torch.cuda.set_device(local_rank)
    was_there = distributed.is_initialized()  # Ray has made one already
    if not was_there:
        distributed.init_process_group(
            "cpu:gloo,cuda:nccl" if has_cuda else "gloo", timeout=PATIENCE
        )
    cpu_group, background = (
        distributed.new_group(backend="gloo", timeout=PATIENCE) for _ in range(2)
    )
    _current = ProcessGroup(
        distributed.get_rank(), distributed.get_world_size(), local_rank, cpu_group, background
    )
    try:
        yield _current
        _current.wait()  # a rank that leaves early takes the others' connections with it
    finally:
        _current = SINGLE
        if not was_there:
            distributed.destroy_process_group()
