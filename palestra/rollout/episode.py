"""One episode: where an agent meets an environment."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace

from palestra.agents.base import Agent, AgentFactory, ContextFull, EpisodeContext, PromptConfig
from palestra.agents.chat import ChatAgent
from palestra.core.process_group import SINGLE, ProcessGroup
from palestra.core.seeds import derive_seed
from palestra.core.types import Sampling, Segment, Step, Stop, Task, Trajectory, Turn
from palestra.engines.base import Engine, Session
from palestra.envs.serving.handles import EnvFault, EnvHandle, EnvPool, opened

log = logging.getLogger(__name__)

MAX_COLLATERAL_FAULTS = 20
"""How often an episode is restarted for faults that others have caused before they count as its
own.
"""


@dataclass(frozen=True, slots=True)
class EpisodeSpec:
    """What is to be played."""

    id: str
    """Unique in its run."""
    task: Task
    horizon: int
    seed: int
    step: int = 0
    stage: int = 0
    reward_scale: float = 1.0
    is_baseline: bool = False
    """Played greedily, for the others of its task to be compared with."""

    def seed_of(self, attempt: int) -> int:
        """A retry samples other tokens: the same ones might break the
        environment in the same way.
        """
        return self.seed if attempt == 0 else derive_seed(self.seed, "attempt", attempt)


@dataclass
class EnvBinding:
    """One of the run's environments: how the agent is told things there, and where its instances
    wait.
    """

    prompt: PromptConfig
    pool: EnvPool
    env_name: str = ""
    """What the environment's own tasks call it, where the run calls it something else."""

    def own(self, task: Task) -> Task:
        """The task as the environment knows it."""
        return replace(task, env=self.env_name) if self.env_name else task


def shared_prompt(bindings: Mapping[str, EnvBinding]) -> PromptConfig:
    """Any of the places': what a run's replies look like, and how they become tokens, is the same
    in all of them.
    """
    return next(iter(bindings.values())).prompt


@dataclass
class RolloutContext:
    """All that episodes of a run share: the environments by name, who answers, and how."""

    bindings: Mapping[str, EnvBinding]
    engine: Engine
    sampling: Sampling
    agent: AgentFactory = ChatAgent
    """Creates the agent of each episode."""
    concurrency: int = 128
    retries: int = 1
    world: ProcessGroup = SINGLE
    """Who plays with us: each rank plays its share, and all of them have all of it."""


class EpisodeDropped(Exception):
    """We ended the episode. Nobody is to blame, and nothing is learned from it."""


Begin = Callable[[Agent, EnvHandle, Task, list[Turn]], Awaitable[str]]
"""Leads to where the agent acts first, and returns what it sees there. It may add earlier turns."""


async def reset(agent: Agent, env: EnvHandle, task: Task, turns: list[Turn]) -> str:
    """Begin at the beginning."""
    return await env.reset(task)


async def rollout_episode(
    context: RolloutContext, episode: EpisodeSpec, attempt: int = 0, begin: Begin = reset
) -> Trajectory:
    """The agent acts until the environment ends the episode, or turns or tokens run out.

    A broken environment is recorded as a fault, not as a failure to solve the task.
    """
    started = time.monotonic()
    binding = context.bindings[episode.task.env]
    task, seed = binding.own(episode.task), episode.seed_of(attempt)
    temperature = 0.0 if episode.is_baseline else context.sampling.temperature
    sampling = replace(context.sampling, seed=seed, temperature=temperature)
    session = Session(episode.id)
    turns: list[Turn] = []
    segments: list[Segment] = []
    stop, observation = Stop.HORIZON, ""
    success: bool | None = False
    fault, env_seconds, is_collateral = "", 0.0, False
    try:
        async with opened(binding.pool) as env:
            given = EpisodeContext(binding.prompt, context.engine, session, sampling, env)
            agent = context.agent(given)
            try:
                observation = await begin(agent, env, task, turns)
                while stop is Stop.HORIZON and len(turns) < episode.horizon:
                    action = await agent.act(observation)
                    if action.was_cut:  # half a reply is no action
                        stop, step = Stop.LENGTH, Step(observation, invalid=True)
                    elif action.text is None:
                        step = Step(action.error, invalid=True)
                    else:
                        step = await env.step(action.text)
                    turns.append(
                        Turn(
                            observation,
                            action.reply,
                            None if action.was_cut else action.text,
                            step.reward,
                            action.span,
                            action.segment,
                            step.invalid,
                            step.info,
                        )
                    )
                    observation = step.observation
                    if step.terminated:
                        stop, success = Stop.DONE, step.success
                    elif step.truncated:
                        stop, success = Stop.TRUNCATED, step.success
                if stop in (Stop.HORIZON, Stop.TRUNCATED):
                    agent.observe(observation)
            except ContextFull:
                stop = Stop.CONTEXT
            finally:
                agent.close()
                segments, env_seconds = agent.segments, env.seconds
    except EnvFault as error:
        stop, success, observation = error.stop, None, ""
        fault, is_collateral = str(error), error.is_collateral
        log.warning("episode %s: %s: %s", episode.id, stop, error)
    except EpisodeDropped:
        stop, success, observation = Stop.CANCELLED, None, ""
    return Trajectory(
        id=episode.id,
        task=episode.task,
        segments=segments,
        turns=turns,
        stop=stop,
        success=success,
        horizon=episode.horizon,
        seed=seed,
        step=episode.step,
        stage=episode.stage,
        reward_scale=episode.reward_scale,
        is_baseline=episode.is_baseline,
        attempt=attempt,
        final_observation=observation,
        fault=fault,
        is_collateral=is_collateral,
        timings={"total_s": time.monotonic() - started, "env_s": env_seconds},
    )


async def rollout_with_retries(
    context: RolloutContext, episode: EpisodeSpec, faulted: list[Trajectory]
) -> Trajectory:
    """Play an episode, and restart it after a fault up to `context.retries` times; abandoned
    attempts go to `faulted`.

    A fault that another episode has caused is no attempt: the next one has the same number and so
    the same seed, and the episode comes out as if nothing had happened. An episode that meets such
    faults again and again is soon played alone, where there are none.
    """
    attempt = collateral = 0
    while True:
        trajectory = await rollout_episode(context, episode, attempt)
        if not trajectory.stop.is_fault or trajectory.stop is Stop.CANCELLED:
            return trajectory
        if trajectory.is_collateral and collateral < MAX_COLLATERAL_FAULTS:
            collateral += 1
        elif attempt < context.retries:
            attempt += 1
        else:
            return trajectory
        faulted.append(trajectory)
