"""The environments of a server, their tasks, and their pools."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from palestra.core.errors import UserError
from palestra.core.registry import nearest
from palestra.core.types import Task
from palestra.envs import Environment, make_env
from palestra.envs.serving.handles import (
    BadEnvironment,
    EnvPool,
    InlinePool,
    check_attributes,
    guarded,
    listed,
    vocabulary_of,
)
from palestra.envs.serving.sandboxed import make_sandboxed
from palestra.envs.serving.wire import EnvAbout, TaskPage, WireError
from palestra.envs.serving.worker_pool import Workers, WorkerSettings

PAGE_TASKS = 5000


@dataclass(frozen=True, slots=True)
class Served:
    """One environment as the command line names it."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    isolation: str = "inline"
    deadline_s: float = 60.0
    memory_mb: int = WorkerSettings().memory_mb
    """The memory limit of a worker process."""
    max_processes: int = WorkerSettings().max_processes
    """The process limit of a worker, including everything that its environments start."""
    pass_env: tuple[str, ...] = ()
    """Secrets among the environment variables that a worker process gets."""
    sandbox: str = "none"
    sandbox_read: tuple[str, ...] = ()

    @property
    def limits(self) -> WorkerSettings:
        return WorkerSettings(
            deadline_s=self.deadline_s,
            memory_mb=self.memory_mb,
            max_processes=self.max_processes,
            pass_env=self.pass_env,
            sandbox=self.sandbox,
            sandbox_read=self.sandbox_read,
        )

    def make(self) -> Environment:
        """Create an instance for metadata and tasks. Raises ValueError."""
        if self.sandbox != "none":
            return make_sandboxed(self.name, self.options, self.limits)
        return make_env(self.name, self.options)


def pool_of(served: Served) -> EnvPool:
    """The pool in which an environment's instances run."""
    if served.isolation == "process":
        return Workers(served.name, served.options, served.limits)
    return InlinePool(served.make, served.deadline_s, served.name)


class Known(dict[tuple[str, str], Task]):
    """An environment's tasks by split and id.

    For a task that no split lists, such as a BabyAI level with another seed, it asks the
    environment.
    """

    def __init__(self, env: Environment, listed: Iterable[Task]) -> None:
        super().__init__({(task.split, task.id): task for task in listed})
        self._env = env

    def __missing__(self, key: tuple[str, str]) -> Task:
        try:
            task = self.find(key[1])
        except ValueError:
            raise KeyError(key) from None
        if (task.split, task.id) != key:
            raise KeyError(key)
        return task

    def find(self, id: str) -> Task:
        """The task with this id, in any split. Raises `ValueError` if there is none."""
        return self._env.task(id)


class Catalogue:
    """Metadata and tasks of the served environments, available without an episode.

    Raises ValueError for an environment that cannot be served.
    """

    def __init__(self, served: list[Served]) -> None:
        self.about: dict[str, EnvAbout] = {}
        self.tasks: dict[str, Known] = {}
        self.pools: dict[str, EnvPool] = {}
        self._splits: dict[str, dict[str, list[Task]]] = {}
        for one in served:
            self._add(one)

    def _add(self, served: Served) -> None:
        with guarded(
            served.name, "its constructor", deadline_s=served.deadline_s, telling=(UserError,)
        ):
            try:
                env = served.make()
            except ValueError as error:  # of `make_env`, about the name or the options
                raise BadEnvironment(str(error)) from error
        try:
            self._ask(served, env)
        finally:
            with guarded(served.name, "close()", deadline_s=served.deadline_s):
                env.close()

    def _ask(self, served: Served, env: Environment) -> None:
        if env.name in self.about:
            raise ValueError(f"{served.name}: two environments are called {env.name!r}")
        check_attributes(served.name, env, deadline_s=served.deadline_s)
        with guarded(served.name, "tasks()", deadline_s=served.deadline_s):
            splits = {split: listed(served.name, env, split) for split in env.splits}
        counts = {split: len(tasks) for split, tasks in splits.items()}
        with guarded(served.name, "vocabulary()", deadline_s=served.deadline_s):
            about = EnvAbout(
                env.name,
                counts,
                env.max_turns,
                env.instructions,
                list(env.example),
                vocabulary_of(env),
            )
            msgspec.json.encode(about)
        self.about[env.name] = about
        self._splits[env.name] = splits
        self.pools[env.name] = pool_of(served)
        self.tasks[env.name] = Known(env, chain.from_iterable(splits.values()))

    def describe(self, env: str) -> EnvAbout:
        if env not in self.about:
            raise WireError(
                "not_found",
                f"there is no environment {env[:100]!r}; {nearest(env[:100], self.about)}",
            )
        return self.about[env]

    def page(self, env: str, split: str, offset: int, limit: int) -> TaskPage:
        splits = self._splits[self.describe(env).name]
        if split not in splits:
            raise WireError(
                "not_found", f"{env} has no split {split[:100]!r}; {nearest(split[:100], splits)}"
            )
        tasks = splits[split]
        end = offset + min(limit, PAGE_TASKS)
        return TaskPage(tasks[offset:end], len(tasks), end if end < len(tasks) else None)

    def task(self, env: str, id: str) -> Task:
        known = self.tasks[self.describe(env).name]
        try:
            return known.find(id)
        except ValueError as error:
            raise WireError("not_found", str(error)) from None

    def metrics(self) -> list[Metric]:
        """How the worker processes are doing, for the server's metrics."""
        workers = GaugeMetricFamily(
            "palestra_workers", "Worker processes of an environment.", labels=["env"]
        )
        memory = GaugeMetricFamily(
            "palestra_worker_bytes",
            "Memory that the worker processes of an environment hold, with their children.",
            labels=["env"],
        )
        files = GaugeMetricFamily(
            "palestra_worker_open_files", "Files that they have open.", labels=["env"]
        )
        restarts = CounterMetricFamily(
            "palestra_worker_restarts", "Workers that were replaced.", labels=["env"]
        )
        for env, pool in self.pools.items():
            if isinstance(pool, Workers):
                stats = pool.stats()
                workers.add_metric([env], len(stats.workers))
                memory.add_metric([env], stats.memory_mb * 2**20)
                files.add_metric([env], stats.open_files)
                restarts.add_metric([env], stats.restarts)
        return [workers, memory, files, restarts]

    async def close(self) -> None:
        for pool in self.pools.values():
            await pool.close()
