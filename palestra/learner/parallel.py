"""Data parallelism: each rank computes its share of every batch, and gradients are summed.

Weights are replicated on every rank, or sharded over the ranks (FSDP2) and gathered layer by layer.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
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
"""Elements of gradients in one all-reduce."""


@dataclass(frozen=True)
class Parallel:
    """How a batch and the weights are divided among ranks."""

    world: ProcessGroup = SINGLE
    is_sharded: bool = False
    parts: int = 1
    """Accumulation parts into which a single rank divides a batch (`optim.accumulation_parts`)."""

    @property
    def loss_scale(self) -> float:
        """Factor on the loss: FSDP averages gradients over ranks, and the learner needs the sum."""
        return float(self.world.size) if self.is_sharded else 1.0

    def shard(self, model: PreTrainedModel, dtype: torch.dtype) -> None:
        """Shard the weights over the ranks, in float32 or wider; layers compute in `dtype`."""
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import (
            MixedPrecisionPolicy,
            fully_shard,
            register_fsdp_forward_method,
        )

        # The warning is about views that are changed in place, which nobody does here.
        warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
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
        """Call `work` with the model, the weights of its root module gathered.

        Gradients flow only through tensors in a tuple or a list that `work` returns.
        """
        if not hasattr(model, "with_whole_weights"):
            return work(model)
        run: Callable[[Callable[[PreTrainedModel], T]], T] = model.with_whole_weights  # type: ignore[assignment]
        result = run(work)
        # With gradients, the backward pass reshards.
        if not torch.is_grad_enabled():
            model.reshard()  # type: ignore[operator]
        return result

    def in_parts(
        self, batch: Batch, max_tokens: int, unit: Unit = "segment"
    ) -> Iterator[Iterator[tuple[Batch, bool]]]:
        """The parts of the batch that this rank computes, each as micro-batches and whether they
        count.

        One of several ranks has one part; a single rank has all `parts`.
        """
        if self.world.size > 1:
            yield self._own(batch, max_tokens, unit)
        elif self.parts > 1:
            for part in range(self.parts):
                yield _counting(batch.share(part, self.parts, unit).microbatches(max_tokens, unit))
        else:
            yield _counting(batch.microbatches(max_tokens, unit))

    def microbatches(
        self, batch: Batch, max_tokens: int, unit: Unit = "segment"
    ) -> Iterator[tuple[Batch, bool]]:
        return itertools.chain.from_iterable(self.in_parts(batch, max_tokens, unit))

    def _own(self, batch: Batch, max_tokens: int, unit: Unit) -> Iterator[tuple[Batch, bool]]:
        """This rank's micro-batches.

        With sharded weights, all ranks must run the model equally often, because each forward pass
        gathers weights from all of them: ranks with fewer micro-batches repeat one that does not
        count.
        """
        share = batch.share(self.world.rank, self.world.size, unit)
        own = list(share.microbatches(max_tokens, unit))
        most = len(own)
        if self.is_sharded:
            # Before the first forward pass: ranks must meet here and there in the same order.
            most = max(map(int, self.world.all_gather_bytes(b"%d" % len(own))))
        yield from _counting(own)
        if most > len(own):
            filler = own[0] if own else next(batch.microbatches(1, unit))
            for _ in range(most - len(own)):
                yield filler, False

    def joined(self, chunks: Sequence[Tensor], like: Tensor) -> Tensor:
        """The chunks of all ranks, concatenated in the order of ranks, on every rank.

        `like` has the type and device, for a rank without chunks.
        """
        own = torch.cat([*chunks, like[:0]])
        if self.world.size == 1:
            return own
        messages = self.world.all_gather_bytes(own.float().cpu().numpy().tobytes())
        joined = numpy.frombuffer(b"".join(messages), dtype=numpy.float32).copy()
        return torch.from_numpy(joined).to(like)

    @torch.no_grad()
    def all_reduce_grads(self, parameters: Sequence[nn.Parameter]) -> None:
        """Sum the gradients over all ranks. FSDP has reduced those of sharded weights already."""
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
            for part, gradient in zip(summed, bucket, strict=True):
                gradient.copy_(part.view_as(gradient))


def _counting(microbatches: Iterable[Batch]) -> Iterator[tuple[Batch, bool]]:
    """Micro-batches that count."""
    for microbatch in microbatches:
        yield microbatch, True


def _with_whole_weights(model: PreTrainedModel, work: Callable[[PreTrainedModel], Any]) -> Any:
    """A method that FSDP treats as the root's forward pass: within it, weights that belong to no
    layer, such as the head's, are gathered.
    """
    return work(model)


def _buckets(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Lists of tensors of about `BUCKET` elements each."""
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
    """Clip the gradients to a norm of at most `limit`. Returns the norm before clipping."""
    norm = torch.nn.utils.clip_grad_norm_(parameters, limit)
    return float(norm.full_tensor() if isinstance(norm, DTensor) else norm)
