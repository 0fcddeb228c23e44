"""Several learners as one: each rank computes its share of every batch, and gradients are added up.

Weights are whole on every rank, or each rank has a share of each of them (FSDP2) and they come
together layer by layer as they are needed.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy
import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from palestra.algos.batch import Batch, Unit
from palestra.core.process_group import SINGLE, ProcessGroup
from palestra.learner.layers import layers_of
from palestra.models.weights import fp32_or_wider

T = TypeVar("T")

BUCKET = 1 << 24
"""Numbers that are added up in one message."""


@dataclass(frozen=True)
class Parallel:
    """What the learner needs to know of other ranks."""

    world: ProcessGroup = SINGLE
    is_sharded: bool = False
    parts: int = 1
    """What one rank alone divides a batch into."""

    @property
    def loss_scale(self) -> float:
        """FSDP takes the mean over ranks where we want the sum."""
        return float(self.world.size) if self.is_sharded else 1.0

    def shard(self, model: PreTrainedModel, dtype: torch.dtype) -> None:
        """Leave each rank its share of the weights, in float32 at least;
        layers compute in `dtype`.
        """
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import (
            MixedPrecisionPolicy,
            fully_shard,
            register_fsdp_forward_method,
        )

        warnings.filterwarnings(
            "ignore", message="FSDP2-wrapped module .* returned a view tensor"
        )  # nobody changes it in place
        mesh = init_device_mesh(model.device.type, (self.world.size,))
        if model.dtype != fp32_or_wider(dtype):
            model.float()
        policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=fp32_or_wider(dtype))
        for layer in layers_of(model):
            fully_shard(layer, mesh=mesh, mp_policy=policy)
        fully_shard(model, mesh=mesh, mp_policy=policy)
        model.with_whole_weights = _with_whole_weights.__get__(model)
        register_fsdp_forward_method(model, "with_whole_weights")

    def run(self, model: PreTrainedModel, work: Callable[[PreTrainedModel], T]) -> T:
        """What `work` makes of the model.

        Gradients flow only through tensors in a tuple or a list that it returns.
        """
        if not hasattr(model, "with_whole_weights"):
            return work(model)
        run: Callable[[Callable[[PreTrainedModel], T]], T] = model.with_whole_weights  # type: ignore[assignment]
        result = run(work)
        if not torch.is_grad_enabled():  # else the way back does it
            model.reshard()  # type: ignore[operator]
        return result

    def in_parts(
        self, batch: Batch, max_tokens: int, unit: Unit = "segment"
    ) -> Iterator[Iterator[tuple[Batch, bool]]]:
        """This rank's part of the batch, or all of them one after the other: pieces for a forward
        pass each, and whether they count.
        """
        if self.world.size > 1:
            yield self._own(batch, max_tokens, unit)
        elif self.parts > 1:
            yield from (
                (
                    (row, True)
                    for row in batch.share(part, self.parts, unit).microbatches(max_tokens, unit)
                )
                for part in range(self.parts)
            )
        else:
            yield ((row, True) for row in batch.microbatches(max_tokens, unit))

    def microbatches(
        self, batch: Batch, max_tokens: int, unit: Unit = "segment"
    ) -> Iterator[tuple[Batch, bool]]:
        return itertools.chain.from_iterable(self.in_parts(batch, max_tokens, unit))

    def _own(self, batch: Batch, max_tokens: int, unit: Unit) -> Iterator[tuple[Batch, bool]]:
        """With sharded weights all ranks must run the model equally often: who has fewer pieces
        runs one again that does not count.
        """
        own = list(
            batch.share(self.world.rank, self.world.size, unit).microbatches(max_tokens, unit)
        )
        most = (
            max(int(count) for count in self.world.all_gather_bytes(b"%d" % len(own)))
            if self.is_sharded
            else len(own)
        )
        yield from ((row, True) for row in own)
        idle = [*own[:1], *itertools.islice(batch.microbatches(1, unit), 1)]
        yield from ((idle[0], False) for _ in range(most - len(own)))

    def joined(self, parts: Sequence[Tensor], shard_like: Tensor) -> Tensor:
        """The pieces of all ranks' parts, end to end, on every rank.

        `like` says what they are where there are none.
        """
        own = torch.cat([*parts, shard_like[:0]])
        if self.world.size == 1:
            return own
        messages = self.world.all_gather_bytes(own.float().cpu().numpy().tobytes())
        return torch.from_numpy(
            numpy.frombuffer(b"".join(messages), dtype=numpy.float32).copy()
        ).to(shard_like)

    @torch.no_grad()
    def add_up(self, parameters: Sequence[nn.Parameter]) -> None:
        """Make every rank's gradients the sum of all ranks'.

        Those of sharded weights are already.
        """
        if self.world.size == 1:
            return
        plain = [p for p in parameters if not isinstance(p, DTensor)]
        for parameter in plain:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        for bucket in _buckets([p.grad for p in plain if p.grad is not None]):
            flat = torch.cat([gradient.flatten() for gradient in bucket])
            torch.distributed.all_reduce(flat)
            summed = (flat / self.loss_scale).split([gradient.numel() for gradient in bucket])
            torch._foreach_copy_(
                bucket,
                [part.view_as(gradient) for part, gradient in zip(summed, bucket, strict=True)],
            )


def _with_whole_weights(model: PreTrainedModel, work: Callable[[PreTrainedModel], Any]) -> Any:
    """Runs as a forward pass of the whole model: what belongs to no layer, such as the head, is
    whole in here.
    """
    return work(model)


def _buckets(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    bucket: list[Tensor] = []
    size = 0
    for tensor in tensors:
        bucket.append(tensor)
        size += tensor.numel()
        if size >= BUCKET:
            yield bucket
            bucket, size = [], 0
    if bucket:
        yield bucket


def clipped_norm(parameters: Sequence[nn.Parameter], limit: float) -> float:
    """Scale the gradients down to a norm of at most `limit`; the norm that they had."""
    norm = torch.nn.utils.clip_grad_norm_(parameters, limit)
    return float(norm.full_tensor() if isinstance(norm, DTensor) else norm)
