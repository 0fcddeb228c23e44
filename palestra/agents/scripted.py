"""An engine without a model: replies come from a function.

For tests and for the expert and random baselines.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence

from palestra.agents.renderer import Renderer
from palestra.core.action_formats import Format
from palestra.core.types import Generation, Sampling
from palestra.engines.base import Session

Script = Callable[[Session, Sampling], Awaitable[str]]
"""From an episode and how a reply should be drawn to the reply."""


class Scripted:
    """Turns a script's replies into tokens.

    Its log-probs are 0: a script is certain of what it does.
    """

    def __init__(self, script: Script, renderer: Renderer) -> None:
        self.script = script
        self.renderer = renderer
        self.version = 0

    async def generate(
        self, ids: Sequence[int], sampling: Sampling, session: Session
    ) -> Generation:
        reply = self.renderer.reply_ids(await self.script(session, sampling))
        was_cut = len(reply) > sampling.max_tokens
        reply = reply[: sampling.max_tokens]
        return Generation(reply, [0.0] * len(reply), "length" if was_cut else "stop", self.version)

    def release(self, session: Session) -> None:
        pass

    async def load(self, version: int) -> None:
        self.version = version

    def rest(self) -> None:
        pass


def expert(format: Format) -> Script:
    """Does what the environment's oracle would do, and gives up where it has no answer."""

    async def reply(session: Session, sampling: Sampling) -> str:
        return format.write("", await session.env.expert() or "give up")

    return reply


def noisy_expert(format: Format, noise: float) -> Script:
    """Like the expert, but every so often (`noise`) it takes any action that is valid now: a
    demonstrator to be surpassed.
    """

    async def reply(session: Session, sampling: Sampling) -> str:
        chance = random.Random(sampling.seed)
        if chance.random() < noise and (actions := await session.env.actions()):
            return format.write("", chance.choice(actions))
        return format.write("", await session.env.expert() or "give up")

    return reply


def uniform(format: Format) -> Script:
    """Takes any of the actions that are valid now, all alike."""

    async def reply(session: Session, sampling: Sampling) -> str:
        actions = await session.env.actions() or ["do something"]
        return format.write("", random.Random(sampling.seed).choice(actions))

    return reply
