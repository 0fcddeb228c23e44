"""Agents without a model: the environment's expert, and random play.

They show what a task is worth to chance and to an expert, and give a warm start its demonstrations.
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
    """Replies come from a script; they become tokens as a model's would.

    Their log-probs are 0: a script is certain of what it does.
    """

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
    """Does what the environment's expert would do, and gives up where it has no answer.

    `noise`: how often it takes any valid action instead, as a demonstrator to be surpassed.
    """

    def __init__(self, context: EpisodeContext, noise: float = 0.0) -> None:
        super().__init__(context)
        self.noise = noise

    async def reply(self, sampling: Sampling) -> str:
        chance, hints = random.Random(sampling.seed), self.context.hints
        if chance.random() < self.noise and (actions := await hints.actions()):
            return self.context.prompt.format.write("", chance.choice(actions))
        return self.context.prompt.format.write("", await hints.expert() or "give up")


class RandomAgent(ScriptedAgent):
    """Takes any of the actions that are valid now, all with the same probability."""

    async def reply(self, sampling: Sampling) -> str:
        actions = await self.context.hints.actions() or ["do something"]
        action = random.Random(sampling.seed).choice(actions)
        return self.context.prompt.format.write("", action)
