"""Groups that are still being played when a step ends: they are held up between two turns, and go on with the new weights."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from palestra.engines.base import Engine, Session
from palestra.rollout import Arena, Assignment, Collected, Episode, episodes_of, group_of, play_until_sound
from palestra.types import Generation, Group, Sampling, Trajectory


@dataclass(frozen=True, slots=True)
class Begun:
    """A group that was begun and not yet learnt from. With the run's seed it says which episodes those are."""

    assignment: Assignment
    step: int
    """The training step in which it was begun."""
    first: int
    """The number of its first episode in that step."""


class Gate:
    """An engine whose callers can be held up between two replies. While they are, nothing of theirs is under way."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._open = asyncio.Event()
        self._idle = asyncio.Event()
        self._busy = 0

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

    async def generate(self, ids: Sequence[int], sampling: Sampling, session: Session) -> Generation:
        if not self._open.is_set():
            self._count(-1)
            try:
                await self._open.wait()
            finally:
                self._count(1)
        return await self.engine.generate(ids, sampling, session)

    def release(self, session: Session) -> None:
        self.engine.release(session)

    async def load(self, version: int) -> None:
        await self.engine.load(version)

    def rest(self) -> None:
        self.engine.rest()

    def _count(self, change: int) -> None:
        self._busy += change
        if self._busy == 0:
            self._idle.set()


@dataclass(eq=False)
class _Group:
    """A group in play."""

    begun: Begun
    episodes: list[Episode]
    played: dict[Episode, Trajectory] = field(default_factory=dict)
    faulted: list[Trajectory] = field(default_factory=list)

    @property
    def collected(self) -> Group:
        return group_of(self.begun.assignment, (self.played[episode] for episode in self.episodes))


class InPlay:
    """Groups in play from one step to the next. Between two calls of `collect` none of them moves."""

    def __init__(self, arena: Arena, seed: int) -> None:
        self.seed = seed
        self._gate = Gate(arena.engine)
        self._arena = arena.with_(engine=self._gate)
        self._places = asyncio.Semaphore(arena.concurrency)
        self._groups: list[_Group] = []
        self._complete: deque[_Group] = deque()
        self._jobs: set[asyncio.Task[None]] = set()
        self._failure: Exception | None = None
        self._changed = asyncio.Event()

    @property
    def begun(self) -> tuple[Begun, ...]:
        """What was begun and not yet collected."""
        return tuple(group.begun for group in self._groups)

    async def collect(self, new: Sequence[Begun], count: int, on_done: Callable[[Trajectory], None]) -> Collected:
        """Begin the new groups and play on with all until `count` are complete: those, in the order in which they were completed."""
        try:
            for begun in new:
                self._begin(begun, on_done)
            self._gate.open()
            while len(self._complete) < count:
                self._changed.clear()
                await self._changed.wait()
                self._raise_failure()
            await self._gate.close()
            self._raise_failure()
        except BaseException:
            for job in self._jobs:
                job.cancel()
            raise
        done = [self._complete.popleft() for _ in range(count)]
        self._groups = [group for group in self._groups if group not in done]
        return Collected([group.collected for group in done], faulted=[attempt for group in done for attempt in group.faulted])

    def _begin(self, begun: Begun, on_done: Callable[[Trajectory], None]) -> None:
        group = _Group(begun, list(episodes_of(begun.assignment, itertools.count(begun.first), self.seed, begun.step)))
        self._groups.append(group)
        for episode in group.episodes:
            job = asyncio.get_running_loop().create_task(self._play(group, episode, on_done))
            self._jobs.add(job)
            job.add_done_callback(self._jobs.discard)

    async def _play(self, group: _Group, episode: Episode, on_done: Callable[[Trajectory], None]) -> None:
        try:
            async with self._places, self._gate.episode():
                trajectory = await play_until_sound(self._arena, episode, group.faulted)
            on_done(trajectory)
            group.played[episode] = trajectory
            if len(group.played) == len(group.episodes):
                self._complete.append(group)
        except Exception as error:  # noqa: BLE001  whatever it is, `collect` must not wait for this episode
            self._failure = error
        self._changed.set()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure
