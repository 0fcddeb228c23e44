"""The default agent: its context is one chat, to which every turn is appended."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from palestra.agents.base import Action, Agent, ContextFull, EpisodeContext
from palestra.core.seeds import derive_seed
from palestra.core.types import Generation, Sampling, Segment


class ChatAgent(Agent):
    """Appends only the tokens of new messages to its context, so that the tokens it is trained on
    are the tokens that were sampled.
    """

    def __init__(self, context: EpisodeContext) -> None:
        super().__init__(context)
        self.segment = Segment([], [], [], [])
        self.replies = 0
        self.last_was_cut = False

    @property
    def segments(self) -> list[Segment]:
        return [self.segment] if self.segment.ids else []

    async def act(self, observation: str) -> Action:
        prompt, sampling = self.context.prompt, self.context.sampling
        self._show(observation, sampling.max_tokens)
        own = replace(sampling, seed=derive_seed(sampling.seed, self.replies))
        generation = await self.generate(self.segment.ids, own)
        start = len(self.segment.ids)
        self._append(generation.ids, 1, generation.logprobs, generation.version)
        self.replies += 1
        self.last_was_cut = generation.finish == "length"
        reply = prompt.renderer.reply_text(generation.ids)
        parsed = prompt.format.parse(reply)
        span = (start, len(self.segment.ids))
        return Action(reply, parsed.action, parsed.error, span, 0, self.last_was_cut)

    async def generate(self, ids: Sequence[int], sampling: Sampling) -> Generation:
        """A reply to `ids`, all tokens so far."""
        return await self.context.engine.generate(ids, sampling, self.context.session)

    def resume_from(self, segment: Segment, replies: int) -> None:
        """Continue an earlier episode from its tokens, after `replies` replies.

        Further tokens are appended to `segment`.
        """
        self.segment, self.replies, self.last_was_cut = segment, replies, False

    def observe(self, observation: str) -> None:
        with suppress(ContextFull):
            self._show(observation, reply_tokens=0)

    def _show(self, observation: str, reply_tokens: int) -> None:
        prompt = self.context.prompt
        if self.segment.ids and not self.segment.mask[-1]:
            # Resumed from a record that already ends with this observation.
            new = []
        elif self.segment.ids:
            new = prompt.renderer.bridge(observation, reply_ended=not self.last_was_cut)
        else:
            new = prompt.renderer.prompt(prompt.opening(observation))
        if len(self.segment.ids) + len(new) + reply_tokens > prompt.context_tokens:
            raise ContextFull
        self._append(new, 0, [0.0] * len(new), -1)

    def _append(self, ids: list[int], mask: int, logprobs: list[float], version: int) -> None:
        self.segment.ids.extend(ids)
        self.segment.mask.extend([mask] * len(ids))
        self.segment.logprobs.extend(logprobs)
        self.segment.versions.extend([version] * len(ids))
