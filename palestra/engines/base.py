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
    """The model could not be run. Unlike an environment's fault, this ends the run."""


@dataclass(frozen=True, slots=True, eq=False)
class Session:
    """One episode, as an engine knows it.

    An engine may keep its cache between calls until `release`.
    """

    id: str


class Engine(Protocol):
    """Inference with continuous batching: any number of `generate` calls may be pending."""

    async def generate(
        self, ids: Sequence[int], sampling: Sampling, session: Session
    ) -> Generation:
        """Sample a reply to `ids`, all tokens of the episode so far.

        Within a session, `ids` is only ever extended.
        """

    def release(self, session: Session) -> None:
        """The episode is over; its cache can be freed."""

    async def sync_weights(self, version: int) -> None:
        """Copy the learner's weights, and drop the caches of the old ones.

        Called before the first reply and whenever the weights have changed. Replies in flight are
        completed first and no new ones admitted, so that one version samples a whole reply.
        """

    def sleep(self) -> None:
        """Free memory for the learner: there are no requests until the next `sync_weights`."""


class Barrier(Protocol):
    """A pool of environments for which a deterministic engine waits between two rounds."""

    @property
    def is_busy(self) -> bool:
        """Whether a call to an environment is in flight."""

    async def quiesce(self) -> None:
        """Returns when no call is in flight."""


class EngineSettings(Settings):
    """The settings of an engine. They import the engine only when they build it."""

    name: str
    copies_weights: ClassVar[bool] = False
    """Whether the engine always has its own copy of the weights."""

    @property
    def is_deterministic(self) -> bool:
        """Whether batches must not depend on the timing of environments."""
        return False

    def objection(self) -> str:
        """Why the engine cannot run on this host; empty if it can. Called before a run begins."""
        return ""

    @abstractmethod
    def build(
        self,
        model: PreTrainedModel,
        context_tokens: int,
        *,
        overlaps_updates: bool = False,
        world: ProcessGroup = SINGLE,
        barriers: Sequence[Barrier] = (),
    ) -> Engine:
        """Build an engine for `model`, whose weights the learner updates.

        `overlaps_updates`: it samples during updates, and so needs its own copy of the weights.
        `world`: the ranks that sample together. `barriers`: for a deterministic engine to wait for.
        """


class NoEngine:
    """The engine of agents that need no model."""

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
