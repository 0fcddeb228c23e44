"""What training made of each token: its advantage, and what the learner said of it when it first
learned from it in a step.
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
"""Significant ones of each number."""


@dataclass(frozen=True, slots=True)
class EpisodeTokenStats:
    """Three lists parallel to the chosen tokens of all segments of an episode.

    None (null) where nothing was computed.
    """

    id: str
    advantage: list[float | None]
    logp: list[float | None]
    entropy: list[float | None]


class TokenStats:
    """Gathers what is said of a step's tokens while the learner is at work on them.

    Tensors stay where they are until the step is over.
    """

    def __init__(self, batch: Batch, ids: Sequence[str]) -> None:
        """`batch`: all that the step learns from, with its credit; `ids`: of its trajectories."""
        self._batch, self._ids = batch, ids
        self._rows: list[tuple[Tensor, Tensor, Tensor]] = []

    def __call__(self, row: Batch, policy: PolicyOutput) -> None:
        """What the model says of a piece of the batch. Nothing is copied and nothing waited for."""
        self._rows.append((row.index_C, policy.logp_C.detach(), policy.entropy_C.detach()))

    def gather(self, world: ProcessGroup) -> None:
        """Add what other ranks gathered, each for its share of the tokens.

        All of them must do this.
        """
        if world.size == 1:
            return
        device = self._batch.ids_T.device
        own_3C = torch.cat(
            [torch.stack([part.double() for part in row]) for row in self._rows]
            or [torch.empty(3, 0)],
            dim=1,
        )
        messages = world.all_gather_bytes(own_3C.double().cpu().numpy().tobytes())
        parts = [
            torch.frombuffer(bytearray(message), dtype=torch.float64).view(3, -1).to(device)
            for message in messages
            if message
        ]
        self._rows = [(part_3C[0].long(), part_3C[1], part_3C[2]) for part_3C in parts]

    def episodes(self) -> list[EpisodeTokenStats]:
        """Those that had a part in the gradient."""
        if not self._rows:
            return []
        index_C, logp_C, entropy_C = (torch.cat(parts) for parts in zip(*self._rows, strict=True))
        credit_C = self._batch.advantage_C
        if credit_C is None:  # to imitate a token is to credit it with 1
            credit_C = torch.ones_like(self._batch.sampled_logp_C)
        values_3C = torch.full((3, len(credit_C)), torch.nan, device=index_C.device)
        values_3C[0] = credit_C
        values_3C[1:, index_C] = torch.stack([logp_C, entropy_C]).float()
        was_learned_N = torch.zeros(len(self._ids), dtype=torch.bool, device=index_C.device)
        was_learned_N[self._batch.trajectory_C[index_C]] = True
        ends = self._batch.trajectory_C.bincount(minlength=len(self._ids)).cumsum(0).tolist()
        parts = zip(
            self._ids,
            numpy.split(rounded(values_3C.cpu().numpy()), ends[:-1], axis=1),
            was_learned_N.tolist(),
            strict=True,
        )
        return [
            EpisodeTokenStats(id, *own_3C.tolist())
            for id, own_3C, was_learned in parts
            if was_learned
        ]


def rounded(values: numpy.ndarray) -> numpy.ndarray:
    """To a few significant digits, so that files stay small."""
    exact = values.astype(numpy.float64)
    size = numpy.abs(exact)
    is_plain = numpy.isfinite(exact) & (size > 0)
    places = DIGITS - 1 - numpy.floor(numpy.log10(numpy.where(is_plain, size, 1.0)))
    up, down = 10.0 ** numpy.maximum(places, 0), 10.0 ** numpy.maximum(-places, 0)
    return numpy.where(is_plain, numpy.round(exact * up / down) * down / up, exact)
