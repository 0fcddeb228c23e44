"""Where an agent meets an environment: single episodes, groups of them, retries after faults."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from palestra.agents.agent import Agent, ChatAgent, ContextFull, Persona
from palestra.engines.base import Engine, Session
from palestra.seeds import derive_seed
from palestra.serve.handle import EnvFault, EnvHandle, EnvPool
from palestra.types import Group, Sampling, Step, Stop, Task, Trajectory, Turn

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Episode:
    """What is to be played."""

    id: str
    """Unique in its run."""
    task: Task
    horizon: int
    seed: int
    step: int = 0


@dataclass
class Arena:
    """All that episodes of a run share: how the agent is told things, who answers, and where the environments are."""

    persona: Persona
    engine: Engine
    pool: EnvPool
    sampling: Sampling
    concurrency: int = 128
    retries: int = 1

    def with_(self, **changes: object) -> Arena:
        return replace(self, **changes)  # type: ignore[arg-type]


@dataclass
class Collected:
    """The outcome of one round of play."""

    groups: list[Group]
    dropped: list[Group] = field(default_factory=list)
    """Groups without a signal, replaced by others (dynamic sampling); counted, not learnt from."""
    faulted: list[Trajectory] = field(default_factory=list)
    """Attempts that a fault ended and that were begun anew."""

    @property
    def played(self) -> list[Group]:
        return [*self.groups, *self.dropped]


async def play(agent: Agent, env: EnvHandle, episode: Episode, turns: list[Turn]) -> tuple[Stop, bool | None, str]:
    """Play one episode, adding to `turns`. Returns why it ended, whether it succeeded, and the last observation."""
    observation = await env.reset(episode.task)
    for _ in range(episode.horizon):
        try:
            action = await agent.act(observation)
        except ContextFull:
            return Stop.CONTEXT, False, observation
        if action.was_cut:  # half a reply is no action
            turns.append(Turn(observation, action.reply, None, 0.0, action.span, action.segment, invalid=True))
            return Stop.LENGTH, False, observation
        step = Step(action.error, invalid=True) if action.text is None else await env.step(action.text)
        turns.append(Turn(observation, action.reply, action.text, step.reward, action.span, action.segment, step.invalid, step.info))
        observation = step.observation
        if step.terminated or step.truncated:
            return Stop.DONE, step.success, observation
    return Stop.HORIZON, False, observation


async def play_once(arena: Arena, episode: Episode, attempt: int) -> Trajectory:
    """`play`, with a broken environment recorded as a fault and not as a failure to solve."""
    began = time.monotonic()
    turns: list[Turn] = []
    env = arena.pool.take()
    env_seconds = env.seconds
    session = Session(episode.id, env)
    agent = ChatAgent(arena.persona, arena.engine, session, replace(arena.sampling, seed=episode.seed))
    fault_text = ""
    try:
        stop, success, final = await play(agent, env, episode, turns)
        arena.pool.give_back(env)
    except EnvFault as fault:
        stop, success, final, fault_text = fault.stop, None, "", str(fault)
        log.warning("episode %s: %s: %s", episode.id, stop, fault)
        await arena.pool.throw_away(env)
    finally:
        arena.engine.release(session)
    return Trajectory(
        id=episode.id,
        task=episode.task,
        segments=agent.segments,
        turns=turns,
        stop=stop,
        success=success,
        horizon=episode.horizon,
        seed=episode.seed,
        step=episode.step,
        attempt=attempt,
        final_observation=final,
        fault=fault_text,
        timings={"total_s": time.monotonic() - began, "env_s": env.seconds - env_seconds},
    )


async def play_all(
    arena: Arena, episodes: Sequence[Episode], *, on_done: Callable[[Trajectory], None] | None = None
) -> tuple[list[Trajectory], list[Trajectory]]:
    """Play all episodes, each at its own pace. Returns them in order, and the faulted attempts that were begun anew."""
    gate = asyncio.Semaphore(arena.concurrency)
    faulted: list[Trajectory] = []

    async def one(episode: Episode) -> Trajectory:
        async with gate:
            for attempt in range(arena.retries + 1):
                trajectory = await play_once(arena, episode, attempt)
                if not trajectory.stop.is_fault:
                    break
                if attempt < arena.retries:
                    faulted.append(trajectory)
        if on_done is not None:
            on_done(trajectory)
        return trajectory

    async with asyncio.TaskGroup() as tasks:
        jobs = [tasks.create_task(one(episode)) for episode in episodes]
    return [job.result() for job in jobs], faulted


async def collect(
    arena: Arena,
    draw: Callable[[int], list[Task]],
    *,
    tasks: int,
    group: int,
    horizon: int,
    seed: int,
    step: int,
    redraws: int = 0,
    has_signal: Callable[[Group], bool] = lambda group: True,
    on_done: Callable[[Trajectory], None] | None = None,
) -> Collected:
    """Play `tasks` groups. Groups without a signal are replaced by fresh ones, in up to `redraws` further rounds."""
    collected = Collected([])
    number = itertools.count()
    for round_ in range(redraws + 1):
        wanted = draw(tasks - len(collected.groups))
        episodes = [
            Episode(f"{step:06d}-{(n := next(number)):04d}", task, horizon, derive_seed(seed, "episode", step, n), step)
            for task in wanted
            for _ in range(group)
        ]
        played, faulted = await play_all(arena, episodes, on_done=on_done)
        collected.faulted += faulted
        for i, task in enumerate(wanted):
            one = Group(task, played[i * group : (i + 1) * group])
            keep = round_ == redraws or has_signal(one)
            (collected.groups if keep else collected.dropped).append(one)
        if len(collected.groups) == tasks:
            break
    return collected
