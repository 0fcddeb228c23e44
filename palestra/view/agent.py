"""A run's newest checkpoint as somebody to play beside: asked for a reply, it reads the
conversation as it would in training.
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
    """One line: why there is no reply."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A turn of a game, whoever took it."""

    observation: str
    action: str
    reply_ids: list[int] | None
    """The agent's own tokens, where the action was its reply."""


@dataclass(frozen=True, slots=True)
class Reply:
    reply: str
    action: str | None
    """None where the reply cannot be read as one."""
    ids: list[int]
    tokens: list[str]
    logprobs: list[float]


class RunAgent:
    """Loaded when it is first asked, in a thread of its own: torch and the weights take a while."""

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
        """What it says to `observation` after `past`. Another seed may give another reply."""
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
            own = [
                components.envs[spec.label]
                for spec in specs
                if (spec.env.name, spec.env.options) == (name, options)
            ]
            env = own[0] if own else make_env(name, options)
            self._prompts[name] = make_prompt(components.config, env, renderer)
            if not own:
                env.close()
        return self._prompts[name]

    def _close(self) -> None:
        if self._components is not None:
            self._components.close()


def _load(run: Path) -> Components:
    """The newest checkpoint in the native engine, whatever the run was trained with."""
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
    components.loop.run(
        components.engine.sync_weights(version=int(checkpoint.read_state(folder)["step"]))
    )
    return components


def _segment(prompt: PromptConfig, past: Sequence[Exchange]) -> Segment:
    """The conversation up to the last action.

    Actions of a person are written as the agent would write them, without a thought.
    """
    renderer = prompt.renderer
    ids: list[int] = []
    for exchange in past:
        shown = exchange.observation
        ids += (
            renderer.bridge(shown, reply_ended=True)
            if ids
            else renderer.prompt(prompt.opening(shown))
        )
        ids += exchange.reply_ids or renderer.reply_ids(prompt.format.write("", exchange.action))
    count = len(ids)
    return Segment(ids, [*[0] * (count - 1), 1], [0.0] * count, [-1] * count)


def _read(agent: ChatAgent, reply: str, action: str | None, span: tuple[int, int]) -> Reply:
    begin, end = span
    ids = agent.segment.ids[begin:end]
    tokens = [
        agent.context.prompt.renderer.tokenizer.decode([id], skip_special_tokens=False)
        for id in ids
    ]
    return Reply(
        reply,
        None if agent.last_was_cut else action,
        ids,
        [str(token) for token in tokens],
        agent.segment.logprobs[begin:end],
    )
