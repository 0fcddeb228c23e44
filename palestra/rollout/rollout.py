"""Where an agent meets an environment: single episodes, groups of them, retries after faults."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from palestra.agents.chat import Agent, ChatAgent, ContextFull, PromptConfig
from palestra.agents.renderer import TemplateError
from palestra.core.errors import UserError
from palestra.core.process_group import SINGLE, ProcessGroup
from palestra.core.seeds import derive_seed
from palestra.core.types import Group, Sampling, Segment, Step, Stop, Task, Trajectory, Turn
from palestra.engines.base import Engine, EngineFailed, Session
from palestra.envs.serving.handles import EnvFault, EnvHandle, EnvPool, opened

log = logging.getLogger(__name__)


MOST_COLLATERAL = 20
"""So often an episode is begun anew for faults that others have caused before they count as its
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


@dataclass(frozen=True, slots=True)
class GroupRequest:
    """A task that a whole group is to play."""

    task: Task
    group: int
    horizon: int
    stage: int = 0
    reward_scale: float = 1.0
    with_baseline: bool = False
    """Play it once more, greedily."""

    @property
    def episodes(self) -> int:
        return self.group + self.with_baseline


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
    concurrency: int = 128
    retries: int = 1
    world: ProcessGroup = SINGLE
    """Who plays with us: each rank plays its share, and all of them have all of it."""

    def with_(self, **changes: object) -> RolloutContext:
        return replace(self, **changes)  # type: ignore[arg-type]


@dataclass
class RolloutBatch:
    """The outcome of one round of play."""

    groups: list[Group]
    dropped: list[Group] = field(default_factory=list)
    """Groups without a signal, replaced by others (dynamic sampling); counted, not learned from."""
    faulted: list[Trajectory] = field(default_factory=list)
    """Attempts that a fault ended and that were begun anew."""
    outdated: list[Group] = field(default_factory=list)
    """Groups that were dropped as too old to learn from (`rollout.max_age`), with what had been
    played of them.
    """

    @property
    def played(self) -> list[Group]:
        return [*self.groups, *self.dropped]

    @property
    def trajectories(self) -> list[Trajectory]:
        """All that was played, also what is not learned from."""
        groups = [*self.played, *self.outdated]
        members = [
            t for group in groups for t in (*group.trajectories, group.baseline) if t is not None
        ]
        return [*members, *self.faulted]

    @property
    def tokens(self) -> int:
        """All that was shown and sampled, in whatever became of it."""
        return sum(t.tokens for t in self.trajectories)


class EpisodeDropped(Exception):
    """We ended the episode. Nobody is to blame, and nothing is learned from it."""


async def play(
    agent: Agent, env: EnvHandle, task: Task, horizon: int, turns: list[Turn]
) -> tuple[Stop, bool | None, str]:
    """Play one episode, adding to `turns`.

    Returns why it ended, whether it succeeded, and the last observation.
    """
    return await play_on(agent, env, await env.reset(task), horizon, turns)


async def play_on(
    agent: Agent, env: EnvHandle, observation: str, horizon: int, turns: list[Turn]
) -> tuple[Stop, bool | None, str]:
    """Play from an observation to the end, for at most `horizon` turns in all."""
    while len(turns) < horizon:
        try:
            action = await agent.act(observation)
        except ContextFull:
            return Stop.CONTEXT, False, observation
        if action.was_cut:  # half a reply is no action
            turns.append(
                Turn(
                    observation, action.reply, None, 0.0, action.span, action.segment, invalid=True
                )
            )
            return Stop.LENGTH, False, observation
        step = (
            Step(action.error, invalid=True) if action.text is None else await env.step(action.text)
        )
        turns.append(
            Turn(
                observation,
                action.reply,
                action.text,
                step.reward,
                action.span,
                action.segment,
                step.invalid,
                step.info,
            )
        )
        observation = step.observation
        if step.terminated:
            return Stop.DONE, step.success, observation
        if step.truncated:
            agent.observe(observation)
            return Stop.TRUNCATED, step.success, observation
    agent.observe(observation)
    return Stop.HORIZON, False, observation


Play = Callable[
    [ChatAgent, EnvHandle, Task, int, list[Turn]], Awaitable[tuple[Stop, bool | None, str]]
]


async def play_once(
    context: RolloutContext, episode: EpisodeSpec, attempt: int, how: Play = play
) -> Trajectory:
    """`play`, or another way to, with a broken environment recorded as a fault and not as a failure
    to solve.
    """
    began = time.monotonic()
    turns: list[Turn] = []
    segments: list[Segment] = []
    binding = context.bindings[episode.task.env]
    seed = episode.seed_of(attempt)
    temperature = 0.0 if episode.is_baseline else context.sampling.temperature
    sampling = replace(context.sampling, seed=seed, temperature=temperature)
    fault_text, env_seconds, is_collateral = "", 0.0, False
    try:
        async with opened(binding.pool) as env:
            session = Session(episode.id, env)
            agent = ChatAgent(binding.prompt, context.engine, session, sampling)
            try:
                stop, success, final = await how(
                    agent, env, binding.own(episode.task), episode.horizon, turns
                )
            finally:
                context.engine.release(session)
                segments, env_seconds = agent.segments, env.seconds
    except EnvFault as fault:
        stop, success, final, fault_text, is_collateral = (
            fault.stop,
            None,
            "",
            str(fault),
            fault.is_collateral,
        )
        log.warning("episode %s: %s: %s", episode.id, stop, fault)
    except EpisodeDropped:
        stop, success, final = Stop.CANCELLED, None, ""
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
        final_observation=final,
        fault=fault_text,
        is_collateral=is_collateral,
        timings={"total_s": time.monotonic() - began, "env_s": env_seconds},
    )


