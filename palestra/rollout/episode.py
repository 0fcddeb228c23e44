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
"""Faults caused by other episodes after which an episode's further faults count as its own."""


@dataclass(frozen=True, slots=True)
class EpisodeSpec:
    """One episode to run."""

    id: str
    """Unique in its run."""
    task: Task
    horizon: int
    seed: int
    step: int = 0
    stage: int = 1
    reward_scale: float = 1.0
    is_baseline: bool = False
    """Sampled greedily, as the baseline of its group."""

    def seed_of(self, attempt: int) -> int:
        """A retry samples other tokens: the same ones might cause the same fault."""
        return self.seed if attempt == 0 else derive_seed(self.seed, "attempt", attempt)


@dataclass
class EnvBinding:
    """One of the run's environments: its prompt, and the pool of its instances."""

    prompt: PromptConfig
    pool: EnvPool
    env_name: str = ""
    """The environment's name in its own tasks, if the run uses another label for it."""

    def own(self, task: Task) -> Task:
        """The task under the environment's own name."""
        return replace(task, env=self.env_name) if self.env_name else task


def shared_prompt(bindings: Mapping[str, EnvBinding]) -> PromptConfig:
    """The prompt configuration of any environment: the action format and the renderer are the same
    in all of a run's environments.
    """
    return next(iter(bindings.values())).prompt


@dataclass
class RolloutContext:
    """What all episodes of a run share: the environments by name, the engine and the agent."""

    bindings: Mapping[str, EnvBinding]
    engine: Engine
    sampling: Sampling
    agent: AgentFactory = ChatAgent
    """Creates the agent of each episode."""
    concurrency: int = 128
    retries: int = 1
    world: ProcessGroup = SINGLE
    """The ranks that share the episodes; each runs its share, and all of them get all results."""


class EpisodeDropped(Exception):
    """The run dropped the episode. This is no fault, and the episode is not trained on."""


Begin = Callable[[Agent, EnvHandle, Task, list[Turn]], Awaitable[str]]
"""Brings the environment to the state where the agent acts first, and returns its observation.

It may add earlier turns.
"""


async def reset(agent: Agent, env: EnvHandle, task: Task, turns: list[Turn]) -> str:
    """Start at the beginning of the task."""
    return await env.reset(task)


async def rollout_episode(
    context: RolloutContext, episode: EpisodeSpec, attempt: int = 0, begin: Begin = reset
) -> Trajectory:
    """Run one episode: the agent acts until the environment ends it, or turns or tokens run out.

    An error of the environment is recorded as a fault, not as a failure to solve the task.
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
                    text = action.text
                    if action.was_cut:
                        # A truncated reply is not an action.
                        text = None
                        stop, step = Stop.LENGTH, Step(observation, invalid=True)
                    elif text is None:
                        step = Step(action.error, invalid=True)
                    else:
                        step = await env.step(text)
                    turns.append(
                        Turn(
                            observation,
                            action.reply,
                            text,
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
    """Run an episode, and restart it after a fault up to `context.retries` times; abandoned
    attempts go to `faulted`.

    A collateral fault, which another episode caused, does not count as an attempt: the restart has
    the same number and so the same seed, and the result is as if nothing had happened. An episode
    with repeated collateral faults is soon run alone, where there are none.
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
