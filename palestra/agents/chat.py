"""An agent turns observations into actions; it holds the tokens of its episode and only ever
appends to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Protocol

from palestra.agents.renderer import Renderer
from palestra.core.action_formats import Format
from palestra.core.seeds import derive_seed
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


class Agent(Protocol):
    """Anything that acts. `segments` is the record that training reads."""

    @property
    def segments(self) -> list[Segment]: ...

    async def act(self, observation: str) -> Action: ...

    def observe(self, observation: str) -> None:
        """Take note of what there is to see when no turns are left: what it would act on next, if
        it might.
        """


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
        needs_no_words = not self.instructions and self.format.is_self_evident
        system = (
            "" if needs_no_words else f"{self.instructions}\n\n{self.format.instructions}".strip()
        )
        messages = [Message("system", system)] if system else []
        for shown, thought, action in self.example:
            messages += [
                Message("user", shown),
                Message("assistant", self.format.write(thought, action)),
            ]
        return [*messages, Message("user", observation)]


@dataclass
class ChatAgent:
    """An agent whose context is one chat: it renders only what is new onto the ids that it already
    holds.
    """

    prompt: PromptConfig
    engine: Engine
    session: Session
    sampling: Sampling
    """Its seed is the episode's; each reply gets its own from it."""
    stream: Segment = field(default_factory=lambda: Segment([], [], [], []))
    replies: int = 0
    last_was_cut: bool = False

    @property
    def segments(self) -> list[Segment]:
        return [self.stream] if self.stream.ids else []

    async def act(self, observation: str) -> Action:
        self._show(observation, self.sampling.max_tokens)
        sampling = replace(self.sampling, seed=derive_seed(self.sampling.seed, self.replies))
        generation = await self.engine.generate(self.stream.ids, sampling, self.session)
        start = len(self.stream.ids)
        self._append(generation.ids, 1, generation.logprobs, generation.version)
        self.replies += 1
        self.last_was_cut = generation.finish == "length"
        reply = self.prompt.renderer.reply_text(generation.ids)
        parsed = self.prompt.format.parse(reply)
        return Action(
            reply, parsed.action, parsed.error, (start, len(self.stream.ids)), 0, self.last_was_cut
        )

    def take_up(self, stream: Segment, replies: int) -> None:
        """Go on from the tokens of an earlier episode, in which `replies` replies were given.

        `stream` is appended to.
        """
        self.stream, self.replies, self.last_was_cut = stream, replies, False

    def observe(self, observation: str) -> None:
        with suppress(ContextFull):
            self._show(observation, reply_tokens=0)

    def _show(self, observation: str, reply_tokens: int) -> None:
        renderer = self.prompt.renderer
        if self.stream.ids and not self.stream.mask[-1]:
            new = []  # taken up from a record where this observation stands last
        elif self.stream.ids:
            new = renderer.bridge(observation, reply_ended=not self.last_was_cut)
        else:
            new = renderer.prompt(self.prompt.opening(observation))
        if len(self.stream.ids) + len(new) + reply_tokens > self.prompt.context_tokens:
            raise ContextFull
        self._append(new, 0, [0.0] * len(new), -1)

    def _append(self, ids: list[int], chosen: int, logprobs: list[float], version: int) -> None:
        self.stream.ids.extend(ids)
        self.stream.mask.extend([chosen] * len(ids))
        self.stream.logprobs.extend(logprobs)
        self.stream.versions.extend([version] * len(ids))
