"""The processes that train a run together: one, or several that all run the same loop and each do a
share of the work.
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

TIMEOUT = timedelta(minutes=60)
"""For a rank that is behind: its episodes may take long. A dead rank is noticed at once."""


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """This process's view of the ranks."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    """The rank among the processes on the same host."""
    cpu_group: TorchProcessGroup | None = None
    """For everything but gradients."""
    background_group: TorchProcessGroup | None = None
    """For communication from another thread, which must not mix with that of `cpu_group`."""

    @property
    def is_first(self) -> bool:
        """The first rank writes the run folder and prints."""
        return self.rank == 0

    @property
    def background(self) -> ProcessGroup:
        """The same ranks, for use in another thread."""
        return replace(self, cpu_group=self.background_group)

    def share(self, items: Sequence[T]) -> Sequence[T]:
        """This rank's part of the items: consecutive, in rank order, and as equal as possible."""
        start = len(items) * self.rank // self.size
        end = len(items) * (self.rank + 1) // self.size
        return items[start:end]

    def all_gather_bytes(self, message: bytes) -> list[bytes]:
        """The messages of all ranks, in rank order.

        A collective call: all ranks must make it, in the same order as their other ones.
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
        messages: list[bytes] = []
        for tensor, length in zip(received, lengths, strict=True):
            messages.append(tensor.numpy().tobytes()[: int(length)])
        return messages

    def total(self, numbers: Mapping[str, float]) -> dict[str, float]:
        """The sums over all ranks, which need not have the same names.

        All ranks get bitwise equal sums, since they add in the same order.
        """
        sums: dict[str, float] = {}
        for message in self.all_gather_bytes(msgspec.json.encode(numbers)):
            for name, number in msgspec.json.decode(message, type=dict[str, float | None]).items():
                value = math.nan if number is None else number  # JSON has no NaN, but null
                sums[name] = sums.get(name, 0.0) + value
        return sums

    def wait(self) -> None:
        """A barrier: returns when all ranks have called it."""
        self.all_gather_bytes(b"")


SINGLE = ProcessGroup()
_current = SINGLE


def current() -> ProcessGroup:
    """The process group that this process has joined; `SINGLE` if it has joined none."""
    return _current


@contextmanager
def join() -> Iterator[ProcessGroup]:
    """Join the other ranks, as the environment variables RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR
    and MASTER_PORT say.
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
            "cpu:gloo,cuda:nccl" if has_cuda else "gloo", timeout=TIMEOUT
        )
    cpu_group = distributed.new_group(backend="gloo", timeout=TIMEOUT)
    background = distributed.new_group(backend="gloo", timeout=TIMEOUT)
    _current = ProcessGroup(
        distributed.get_rank(), distributed.get_world_size(), local_rank, cpu_group, background
    )
    try:
        yield _current
        _current.wait()  # a rank that exits early closes the others' connections
    finally:
        _current = SINGLE
        if not was_there:
            distributed.destroy_process_group()
