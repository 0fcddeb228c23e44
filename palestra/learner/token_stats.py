"""Per-token statistics of a step: the advantage, and the learner's log-prob and entropy from the
first epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy
import torch
from torch import Tensor

from palestra.algos.base import PolicyOutput
from palestra.algos.batch import Batch
from palestra.core.process_group import ProcessGroup

DIGITS = 4
"""Significant digits of each number."""


@dataclass(frozen=True, slots=True)
class EpisodeTokenStats:
    """Three lists parallel to the action tokens of all segments of an episode.

    None (null) if nothing was computed for a token.
    """

    id: str
    advantage: list[float | None]
    logp: list[float | None]
    entropy: list[float | None]


class TokenStats:
    """Collects the statistics of a step's tokens during the update.

    Tensors stay on their device until the step is over.
    """

    def __init__(self, batch: Batch, ids: Sequence[str]) -> None:
        """`batch`: all trajectories of the step, with advantages; `ids`: their episodes' ids."""
        self._batch, self._ids = batch, ids
        self._collected: list[tuple[Tensor, Tensor, Tensor]] = []
        """(index_C, logp_C, entropy_C) of each micro-batch."""

    def __call__(self, microbatch: Batch, policy: PolicyOutput) -> None:
        """Record the outputs for a micro-batch, without a copy or a synchronization."""
        self._collected.append(
            (microbatch.index_C, policy.logp_C.detach(), policy.entropy_C.detach())
        )

    def gather(self, world: ProcessGroup) -> None:
        """Gather the statistics of all ranks, each of which has its share of the tokens.

        All ranks must call this.
        """
        if world.size == 1:
            return
        device = self._batch.ids_T.device
        # In float64, which holds indices exactly, too.
        own = [torch.empty(3, 0, dtype=torch.float64, device=device)]
        for index_C, logp_C, entropy_C in self._collected:
            own.append(torch.stack([index_C.double(), logp_C.double(), entropy_C.double()]))
        own_3C = torch.cat(own, dim=1)
        self._collected = []
        for message in world.all_gather_bytes(own_3C.cpu().numpy().tobytes()):
            if message:
                values_3C = torch.frombuffer(bytearray(message), dtype=torch.float64).view(3, -1)
                index_C, logp_C, entropy_C = values_3C.to(device)
                self._collected.append((index_C.long(), logp_C, entropy_C))

    def episodes(self) -> list[EpisodeTokenStats]:
        """The statistics of all episodes that took part in the gradient."""
        if not self._collected:
            return []
        index_C, logp_C, entropy_C = map(torch.cat, zip(*self._collected, strict=True))
        advantage_C = self._batch.advantage_C
        if advantage_C is None:
            # Imitation has the gradient of an advantage of 1.
            advantage_C = torch.ones_like(self._batch.sampled_logp_C)
        values_3C = torch.full((3, len(advantage_C)), torch.nan, device=index_C.device)
        values_3C[0] = advantage_C
        values_3C[1:, index_C] = torch.stack([logp_C, entropy_C]).float()
        has_gradient_N = torch.zeros(len(self._ids), dtype=torch.bool, device=index_C.device)
        has_gradient_N[self._batch.trajectory_C[index_C]] = True
        ends = self._batch.trajectory_C.bincount(minlength=len(self._ids)).cumsum(0).tolist()
        per_episode = zip(
            self._ids,
            numpy.split(rounded(values_3C.cpu().numpy()), ends[:-1], axis=1),
            has_gradient_N.tolist(),
            strict=True,
        )
        return [
            EpisodeTokenStats(id, *own_3C.tolist())
            for id, own_3C, has_gradient in per_episode
            if has_gradient
        ]


def rounded(values: numpy.ndarray) -> numpy.ndarray:
    """Round to `DIGITS` significant digits, so that files stay small."""
    double = values.astype(numpy.float64)
    size = numpy.abs(double)
    # NaN, infinity and 0 have no logarithm, and stay as they are.
    has_log = numpy.isfinite(double) & (size > 0)
    decimals = DIGITS - 1 - numpy.floor(numpy.log10(numpy.where(has_log, size, 1.0)))
    # Powers with exponents of 0 and above are exact up to 1e22; negative ones never are.
    up, down = 10.0 ** numpy.maximum(decimals, 0), 10.0 ** numpy.maximum(-decimals, 0)
    return numpy.where(has_log, numpy.round(double * up / down) * down / up, double)
