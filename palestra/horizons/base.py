"""The contract of every horizon schedule."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from palestra.core.settings import Settings


@dataclass(frozen=True, slots=True)
class Progress:
    """The input of a schedule. It is saved in the checkpoint."""

    step: int
    """The number of completed training steps."""
    success: tuple[float, ...] = ()
    """The success rate of each completed training step that had rollouts."""


class Horizon(Settings):
    """A schedule: a pure function of `Progress`, so that a resumed run has the same horizons as an
    uninterrupted one. The object is its own settings.
    """

    kind: str

    @abstractmethod
    def __call__(self, progress: Progress) -> int:
        """Maximum number of turns of an episode in the next step."""

    @abstractmethod
    def stage(self, progress: Progress) -> int:
        """The stage of the curriculum, counted from 1; the viewer draws it as a band."""

    @property
    @abstractmethod
    def full(self) -> int:
        """The longest horizon of the schedule. Evaluations use it by default."""
