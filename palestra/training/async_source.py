"""Asynchronous training: groups are played without a break and queued on disk; the learner takes
the oldest ones.

The groups of step n are begun as soon as weights of version n - 1 - `rollout.max_staleness` are
there, and are learned from in step n and in no other. So no token can be older than that, no slow
task is dropped or put off in favor of quick ones, and which tasks a step learns from is the same as
without all this. Of several ranks each plays its share of a step's groups, and all of them learn
from all.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from palestra.core.errors import ConfigError
from palestra.core.types import Trajectory
from palestra.learner import checkpoint
from palestra.rollout.episode import EpisodeSpec, rollout_with_retries
from palestra.rollout.groups import GroupRequest, RolloutBatch, episodes_of, group_of
from palestra.runs.group_queue import Finished, GroupQueue
from palestra.runs.run import Run
from palestra.runs.state import State
from palestra.training.data_sources import (
    DataSource,
    OnDone,
    StepData,
    played,
    request_factory,
    with_outcome,
)
from palestra.training.setup import Components
from palestra.training.task_sampler import TaskSampler


@dataclass(frozen=True, slots=True)
class _Batch:
    """The groups of one training step, played or in play."""

    step: int
    tasks_drawn: dict[str, int]
    """In all, up to this step."""
    groups: list[asyncio.Task[Finished]]
    """This rank's share of them."""


