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
    """One reply of the model, and the action parsed from it."""

    reply: str
    text: str | None
    """The action; None if the reply could not be parsed."""
    error: str
    """The expected format, if `text` is None."""
    span: tuple[int, int]
    """Start and end of the reply in the segment's tokens."""
    segment: int
    was_cut: bool
    """Whether the reply ran out of its token budget."""


class ContextFull(Exception):
    """The next observation and a reply to it do not fit into the context."""


class Hints(Protocol):
    """What an environment tells scripted agents about its current state."""

    async def actions(self) -> list[str] | None:
        """The valid actions; None if the environment cannot list them."""

    async def expert(self) -> str | None:
        """The expert's next action; None if there is no expert."""


class NoHints:
    """For agents that act without an environment to ask."""

    async def actions(self) -> list[str] | None:
        return None

    async def expert(self) -> str | None:
        return None


@dataclass
class PromptConfig:
    """How a run's observations become prompts, and how actions are written."""

    renderer: Renderer
    format: Format
    instructions: str = ""
    example: Sequence[Example] = ()
    context_tokens: int = 4096
    """Maximum number of tokens in an episode."""

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
    """What an agent gets for one episode."""

    prompt: PromptConfig
    engine: Engine
    session: Session
    sampling: Sampling
    """With the episode's seed, from which each reply derives its own."""
    hints: Hints


class Agent(ABC):
    """Acts in one episode. A new one is created for each.

    `[agent] options` are further keyword arguments of a subclass's constructor.
    """

    samples_from_engine: ClassVar[bool] = True
    """Whether the engine samples its tokens, so that they can be trained on."""

    def __init__(self, context: EpisodeContext) -> None:
        self.context = context

    @property
    @abstractmethod
    def segments(self) -> list[Segment]:
        """The record that training reads: all tokens of the episode."""

    @abstractmethod
    async def act(self, observation: str) -> Action:
        """The next action. Raises `ContextFull` if observation and reply do not fit."""

    def observe(self, observation: str) -> None:
        """Record the final observation, which is followed by no action."""

    def close(self) -> None:
        """The episode is over."""
        self.context.engine.release(self.context.session)


AgentFactory = Callable[[EpisodeContext], Agent]
"""A class of agents, or one with its options filled in."""