async def rollout_with_retries(
    context: RolloutContext, episode: EpisodeSpec, faulted: list[Trajectory]
) -> Trajectory:
    """Play an episode, and begin it anew after a fault as often as the arena allows; attempts that
    were given up go to `faulted`.

    A fault that another episode has caused is no attempt: the next one has the same number and so
    the same seed, and the episode comes out as if nothing had been. Who meets with such faults
    again and again is soon played alone, where there are none.
    """
    attempt = collateral = 0
    while True:
        trajectory = await play_once(context, episode, attempt)
        if not trajectory.stop.is_fault or trajectory.stop is Stop.CANCELLED:
            return trajectory
        if trajectory.is_collateral and collateral < MOST_COLLATERAL:
            collateral += 1
        elif attempt < context.retries:
            attempt += 1
        else:
            return trajectory
        faulted.append(trajectory)


async def play_all(
    context: RolloutContext,
    episodes: Sequence[EpisodeSpec],
    *,
    on_done: Callable[[Trajectory], None] | None = None,
) -> tuple[list[Trajectory], list[Trajectory]]:
    """Play all episodes, each at its own pace.

    Returns them in order, and the faulted attempts that were begun anew.
    """
    world = context.world
    own = await _play_here(context, world.share(episodes), on_done)
    if world.size == 1:
        return own
    played: list[Trajectory] = []
    faulted: list[Trajectory] = []
    for rank, message in enumerate(world.all_gather_bytes(msgspec.msgpack.encode(own))):
        theirs = (
            own
            if rank == world.rank
            else msgspec.msgpack.decode(message, type=tuple[list[Trajectory], list[Trajectory]])
        )
        played += theirs[0]
        faulted += theirs[1]
        if rank != world.rank and on_done is not None:
            for trajectory in theirs[0]:
                on_done(trajectory)
    return played, faulted


async def _play_here(
    context: RolloutContext,
    episodes: Sequence[EpisodeSpec],
    on_done: Callable[[Trajectory], None] | None,
) -> tuple[list[Trajectory], list[Trajectory]]:
    gate = asyncio.Semaphore(context.concurrency)
    faulted: list[Trajectory] = []

    async def one(episode: EpisodeSpec) -> Trajectory:
        async with gate:
            trajectory = await rollout_with_retries(context, episode, faulted)
        if on_done is not None:
            on_done(trajectory)
        return trajectory

    try:
        async with asyncio.TaskGroup() as tasks:
            jobs = [tasks.create_task(one(episode)) for episode in episodes]
    except* (EngineFailed, TemplateError) as failures:
        failed = failures.exceptions[
            0
        ]  # all episodes have the same engine and the same template: one of them says it
    else:
        return [job.result() for job in jobs], faulted
    raise failed


async def collect(
    context: RolloutContext,
    requests: Sequence[GroupRequest],
    *,
    seed: int,
    step: int,
    resample: Callable[[GroupRequest], GroupRequest] | None = None,
    resample_rounds: int = 0,
    has_signal: Callable[[Group], bool] = lambda group: True,
    on_done: Callable[[Trajectory], None] | None = None,
) -> RolloutBatch:
    """Play all assignments.

    Groups without a signal are replaced by what `redraw` gives, in up to `redraws` further rounds.
    """
    rollouts = RolloutBatch([])
    number = itertools.count()
    waiting = list(requests)
    for round_ in range(resample_rounds + 1):
        episodes = [
            episode for request in waiting for episode in episodes_of(request, number, seed, step)
        ]
        played, faulted = await play_all(context, episodes, on_done=on_done)
        rollouts.faulted += faulted
        remaining = iter(played)
        again: list[GroupRequest] = []
        for request in waiting:
            group = group_of(request, remaining)
            if round_ == resample_rounds or has_signal(group):
                rollouts.groups.append(group)
            else:
                rollouts.dropped.append(group)
                again.append(request)
        if not again or resample is None:
            break
        waiting = [resample(request) for request in again]
    return rollouts


def episodes_of(
    request: GroupRequest, number: Iterator[int], seed: int, step: int
) -> Iterator[EpisodeSpec]:
    """What the members of a group play; `number` counts the episodes of the step."""
    for member in range(request.episodes):
        n = next(number)
        yield EpisodeSpec(
            id=f"{step:06d}-{n:04d}",
            task=request.task,
            horizon=request.horizon,
            seed=derive_seed(seed, "episode", step, n),
            step=step,
            stage=request.stage,
            reward_scale=request.reward_scale,
            is_baseline=member == request.group,
        )


def group_of(request: GroupRequest, played: Iterator[Trajectory]) -> Group:
    """The next of `played`, in the order of `episodes_of`."""
    trajectories = list(itertools.islice(played, request.group))
    return Group(request.task, trajectories, next(played) if request.with_baseline else None)


class AllEpisodesFailed(UserError, RuntimeError):
    """Nothing but faults: the environment is broken."""


def raise_if_all_failed(
    what: str, played: Sequence[Trajectory], faulted: Sequence[Trajectory] = ()
) -> None:
    """Raise `AllBroke` where every episode of `what` ended in a fault.

    `faulted`: attempts before the last ones.
    """
    if not played or any(not trajectory.stop.is_fault for trajectory in played):
        return
    first = next((t for t in (*faulted, *played) if t.fault), played[0])
    raise AllEpisodesFailed(
        f"every episode of {what} ended in a fault; the first one: {first.stop}: {first.fault}"
    )
