"""The contract of every engine: token ids in, sampled ids and their log-probs out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from palestra.core.errors import UserError
from palestra.core.types import Generation, Sampling

if TYPE_CHECKING:
    from palestra.envs.serving.handles import EnvHandle


class EngineFailed(UserError, RuntimeError):
    """The model could not be run. Unlike an environment's fault this ends the run."""


@dataclass(frozen=True, slots=True, eq=False)
class Session:
    """One episode, as an engine knows it.

    An engine may keep its cache between calls until `release`.
    """

    id: str
    env: EnvHandle
    """Where the episode is played: scripted engines ask it for an expert's or a random action."""


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

    async def load(self, version: int) -> None:
        """Take the learner's weights over, before the first reply and when they have changed, and
        forget what old ones computed.

        Replies in the making are completed first and no new ones begun, so that each is of one
        version.
        """

    def rest(self) -> None:
        """Nothing is asked for until the next `load`: memory can be lent to the learner."""
