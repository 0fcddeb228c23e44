"""Groups that are still being played when a step ends: they are held up between two turns, and go
on with the new weights.
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
    """A group that was begun and not yet learned from.

    With the run's seed it says which episodes those are.
    """

    request: GroupRequest
    step: int
    """The training step in which it was begun."""
    first: int
    """The number of its first episode in that step."""


class Gate:
    """An engine whose callers can be held up between two replies.

    While they are, nothing of theirs is under way.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._open = asyncio.Event()
        self._idle = asyncio.Event()
        self._busy = 0
        self._dropped: set[str] = set()

    def drop(self, episode: EpisodeSpec) -> None:
        """It ends where it waits."""
        self._dropped.add(episode.id)

    def open(self) -> None:
        self._open.set()

    async def close(self) -> None:
        """Returns when replies and environments' answers in the making are complete."""
        self._open.clear()
        while self._busy:
            self._idle.clear()
            await self._idle.wait()

    @asynccontextmanager
    async def episode(self) -> AsyncIterator[None]:
        """Around an episode that is played by this engine."""
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
    """A group in play."""

    pending: PendingGroup
    episodes: list[EpisodeSpec]
    played: dict[EpisodeSpec, Trajectory] = field(default_factory=dict)
    faulted: list[Trajectory] = field(default_factory=list)
    jobs: dict[EpisodeSpec, asyncio.Task[None]] = field(default_factory=dict)
    """Episodes that are not over."""
    started: set[EpisodeSpec] = field(default_factory=set)

    @property
    def rollouts(self) -> Group:
        return group_of(self.pending.request, (self.played[episode] for episode in self.episodes))

    @property
    def left(self) -> Group:
        """What there is of a group that was dropped."""
        return Group(
            self.pending.request.task,
            [self.played[episode] for episode in self.episodes if episode in self.played],
        )


class InFlightGroups:
    """Groups in play from one step to the next.

    Between two calls of `collect` none of them moves.
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
        """What was begun and not yet collected."""
        return tuple(group.pending for group in self._groups)

    async def collect(
        self,
        new: Sequence[PendingGroup],
        count: int,
        on_done: Callable[[Trajectory], None],
        *,
        outdated: Sequence[PendingGroup] = (),
    ) -> RolloutBatch:
        """Begin the new groups and play on with all but the outdated until `count` are complete.

        Returns those, in the order in which they were completed, and what there was of the
        outdated.
        """
        given_up = self._drop(outdated)
        try:
            for pending in new:
                self._begin(pending, on_done)
            self._gate.open()
            await asyncio.gather(
                *(job for group in given_up for job in group.jobs.values()), return_exceptions=True
            )
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
        faulted = [attempt for group in (*done, *given_up) for attempt in group.faulted]
        never_begun = [
            pending for pending in outdated if pending not in [group.pending for group in given_up]
        ]  # after a resume
        left = [
            *(group.left for group in given_up),
            *(Group(pending.request.task, []) for pending in never_begun),
        ]
        return RolloutBatch([group.rollouts for group in done], faulted=faulted, outdated=left)

    def _begin(self, pending: PendingGroup, on_done: Callable[[Trajectory], None]) -> None:
        group = _Group(
            pending,
            list(
                episodes_of(
                    pending.request, itertools.count(pending.first), self.seed, pending.step
                )
            ),
        )
        self._groups.append(group)
        for episode in group.episodes:
            group.jobs[episode] = asyncio.get_running_loop().create_task(
                self._play(group, episode, on_done)
            )

    def _drop(self, outdated: Sequence[PendingGroup]) -> list[_Group]:
        """Their episodes end where the gate holds them;
        those that wait for their turn never begin.
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
            if (
                len(group.played) == len(group.episodes) and group in self._groups
            ):  # and not given up
                self._complete.append(group)
        except Exception as error:  # noqa: BLE001  whatever it is, `collect` must not wait for this episode
            self._failure = error
        del group.jobs[episode]
        self._changed.set()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure
