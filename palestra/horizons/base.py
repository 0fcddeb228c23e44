"""The contract of every schedule."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from palestra.core.settings import Settings


@dataclass(frozen=True, slots=True)
class Progress:
    """What a schedule may look at. It is saved in the checkpoint."""

    step: int
    """Training steps done."""
    success: tuple[float, ...] = ()
    """The success rate of each training step so far in which the environment was played."""


class Horizon(Settings):
    """A schedule: a pure function of `Progress`, so that a resumed run has the horizon of one that
    was never interrupted. Its settings are itself.
    """

    kind: str

    @abstractmethod
    def __call__(self, progress: Progress) -> int:
        """Maximum number of turns of an episode in the next step."""

    @abstractmethod
    def stage(self, progress: Progress) -> int:
        """The stage of the curriculum, counted from 0; the viewer draws it as a band."""

    @property
    @abstractmethod
    def full(self) -> int:
        """The longest horizon of the schedule. Evaluations use it by default."""
