"""From an engine's layout of weights to the learner's: fused weights are split, and the shards of
tensor-parallel workers are joined.
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
    """An engine's weights under the learner's names and in the learner's `shapes`.

    `weights` has the shards of all workers for each name. `fused` has the parts of each fused
    module ("qkv_proj": q_proj, k_proj, v_proj), which are concatenated in every worker's shard. A
    weight that the learner does not have, or has in another shape, is yielded under its own name,
    as the shard of this `worker`.
    """
    for name, shards in weights:
        module, _, kind = name.rpartition(".")
        parent, dot, own = module.rpartition(".")
        parts = [f"{parent}{dot}{part}.{kind}" for part in fused.get(own, [own])]
        wholes = [shapes[part] for part in parts if part in shapes]
        found = _unfused(shards, wholes, worker) if len(wholes) == len(parts) else None
        if found is None:
            yield name, shards[worker]
        else:
            yield from zip(parts, found, strict=True)


def _unfused(
    shards: Sequence[Tensor], wholes: Sequence[torch.Size], worker: int
) -> list[Tensor] | None:
    """The parts of a fused weight, or a weight that is not fused as the only part; None if they do
    not have these shapes.
    """
    rows = _rows(len(shards[0]), [shape[0] for shape in wholes], len(shards))
    if rows is None:
        return None
    pieces_of_parts = zip(*[shard.split(rows) for shard in shards], strict=True)
    found: list[Tensor] = []
    for pieces, shape in zip(pieces_of_parts, wholes, strict=True):
        weight = put_together(pieces, shape, worker)
        if weight is None:
            return None
        found.append(weight)
    return found


def _rows(total: int, wholes: Sequence[int], workers: int) -> list[int] | None:
    """How many rows of each part a worker has, of `total`: all of them, an equal share, or more if
    later parts are replicated. None if no split adds up.
    """
    first, *others = wholes
    if not others:
        return [total]
    if sum(wholes) == total:
        return [first, *others]
    for copies in range(1, workers + 1):
        # Keys and values are replicated if there are fewer of their heads than workers.
        rows = [first // workers, *(whole * copies // workers for whole in others)]
        if sum(rows) == total:
            return rows
    return None


def put_together(pieces: Sequence[Tensor], shape: torch.Size, worker: int) -> Tensor | None:
    """A weight of this shape from the pieces of all workers, in their order; None if they do not
    add up to it.

    Pieces are rows or columns. They may be replicated next to each other (fewer heads than workers,
    or weights that are not sharded): then the copies that `worker` belongs to are taken, so that
    together the workers check all. The last rows may be padding (of a vocabulary).
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