class AsyncSource(DataSource):
    """A source that plays beside the learner, up to `rollout.max_staleness` steps ahead of it, and
    is never waited for without need.
    """

    def __init__(self, run: Run, components: Components, state: State) -> None:
        if state.in_flight:
            raise ConfigError(
                f"rollout.max_staleness = {run.config.rollout.max_staleness}: "
                f"{len(state.in_flight)} groups of rollout.partial are in flight; "
                "resume with rollout.partial, or without both until they are learned from"
            )
        self.run, self.components = run, components
        self._staleness = run.config.rollout.max_staleness
        self._tasks = TaskSampler(components, components.config.seed)
        self._queue = GroupQueue(run.queue, run.check_folder)
        self._world = components.context.world
        self._found = self._queue.read()
        """What a run that was interrupted had played already."""
        self._places = asyncio.Semaphore(components.context.concurrency)
        self._batches: deque[_Batch] = deque()
        self._last = _Batch(state.step, state.tasks_drawn, [])
        """The newest that was begun."""
        self._taken_at = time.monotonic()

    def next_batch(self, state: State, on_done: OnDone) -> StepData:
        came_at = time.monotonic()
        self._tidy(learned=state.step)
        self.components.loop.go_on()
        data = self.components.loop.run(self._gather(state, on_done))
        now, before = time.monotonic(), self._taken_at
        self._taken_at = now
        return replace(
            data, figures={**data.figures, "queue/waited": (now - came_at) / (now - before)}
        )

    def close(self) -> None:
        self.components.loop.halt(self._jobs)
        self._tidy(learned=0)

    async def _gather(self, state: State, on_done: OnDone) -> StepData:
        config = self.components.config
        for step in range(
            self._last.step + 1, min(state.step + 1 + self._staleness, config.steps) + 1
        ):
            self._begin(replace(state, step=step - 1), on_done)
        is_finished = [job.done() for job in self._jobs]
        batch = self._batches[0]
        await self._finish(batch.groups)
        self._batches.popleft()
        finished = await self._of_all_ranks([job.result() for job in batch.groups], on_done)
        rollouts = RolloutBatch(
            [each.group for each in finished],
            faulted=[attempt for each in finished for attempt in each.faulted],
        )
        figures = {
            "queue/finished": float(sum(is_finished)),
            "queue/in_play": float(len(is_finished) - sum(is_finished)),
        }
        after = with_outcome(
            replace(state, tasks_drawn=batch.tasks_drawn),
            rollouts,
            config,
            self._tasks.after(state),
        )
        return replace(played(config, rollouts, after), figures=figures)

    def _begin(self, state: State, on_done: OnDone) -> None:
        """Draw the groups of the step after `state`, and let them be played unless they were
        already.
        """
        step, number = state.step + 1, itertools.count()
        cursor = self._tasks.after(replace(state, tasks_drawn=self._last.tasks_drawn))
        assigned = request_factory(self.components.config, state)
        groups: list[asyncio.Task[Finished]] = []
        indices = range(self.components.config.rollout.tasks)
        own = self._world.share(indices)
        for index in indices:
            request = assigned(cursor.next())
            episodes = list(
                episodes_of(request, number, state.sampling_seed(self.components.config.seed), step)
            )
            if index not in own:
                continue
            found = self._usable(step, index, episodes)
            job = (
                self._play(index, request, episodes, on_done) if found is None else _already(found)
            )
            groups.append(asyncio.get_running_loop().create_task(job))
        self._last = _Batch(step, cursor.drawn, groups)
        self._batches.append(self._last)

    async def _of_all_ranks(self, own: list[Finished], on_done: OnDone) -> list[Finished]:
        """Every rank's groups, in their order.

        Play goes on meanwhile: other ranks may be behind.
        """
        if self._world.size == 1:
            return own
        finished: list[Finished] = []
        for rank, message in enumerate(
            await asyncio.to_thread(self._world.all_gather_bytes, msgspec.msgpack.encode(own))
        ):
            theirs = (
                own
                if rank == self._world.rank
                else msgspec.msgpack.decode(message, type=list[Finished])
            )
            finished += theirs
            for trajectory in (
                t for each in theirs for t in each.episodes if rank != self._world.rank
            ):
                on_done(trajectory)
        return finished

    async def _play(
        self, index: int, request: GroupRequest, episodes: Sequence[EpisodeSpec], on_done: OnDone
    ) -> Finished:
        """All episodes of a group; it is in the queue when this returns."""
        faulted: list[Trajectory] = []

        async def one(episode: EpisodeSpec) -> Trajectory:
            async with self._places:  # in the order in which they came, which is that of the steps
                trajectory = await rollout_with_retries(self.components.context, episode, faulted)
            on_done(trajectory)
            return trajectory

        members = [asyncio.ensure_future(one(episode)) for episode in episodes]
        try:
            trajectories = await asyncio.gather(*members)
        finally:
            for member in members:
                member.cancel()
        finished = Finished(group_of(request, iter(trajectories)), faulted)
        await asyncio.to_thread(self._queue.put, episodes[0].step, index, finished)
        return finished

    async def _finish(self, wanted: Sequence[asyncio.Task[Finished]]) -> None:
        """Wait for these. What breaks in any other group is raised at once as well."""
        while True:
            for job in self._jobs:
                if job.done():
                    job.result()
            if all(job.done() for job in wanted):
                return
            await asyncio.wait(
                [job for job in self._jobs if not job.done()], return_when=asyncio.FIRST_COMPLETED
            )

    @property
    def _jobs(self) -> list[asyncio.Task[Finished]]:
        return [job for batch in self._batches for job in batch.groups]

    def _usable(self, step: int, index: int, episodes: Sequence[EpisodeSpec]) -> Finished | None:
        """What was played already: these very episodes, and by weights that are not too old, for
        settings may have changed.
        """
        found = self._found.pop((step, index), None)
        if found is None or not _are_these(found.episodes, episodes):
            return None
        return (
            found if found.versions and step - 1 - min(found.versions) <= self._staleness else None
        )

    def _tidy(self, *, learned: int) -> None:
        """Of the steps that were learned from, keep only what would be needed again after a resume
        from the newest checkpoint.
        """
        if not self._world.is_first:
            return
        newest = checkpoint.newest(self.run.checkpoints)
        saved = checkpoint.step_of(newest) if newest else 0
        self._queue.keep(
            lambda entry: entry.step > saved and (entry.step > learned or entry.version <= saved)
        )


def _are_these(found: Sequence[Trajectory], episodes: Sequence[EpisodeSpec]) -> bool:
    if len(found) != len(episodes):
        return False
    pairs = zip(found, episodes, strict=True)
    return all((t.id, t.task, t.seed) == (e.id, e.task, e.seed_of(t.attempt)) for t, e in pairs)


async def _already(found: Finished) -> Finished:
    return found
