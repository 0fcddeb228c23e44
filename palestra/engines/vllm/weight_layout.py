"""From an engine's layout of weights to the learner's: fused ones in their parts, and what several
workers have of one put together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor


def as_learners(
    weights: Iterable[tuple[str, Sequence[Tensor]]],
    fused: Mapping[str, Sequence[str]],
    shapes: Mapping[str, torch.Size],
    *,
    worker: int = 0,
) -> Iterator[tuple[str, Tensor]]:
    """An engine's weights, each as what its workers have of it, by the learner's names and in the
    learner's `shapes`.

    `fused` has the parts of each fused module ("qkv_proj": q_proj, k_proj, v_proj), which lie one
    after another in every worker's share. A weight that the learner does not have, or has in
    another shape, comes under its own name as this `worker` has it.
    """
    for name, shards in weights:
        module, _, kind = name.rpartition(".")
        parent, dot, own = module.rpartition(".")
        parts = [f"{parent}{dot}{part}.{kind}" for part in fused.get(own, [own])]
        wholes = [shapes[part] for part in parts if part in shapes]
        found = _unfused(shards, wholes, worker) if len(wholes) == len(parts) else None
        yield from zip(parts, found, strict=True) if found is not None else [(name, shards[worker])]


def _unfused(
    shards: Sequence[Tensor], wholes: Sequence[torch.Size], worker: int
) -> list[Tensor] | None:
    """The parts of a fused weight, or the only one of another; None where they are not of these
    shapes.
    """
    rows = _rows(len(shards[0]), [shape[0] for shape in wholes], len(shards))
    if rows is None:
        return None
    pieces = zip(*(shard.split(rows) for shard in shards), strict=True)
    found = [put_together(own, shape, worker) for own, shape in zip(pieces, wholes, strict=True)]
    complete = [weight for weight in found if weight is not None]
    return complete if len(complete) == len(found) else None


def _rows(total: int, wholes: Sequence[int], workers: int) -> list[int] | None:
    """How many rows of each part a worker has: all of them, an equal share, or more where later
    parts are there in several copies.
    """
    first, *others = wholes
    if not others:
        return [total]
    shares = (
        [first // workers, *(rows * copies // workers for rows in others)]
        for copies in range(1, workers + 1)
    )
    return next((rows for rows in ([first, *others], *shares) if sum(rows) == total), None)


def put_together(pieces: Sequence[Tensor], shape: torch.Size, worker: int) -> Tensor | None:
    """A weight of this shape from the pieces of all workers, in their order; None where they do not
    make one.

    Pieces are rows, or columns. There may be several copies of each, side by side (of heads that
    are fewer than the workers; of weights that are not shared out): then those are taken that
    `worker` is among, so that between them the workers see all. There may be padding after the last
    row (of a vocabulary).
    """
    first, workers = pieces[0], len(pieces)
    if first.dim() == 2 and first.shape[1] < shape[-1]:
        weight = torch.cat(list(pieces), dim=1)
        return weight if weight.shape == shape else None
    if first.shape[1:] != shape[1:] or len(first) * workers < shape[0]:
        return None
    copies, rest = divmod(len(first) * workers, shape[0])
    chosen = pieces if rest or workers % copies else pieces[worker % copies :: copies]
    return (torch.cat(list(chosen)) if len(chosen) > 1 else chosen[0])[: shape[0]]
