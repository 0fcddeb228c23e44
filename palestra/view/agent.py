"""A run's newest checkpoint as an agent that can be asked for a reply. It sees the conversation as
in training.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palestra.core.types import Segment

if TYPE_CHECKING:
    from palestra.agents.base import PromptConfig
    from palestra.agents.chat import ChatAgent
    from palestra.training.setup import Components


class CannotReply(Exception):
    """There is no reply; the message says why in one line."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A turn of a game, played by a person or the agent."""

    observation: str
    action: str
    reply_ids: list[int] | None
    """The agent's own tokens, if the action was its reply."""


@dataclass(frozen=True, slots=True)
class Reply:
    reply: str
    action: str | None
    """None if the reply cannot be parsed as an action."""
    ids: list[int]
    tokens: list[str]
    logprobs: list[float]


class RunAgent:
    """Loads torch and the weights at the first question, in a thread of its own."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="agent")
        self._components: Components | None = None
        self._prompts: dict[str, PromptConfig] = {}

    async def reply(
        self,
        env: str,
        options: dict[str, Any],
        past: Sequence[Exchange],
        observation: str,
        *,
        seed: int,
    ) -> Reply:
        """The agent's reply to `observation` after `past`. Another seed may give another reply."""
        return await asyncio.get_running_loop().run_in_executor(
            self._thread, self._reply, env, options, past, observation, seed
        )

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown()

    def _reply(
        self,
        env: str,
        options: dict[str, Any],
        past: Sequence[Exchange],
        observation: str,
        seed: int,
    ) -> Reply:
        from palestra.agents.base import ContextFull, EpisodeContext, NoHints
        from palestra.agents.chat import ChatAgent
        from palestra.engines.base import Session

        if self._components is None:
            self._components = _load(self.run)
        components, prompt = self._components, self._prompt(self._components, env, options)

        async def one() -> Reply:
            sampling = replace(components.eval_context.sampling, seed=seed)
            session = Session("play")
            agent = ChatAgent(
                EpisodeContext(prompt, components.engine, session, sampling, NoHints())
            )
            if past:
                agent.resume_from(_segment(prompt, past), replies=len(past))
            try:
                action = await agent.act(observation)
            finally:
                agent.close()
            return _read(agent, action.reply, action.text, action.span)

        try:
            return components.loop.run(one())
        except ContextFull:
            raise CannotReply(
                f"the conversation and a reply do not fit into {prompt.context_tokens} tokens"
            ) from None

    def _prompt(self, components: Components, name: str, options: dict[str, Any]) -> PromptConfig:
        if name not in self._prompts:
            from palestra.envs import make_env
            from palestra.rollout.episode import shared_prompt
            from palestra.training.setup import make_prompt

            renderer = shared_prompt(components.context.bindings).renderer
            specs = components.config.env_specs
            for spec in specs:
                if (spec.env.name, spec.env.options) == (name, options):
                    env, is_of_run = components.envs[spec.label], True
                    break
            else:
                env, is_of_run = make_env(name, options), False
            self._prompts[name] = make_prompt(components.config, env, renderer)
            if not is_of_run:
                env.close()
        return self._prompts[name]

    def _close(self) -> None:
        if self._components is not None:
            self._components.close()


def _load(run: Path) -> Components:
    """The newest checkpoint in the torch engine, whatever engine the run was trained with."""
    from palestra.config import config as configs
    from palestra.learner import checkpoint
    from palestra.training.setup import setup

    folder = checkpoint.newest(run / "checkpoints")
    if folder is None:
        raise CannotReply(f"{run}: the run has no checkpoint yet")
    settings = {
        "model.kind": "pretrained",
        "model.path": str(folder),
        "lora": None,
        "engine.name": "torch",
        "engine.slots": 1,
    }
    components = setup(configs.load(run / "config.toml", settings, imports=True))
    step = int(checkpoint.read_state(folder)["step"])
    components.loop.run(components.engine.sync_weights(version=step))
    return components


def _segment(prompt: PromptConfig, past: Sequence[Exchange]) -> Segment:
    """The conversation up to the last action.

    A person's actions are formatted as the agent's, without a thought.
    """
    renderer = prompt.renderer
    ids: list[int] = []
    for exchange in past:
        if ids:
            ids += renderer.bridge(exchange.observation, reply_ended=True)
        else:
            ids += renderer.prompt(prompt.opening(exchange.observation))
        ids += exchange.reply_ids or renderer.reply_ids(prompt.format.write("", exchange.action))
    count = len(ids)
    return Segment(ids, [*[0] * (count - 1), 1], [0.0] * count, [-1] * count)


def _read(agent: ChatAgent, reply: str, action: str | None, span: tuple[int, int]) -> Reply:
    begin, end = span
    ids = agent.segment.ids[begin:end]
    tokenizer = agent.context.prompt.renderer.tokenizer
    return Reply(
        reply,
        None if agent.last_was_cut else action,
        ids,
        [str(tokenizer.decode([id], skip_special_tokens=False)) for id in ids],
        agent.segment.logprobs[begin:end],
    )
