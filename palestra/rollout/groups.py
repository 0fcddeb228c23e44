"""Concurrent episodes: groups of one task, distributed over all ranks, with dynamic sampling."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from palestra.agents.renderer import TemplateError
from palestra.core.errors import UserError
from palestra.core.seeds import derive_seed
from palestra.core.types import Group, Task, Trajectory
from palestra.engines.base import EngineFailed
from palestra.rollout.episode import EpisodeSpec, RolloutContext, rollout_with_retries


@dataclass(frozen=True, slots=True)
class GroupRequest:
    """A task for which a group of episodes is requested."""

    task: Task
    group: int
    horizon: int
    stage: int = 1
    reward_scale: float = 1.0
    with_baseline: bool = False
    """Add one episode, sampled greedily, as a baseline."""

    @property
    def episodes(self) -> int:
        return self.group + self.with_baseline


@dataclass
class RolloutBatch:
    """The episodes collected for one step."""

    groups: list[Group]
    dropped: list[Group] = field(default_factory=list)
    """Groups without a signal that dynamic sampling replaced; they are counted, not trained on."""
    faulted: list[Trajectory] = field(default_factory=list)
    """Attempts that ended in a fault and were restarted."""
    outdated: list[Group] = field(default_factory=list)
    """Groups dropped because they were older than `rollout.max_age`, with their finished episodes.
    """

    @property
    def played(self) -> list[Group]:
        return [*self.groups, *self.dropped]

    @property
    def trajectories(self) -> list[Trajectory]:
        """All finished episodes, also those that are not trained on."""
        found: list[Trajectory] = []
        for group in (*self.played, *self.outdated):
            found += group.trajectories
            if group.baseline is not None:
                found.append(group.baseline)
        return found + self.faulted

    @property
    def tokens(self) -> int:
        """The number of observation and action tokens in all of them."""
        return sum(t.tokens for t in self.trajectories)


async def rollout_episodes(
    context: RolloutContext,
    episodes: Sequence[EpisodeSpec],
    *,
    on_done: Callable[[Trajectory], None] | None = None,
) -> tuple[list[Trajectory], list[Trajectory]]:
    """Run all episodes concurrently; every rank runs its share.

    Returns the trajectories in order, and the faulted attempts that were restarted.
    """
    world = context.world
    slots = asyncio.Semaphore(context.concurrency)
    faulted: list[Trajectory] = []

    async def one(episode: EpisodeSpec) -> Trajectory:
        async with slots:
            trajectory = await rollout_with_retries(context, episode, faulted)
        if on_done is not None:
            on_done(trajectory)
        return trajectory

    failed: Exception | None = None
    try:
        async with asyncio.TaskGroup() as tasks:
            jobs = [tasks.create_task(one(episode)) for episode in world.share(episodes)]
    except* (EngineFailed, TemplateError) as failures:
        # All episodes share the engine and the template, so that the first error is enough.
        failed = failures.exceptions[0]
    if failed is not None:
        raise failed
    own = [job.result() for job in jobs]
    if world.size == 1:
        return own, faulted
    played: list[Trajectory] = []
    all_faulted: list[Trajectory] = []
    message = msgspec.msgpack.encode((own, faulted))
    for rank, received in enumerate(world.all_gather_bytes(message)):
        if rank == world.rank:
            theirs = own, faulted
        else:
            theirs = msgspec.msgpack.decode(
                received, type=tuple[list[Trajectory], list[Trajectory]]
            )
            if on_done is not None:
                for trajectory in theirs[0]:
                    on_done(trajectory)
        played += theirs[0]
        all_faulted += theirs[1]
    return played, all_faulted


async def collect_groups(
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
    """Collect all requested groups.

    Dynamic sampling: groups without a signal are replaced by the requests that `resample` returns,
    in up to `resample_rounds` further rounds.
    """
    rollouts = RolloutBatch([])
    number = itertools.count()
    waiting = list(requests)
    for round_ in range(resample_rounds + 1):
        episodes: list[EpisodeSpec] = []
        for request in waiting:
            episodes += episodes_of(request, number, seed, step)
        played, faulted = await rollout_episodes(context, episodes, on_done=on_done)
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
    """The episodes of a group; `number` counts the episodes of the step."""
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
    """A group of the next trajectories of `played`, in the order of `episodes_of`."""
    trajectories = list(itertools.islice(played, request.group))
    return Group(request.task, trajectories, next(played) if request.with_baseline else None)


class AllEpisodesFailed(UserError, RuntimeError):
    """Every episode ended in a fault: the environment is broken."""


def raise_if_all_failed(
    what: str, played: Sequence[Trajectory], faulted: Sequence[Trajectory] = ()
) -> None:
    """Raise `AllEpisodesFailed` if every episode of `what` ended in a fault.

    `faulted`: earlier attempts of these episodes.
    """
    if not played or any(not trajectory.stop.is_fault for trajectory in played):
        return
    first = next((t for t in (*faulted, *played) if t.fault), played[0])
    raise AllEpisodesFailed(
        f"every episode of {what} ended in a fault; the first one: {first.stop}: {first.fault}"
    )
