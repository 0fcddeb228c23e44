"""Asynchronous training: groups are played continuously and queued on disk; the learner takes the
oldest ones.

The groups of step n start as soon as the engine has weights of version
n - 1 - `rollout.max_staleness`, and are trained on in step n and in no other. So no token is older
than that, no slow task is dropped or postponed in favor of quick ones, and each step trains on the
same tasks as in a synchronous run. With several ranks, each plays its share of a step's groups, and
all train on all of them.
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
    """The groups of one training step, finished or in flight."""

    step: int
    tasks_drawn: dict[str, int]
    """Total up to and including this step."""
    groups: list[asyncio.Task[Finished]]
    """This rank's share of the step's groups."""


class AsyncSource(DataSource):
    """Plays concurrently with the learner, up to `rollout.max_staleness` steps ahead of it. The
    learner waits only when the groups of its next step are unfinished.
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
        """Groups that the run had played before it was interrupted."""
        self._slots = asyncio.Semaphore(components.context.concurrency)
        self._batches: deque[_Batch] = deque()
        self._last = _Batch(state.step, state.tasks_drawn, [])
        """The newest batch that was started."""
        self._taken_at = time.monotonic()

    def next_batch(self, state: State, on_done: OnDone) -> StepData:
        came_at = time.monotonic()
        self._tidy(learned=state.step)
        self.components.loop.go_on()
        data = self.components.loop.run(self._collect(state, on_done))
        now = time.monotonic()
        # The share of the time since the last batch that the learner spent waiting for this one.
        waited = (now - came_at) / (now - self._taken_at)
        self._taken_at = now
        return replace(data, figures={**data.figures, "queue/waited": waited})

    def close(self) -> None:
        self.components.loop.halt(self._jobs)
        self._tidy(learned=0)

    async def _collect(self, state: State, on_done: OnDone) -> StepData:
        config = self.components.config
        newest_step = min(state.step + 1 + self._staleness, config.steps)
        for step in range(self._last.step + 1, newest_step + 1):
            self._start_step(replace(state, step=step - 1), on_done)
        # Counted before the wait: what was ready when the learner came, and what was not.
        is_finished = [job.done() for job in self._jobs]
        batch = self._batches[0]
        await self._finish(batch.groups)
        self._batches.popleft()
        finished = await self._of_all_ranks([job.result() for job in batch.groups], on_done)
        rollouts = RolloutBatch([each.group for each in finished])
        for each in finished:
            rollouts.faulted.extend(each.faulted)
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

    def _start_step(self, state: State, on_done: OnDone) -> None:
        """Sample the groups of the step after `state`, and start those that were not played before
        an interruption.
        """
        config = self.components.config
        step, number = state.step + 1, itertools.count()
        seed = state.sampling_seed(config.seed)
        cursor = self._tasks.after(replace(state, tasks_drawn=self._last.tasks_drawn))
        make_request = request_factory(config, state)
        groups: list[asyncio.Task[Finished]] = []
        indices = range(config.rollout.tasks)
        own = self._world.share(indices)
        for index in indices:
            # Every rank samples and numbers all groups, so that ids and seeds do not depend on the
            # number of ranks; it plays only its own.
            request = make_request(cursor.next())
            episodes = list(episodes_of(request, number, seed, step))
            if index not in own:
                continue
            found = self._usable(step, index, episodes)
            if found is None:
                job = self._play(index, request, episodes, on_done)
            else:
                job = _already(found)
            groups.append(asyncio.get_running_loop().create_task(job))
        self._last = _Batch(step, cursor.drawn, groups)
        self._batches.append(self._last)

    async def _of_all_ranks(self, own: list[Finished], on_done: OnDone) -> list[Finished]:
        """The groups of all ranks, in rank order."""
        if self._world.size == 1:
            return own
        # In a thread, so that episodes continue while this rank waits for slower ones.
        messages = await asyncio.to_thread(
            self._world.all_gather_bytes, msgspec.msgpack.encode(own)
        )
        finished: list[Finished] = []
        for rank, message in enumerate(messages):
            if rank == self._world.rank:
                finished += own  # `on_done` was called when each episode ended
                continue
            received = msgspec.msgpack.decode(message, type=list[Finished])
            finished += received
            for group in received:
                for trajectory in group.episodes:
                    on_done(trajectory)
        return finished

    async def _play(
        self, index: int, request: GroupRequest, episodes: Sequence[EpisodeSpec], on_done: OnDone
    ) -> Finished:
        """Play all episodes of a group. The group is in the queue when this returns."""
        faulted: list[Trajectory] = []

        async def one(episode: EpisodeSpec) -> Trajectory:
            # A semaphore is first come, first served: episodes of earlier steps start first.
            async with self._slots:
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
        """Wait for these groups. An error in any other group is raised at once, too."""
        while True:
            for job in self._jobs:
                if job.done():
                    job.result()
            if all(job.done() for job in wanted):
                return
            unfinished = [job for job in self._jobs if not job.done()]
            await asyncio.wait(unfinished, return_when=asyncio.FIRST_COMPLETED)

    @property
    def _jobs(self) -> list[asyncio.Task[Finished]]:
        jobs: list[asyncio.Task[Finished]] = []
        for batch in self._batches:
            jobs += batch.groups
        return jobs

    def _usable(self, step: int, index: int, episodes: Sequence[EpisodeSpec]) -> Finished | None:
        """The group from before an interruption, if it has exactly these episodes and its weights
        are not too old. Both can fail: settings may have changed at the resume.
        """
        found = self._found.pop((step, index), None)
        if found is None or not _are_these(found.episodes, episodes):
            return None
        is_recent = found.versions and step - 1 - min(found.versions) <= self._staleness
        return found if is_recent else None

    def _tidy(self, *, learned: int) -> None:
        """Delete the groups of completed steps, except those that a resume from the newest
        checkpoint would need again.
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
