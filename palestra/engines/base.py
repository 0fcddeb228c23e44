"""The contract of every engine: token ids in, sampled ids and their log-probs out."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from palestra.core.errors import UserError
from palestra.core.process_group import SINGLE, ProcessGroup
from palestra.core.settings import Settings
from palestra.core.types import Generation, Sampling

if TYPE_CHECKING:
    from transformers import PreTrainedModel


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


class Barrier(Protocol):
    """Answers of environments that a deterministic engine waits for between two rounds."""

    @property
    def is_busy(self) -> bool:
        """Whether an answer is to be waited for."""

    async def quiesce(self) -> None:
        """Returns when no call is under way."""


class EngineSettings(Settings):
    """What a recipe says of its engine. It builds the engine, and imports it only then."""

    name: str
    copies_weights: ClassVar[bool] = False
    """Whether the engine keeps no reference to the learner's weights in any case."""

    @property
    def is_deterministic(self) -> bool:
        """Whether batches must not depend on when an environment answers."""
        return False

    @abstractmethod
    def build(
        self,
        model: PreTrainedModel,
        context_tokens: int,
        *,
        beside_learner: bool = False,
        world: ProcessGroup = SINGLE,
        barriers: Sequence[Barrier] = (),
    ) -> Engine:
        """An engine for `model`, which the learner changes.

        `beside_learner`: it answers while the learner changes the weights, and so needs its own.
        `world`: the ranks that sample together. `barriers`: what a deterministic engine waits for.
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
