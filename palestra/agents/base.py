"""The contract of every agent: observations in, actions out, and a record of all tokens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from palestra.agents.renderer import Renderer
from palestra.core.action_formats import Format
from palestra.core.types import Example, Message, Sampling, Segment
from palestra.engines.base import Engine, Session


@dataclass(frozen=True, slots=True)
class Action:
    """One reply: what was written, and what it means to the environment."""

    reply: str
    text: str | None
    """The action; None where the reply could not be read as one."""
    error: str
    """What was expected, where `text` is None."""
    span: tuple[int, int]
    segment: int
    was_cut: bool
    """The token budget of the reply ran out."""


class ContextFull(Exception):
    """The next observation and a reply to it do not fit into the context."""


class Hints(Protocol):
    """What an environment tells scripted agents about its present state."""

    async def actions(self) -> list[str] | None:
        """The actions that are valid now; None where the environment cannot list them."""

    async def expert(self) -> str | None:
        """What the environment's expert would do now; None where there is no expert."""


class NoHints:
    """For agents that act where no environment can be asked."""

    async def actions(self) -> list[str] | None:
        return None

    async def expert(self) -> str | None:
        return None


@dataclass
class PromptConfig:
    """What all episodes of a run share about how the agent is told things and how it answers."""

    renderer: Renderer
    format: Format
    instructions: str = ""
    example: Sequence[Example] = ()
    context_tokens: int = 4096
    """All tokens of an episode must fit into this."""

    def opening(self, observation: str) -> list[Message]:
        """The messages before the first reply."""
        messages = []
        if self.instructions or not self.format.is_self_evident:
            system = f"{self.instructions}\n\n{self.format.instructions}".strip()
            messages.append(Message("system", system))
        for shown, thought, action in self.example:
            messages.append(Message("user", shown))
            messages.append(Message("assistant", self.format.write(thought, action)))
        return [*messages, Message("user", observation)]


@dataclass(frozen=True, slots=True)
class EpisodeContext:
    """What an agent is given for one episode."""

    prompt: PromptConfig
    engine: Engine
    session: Session
    sampling: Sampling
    """Its seed is the episode's; each reply derives its own from it."""
    hints: Hints


class Agent(ABC):
    """Acts in one episode. A new one is created for each.

    `[agent] options` are further keyword arguments of a subclass's constructor.
    """

    samples_from_engine: ClassVar[bool] = True
    """Whether its tokens are the engine's, so that they can be trained on."""

    def __init__(self, context: EpisodeContext) -> None:
        self.context = context

    @property
    @abstractmethod
    def segments(self) -> list[Segment]:
        """The record that training reads: all tokens of the episode."""

    @abstractmethod
    async def act(self, observation: str) -> Action:
        """The next action. Raises `ContextFull` where observation and reply do not fit."""

    def observe(self, observation: str) -> None:
        """Take note of the observation after the last action: no further action is asked for."""

    def close(self) -> None:
        """The episode is over."""
        self.context.engine.release(self.context.session)


AgentFactory = Callable[[EpisodeContext], Agent]
"""A class of agents, or one with its options filled in."""
