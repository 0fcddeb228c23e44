"""Partial rollouts: groups that are unfinished when a step ends pause between two turns, and
continue with the updated weights.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from palestra.core.types import Generation, Group, Sampling, Stop, Trajectory
from palestra.engines.base import Engine, Session
from palestra.rollout.episode import (
    EpisodeDropped,
    EpisodeSpec,
    RolloutContext,
    rollout_with_retries,
)
from palestra.rollout.groups import GroupRequest, RolloutBatch, episodes_of, group_of


@dataclass(frozen=True, slots=True)
class PendingGroup:
    """A group that was started and not yet trained on.

    Together with the run's seed it determines the group's episodes.
    """

    request: GroupRequest
    step: int
    """The training step in which the group was started."""
    first: int
    """The number of the group's first episode in that step."""


class Gate:
    """An engine that can pause its callers between two replies.

    While they are paused, no reply and no environment step is in flight.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._open = asyncio.Event()
        self._idle = asyncio.Event()
        self._busy = 0
        self._dropped: set[str] = set()

    def drop(self, episode: EpisodeSpec) -> None:
        """End a paused episode, with `EpisodeDropped`."""
        self._dropped.add(episode.id)

    def open(self) -> None:
        self._open.set()

    async def close(self) -> None:
        """Pause all callers. Returns when replies and environment steps in flight are complete."""
        self._open.clear()
        while self._busy:
            self._idle.clear()
            await self._idle.wait()

    @asynccontextmanager
    async def episode(self) -> AsyncIterator[None]:
        """Around an episode that uses this engine."""
        await self._open.wait()
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    async def generate(
        self, ids: Sequence[int], sampling: Sampling, session: Session
    ) -> Generation:
        if not self._open.is_set():
            self._count(-1)
            try:
                await self._open.wait()
            finally:
                self._count(1)
        if session.id in self._dropped:
            self._dropped.discard(session.id)
            raise EpisodeDropped
        return await self.engine.generate(ids, sampling, session)

    def release(self, session: Session) -> None:
        self.engine.release(session)

    async def sync_weights(self, version: int) -> None:
        await self.engine.sync_weights(version)

    def sleep(self) -> None:
        self.engine.sleep()

    def _count(self, change: int) -> None:
        self._busy += change
        if self._busy == 0:
            self._idle.set()


@dataclass(eq=False)
class _Group:
    """A group in flight."""

    pending: PendingGroup
    episodes: list[EpisodeSpec]
    played: dict[EpisodeSpec, Trajectory] = field(default_factory=dict)
    faulted: list[Trajectory] = field(default_factory=list)
    jobs: dict[EpisodeSpec, asyncio.Task[None]] = field(default_factory=dict)
    """The tasks of unfinished episodes."""
    started: set[EpisodeSpec] = field(default_factory=set)

    @property
    def rollouts(self) -> Group:
        return group_of(self.pending.request, (self.played[episode] for episode in self.episodes))

    @property
    def left(self) -> Group:
        """The finished episodes of a group that was dropped."""
        finished = [self.played[episode] for episode in self.episodes if episode in self.played]
        return Group(self.pending.request.task, finished)


class InFlightGroups:
    """Groups that stay in flight from one step to the next.

    They make progress only during `collect`.
    """

    def __init__(self, context: RolloutContext, seed: int) -> None:
        self.seed = seed
        self._gate = Gate(context.engine)
        self._context = replace(context, engine=self._gate)
        self._slots = asyncio.Semaphore(context.concurrency)
        self._groups: list[_Group] = []
        self._complete: deque[_Group] = deque()
        self._failure: Exception | None = None
        self._changed = asyncio.Event()

    @property
    def pending(self) -> tuple[PendingGroup, ...]:
        """The groups that were started and not yet collected."""
        return tuple(group.pending for group in self._groups)

    async def collect(
        self,
        new: Sequence[PendingGroup],
        count: int,
        on_done: Callable[[Trajectory], None],
        *,
        outdated: Sequence[PendingGroup] = (),
    ) -> RolloutBatch:
        """Start the new groups, and run all but the outdated ones until `count` are complete.

        Returns these in the order in which they were completed, and the finished episodes of the
        outdated ones.
        """
        given_up = self._drop(outdated)
        try:
            for pending in new:
                self._begin(pending, on_done)
            self._gate.open()
            ending: list[asyncio.Task[None]] = []
            for group in given_up:
                ending += group.jobs.values()
            await asyncio.gather(*ending, return_exceptions=True)
            self._raise_failure()
            while len(self._complete) < count:
                self._changed.clear()
                await self._changed.wait()
                self._raise_failure()
            await self._gate.close()
            self._raise_failure()
        except BaseException:
            for group in (*self._groups, *given_up):
                for job in group.jobs.values():
                    job.cancel()
            raise
        done = [self._complete.popleft() for _ in range(count)]
        self._groups = [group for group in self._groups if group not in done]
        faulted: list[Trajectory] = []
        for group in (*done, *given_up):
            faulted += group.faulted
        # After a resume, outdated groups may not have been started again.
        started = [group.pending for group in given_up]
        never_begun = [pending for pending in outdated if pending not in started]
        left = [
            *(group.left for group in given_up),
            *(Group(pending.request.task, []) for pending in never_begun),
        ]
        return RolloutBatch([group.rollouts for group in done], faulted=faulted, outdated=left)

    def _begin(self, pending: PendingGroup, on_done: Callable[[Trajectory], None]) -> None:
        numbers = itertools.count(pending.first)
        episodes = list(episodes_of(pending.request, numbers, self.seed, pending.step))
        group = _Group(pending, episodes)
        self._groups.append(group)
        for episode in group.episodes:
            group.jobs[episode] = asyncio.get_running_loop().create_task(
                self._play(group, episode, on_done)
            )

    def _drop(self, outdated: Sequence[PendingGroup]) -> list[_Group]:
        """Remove outdated groups: paused episodes end at the gate, and episodes that wait for a
        slot are cancelled.
        """
        given_up = [group for group in self._groups if group.pending in outdated]
        self._groups = [group for group in self._groups if group not in given_up]
        self._complete = deque(group for group in self._complete if group not in given_up)
        for group in given_up:
            for episode, job in group.jobs.items():
                if episode in group.started:
                    self._gate.drop(episode)
                else:
                    job.cancel()
        return given_up

    async def _play(
        self, group: _Group, episode: EpisodeSpec, on_done: Callable[[Trajectory], None]
    ) -> None:
        try:
            async with self._slots, self._gate.episode():
                group.started.add(episode)
                trajectory = await rollout_with_retries(self._context, episode, group.faulted)
            if trajectory.stop is not Stop.CANCELLED:
                on_done(trajectory)
            group.played[episode] = trajectory
            was_dropped = group not in self._groups
            if len(group.played) == len(group.episodes) and not was_dropped:
                self._complete.append(group)
        except Exception as error:  # noqa: BLE001
            # Whatever it is, `collect` must not wait for this episode any longer.
            self._failure = error
        del group.jobs[episode]
        self._changed.set()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure
