"""The contract of every engine: token ids in, sampled ids and their log-probs out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from palestra.core.errors import UserError
from palestra.core.types import Generation, Sampling


class EngineFailed(UserError, RuntimeError):
    """The model could not be run. Unlike an environment's fault this ends the run."""


@dataclass(frozen=True, slots=True, eq=False)
class Session:
    """One episode, as an engine knows it.

    An engine may keep its cache between calls until `release`.
    """

    id: str


class Engine(Protocol):
    """Continuous batching: any number of `generate` calls may wait at the same time."""

    async def generate(
        self, ids: Sequence[int], sampling: Sampling, session: Session
    ) -> Generation:
        """Sample a reply to `ids`, all tokens of the episode so far.

        `ids` only ever grows within a session.
        """

    def release(self, session: Session) -> None:
        """The episode is over; its cache can go."""

    async def sync_weights(self, version: int) -> None:
        """Take over the learner's weights, and drop the caches of the old ones.

        Called before the first reply and whenever the weights have changed. Replies in flight are
        completed first and no new ones admitted, so that each reply is of one version.
        """

    def sleep(self) -> None:
        """No reply is asked for until the next `sync_weights`: memory can be lent to the
        learner.
        """


class NoEngine:
    """Stands where an engine does in episodes of agents that need no model."""

    async def generate(
        self, ids: Sequence[int], sampling: Sampling, session: Session
    ) -> Generation:
        raise EngineFailed("no model is loaded: this agent acts without one")

    def release(self, session: Session) -> None:
        pass

    async def sync_weights(self, version: int) -> None:
        pass

    def sleep(self) -> None:
        pass
