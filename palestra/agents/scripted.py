"""Agents without a model: the environment's expert, and random actions.

They are baselines for evaluations, and the expert provides demonstrations for a warm start.
"""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from palestra.agents.base import EpisodeContext
from palestra.agents.chat import ChatAgent
from palestra.core.types import Generation, Sampling


class ScriptedAgent(ChatAgent):
    """Replies come from a script and are tokenized like a model's, with log-probs of 0."""

    samples_from_engine: ClassVar[bool] = False

    @abstractmethod
    async def reply(self, sampling: Sampling) -> str:
        """The next reply, as the model would write it. `sampling` has a seed of its own."""

    async def generate(self, ids: Sequence[int], sampling: Sampling) -> Generation:
        reply = self.context.prompt.renderer.reply_ids(await self.reply(sampling))
        was_cut = len(reply) > sampling.max_tokens
        reply = reply[: sampling.max_tokens]
        return Generation(reply, [0.0] * len(reply), "length" if was_cut else "stop", version=0)


class ExpertAgent(ScriptedAgent):
    """Takes the action of the environment's expert, and gives up if there is none.

    `noise`: probability of a random valid action instead.
    """

    def __init__(self, context: EpisodeContext, noise: float = 0.0) -> None:
        super().__init__(context)
        self.noise = noise

    async def reply(self, sampling: Sampling) -> str:
        rng = random.Random(sampling.seed)
        hints, format = self.context.hints, self.context.prompt.format
        if rng.random() < self.noise:
            actions = await hints.actions()
            if actions:
                return format.write("", rng.choice(actions))
        return format.write("", await hints.expert() or "give up")


class RandomAgent(ScriptedAgent):
    """Takes a valid action uniformly at random."""

    async def reply(self, sampling: Sampling) -> str:
        actions = await self.context.hints.actions() or ["do something"]
        action = random.Random(sampling.seed).choice(actions)
        return self.context.prompt.format.write("", action)
