"""Many episodes at a time: groups of one task, over all ranks, with dynamic sampling."""

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


async def rollout_episodes(
    context: RolloutContext,
    episodes: Sequence[EpisodeSpec],
    *,
    on_done: Callable[[Trajectory], None] | None = None,
) -> tuple[list[Trajectory], list[Trajectory]]:
    """Play all episodes, each at its own pace; every rank plays its share.

    Returns them in order, and the faulted attempts that were restarted.
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
        # All episodes share the engine and the template: one error speaks for all.
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
    """Play all groups.

    Dynamic sampling: groups without a signal are replaced by what `resample` gives, in up to
    `resample_rounds` further rounds.
    """
    rollouts = RolloutBatch([])
    number = itertools.count()
    waiting = list(requests)
    for round_ in range(resample_rounds + 1):
        episodes = [
            episode for request in waiting for episode in episodes_of(request, number, seed, step)
        ]
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
    """Raise `AllEpisodesFailed` where every episode of `what` ended in a fault.

    `faulted`: attempts before the last ones.
    """
    if not played or any(not trajectory.stop.is_fault for trajectory in played):
        return
    first = next((t for t in (*faulted, *played) if t.fault), played[0])
    raise AllEpisodesFailed(
        f"every episode of {what} ended in a fault; the first one: {first.stop}: {first.fault}"
    )
