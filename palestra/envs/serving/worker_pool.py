"""A pool of worker processes for environments of one kind, which can hang, leak or die without
affecting anything else.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from palestra.core.credentials import TOKEN_VARIABLE
from palestra.core.types import Step, Task
from palestra.envs import envs, is_url
from palestra.envs.serving.frames import Answer
from palestra.envs.serving.handles import CollateralFault, EnvFault, PoolExhausted
from palestra.envs.serving.reaper import Reaper
from palestra.envs.serving.sandbox import OWN_PROCESSES, Sandbox
from palestra.envs.serving.worker_process import WorkerProcess

log = logging.getLogger(__name__)

LOOK_EVERY_S = 0.1
"""Interval for detecting workers that hang or died."""
TIDY_EVERY_S = 0.5
"""Interval for trimming logs and measuring memory."""
MADE_AT_ONCE = max(4, 2 * (os.cpu_count() or 1))
"""The number of processes and environments of a pool that start concurrently: a hundred at once
would all miss their deadline.
"""
IDLE_S = 600.0
"""An idle worker ends after this time, unless no more workers are left than cores."""
TOGETHER = 3
"""After this many consecutive worker failures, whatever their cause, a task runs in a worker of its
own.
"""
FAR_TOO_LARGE = 1.5
"""A worker that uses more than this multiple of its `memory_mb` is ended at once."""

_decoders: dict[str, msgspec.msgpack.Decoder[Any]] = {
    "reset": msgspec.msgpack.Decoder(str),
    "step": msgspec.msgpack.Decoder(Step),
    "actions": msgspec.msgpack.Decoder(list[str] | None),
    "expert": msgspec.msgpack.Decoder(str | None),
    "scene": msgspec.msgpack.Decoder(dict[str, Any] | None),
}


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    per_worker: int | None = None
    """Environments in one process. Default: the environment's `per_process`."""
    workers: int | None = None
    """The maximum number of shared processes. Default: as many as needed."""
    deadline_s: float = 60.0
    """The time limit of a call, in seconds."""
    boot_s: float = 60.0
    """The time limit for starting a process and creating an environment, in seconds."""
    memory_mb: int = 4096
    """A process that holds more, with its children, gets no new sessions, and ends with its last
    one.
    """
    open_files: int = 4096
    """The limit of open files of one process."""
    max_processes: int = 128
    """A worker that has more, itself and all that its environments have started, is killed.

    A browser has one for each page.
    """
    pass_env: tuple[str, ...] = ()
    """Secrets among the environment variables that the processes get; they get all that is no
    secret.
    """
    sandbox: str = "none"
    """"bwrap" runs the processes under bubblewrap."""
    sandbox_read: tuple[str, ...] = ()
    """Further files and folders that a sandbox can read."""


@dataclass(frozen=True, slots=True)
class WorkerStats:
    pid: int
    sessions: int
    queue: int
    """Pending calls."""
    memory_mb: float
    open_files: int
    is_draining: bool


@dataclass(frozen=True, slots=True)
class PoolStats:
    """The state of a pool, with calls, faults and restarts since its creation."""

    sessions: int
    calls: int
    faults: int
    restarts: int
    workers: list[WorkerStats]

    @property
    def queue(self) -> int:
        return sum(worker.queue for worker in self.workers)

    @property
    def memory_mb(self) -> float:
        return sum(worker.memory_mb for worker in self.workers)

    @property
    def open_files(self) -> int:
        return sum(worker.open_files for worker in self.workers)


@dataclass(eq=False, slots=True)
class _Worker:
    """A process and who sits in it."""

    process: WorkerProcess
    taken: int = 0
    idle: list[int] = field(default_factory=list)
    """Environments that wait for their next episode."""
    made: int = 0
    is_draining: bool = False
    is_lone: bool = False
    """For a single episode whose task is known to break workers."""
    tasks: dict[int, Task] = field(default_factory=dict)
    """The task of each environment in use."""
    was_sole: bool = False
    """It had only one session when it broke, so no other can be to blame."""
    used: float = field(default_factory=time.monotonic)
    """When its last session was closed."""


class Workers:
    """Seats for environments of one kind.

    All belongs to the event loop that opens the first one, until it is closed.
    """

    def __init__(self, name: str, options: dict[str, Any], settings: WorkerSettings) -> None:
        self.name, self.options, self.settings = name, options, settings
        self.per_worker = settings.per_worker or _per_process(name, options, settings)
        self.calls = self.faults = self.restarts = 0
        self._suspects: dict[Task, int] = {}
        """Tasks whose workers broke, and how often; TOGETHER for one that broke a worker itself."""
        self._workers: dict[WorkerProcess, _Worker] = {}
        self._sandbox = None
        if settings.sandbox != "none":
            self._sandbox = Sandbox(
                settings.memory_mb, settings.max_processes, settings.sandbox_read
            )
        self._reaper = Reaper(settings.max_processes, OWN_PROCESSES if self._sandbox else 0)
        self._timer: asyncio.TimerHandle | None = None
        self._tidied = 0.0
        self._making = asyncio.Semaphore(MADE_AT_ONCE)

    async def open(self) -> EnvSlot:
        """A seat in the worker that has the fewest taken. Raises `PoolExhausted` if all are."""
        worker = self._emptiest()
        if worker is not None and worker.idle:
            return self._seat(worker, worker.idle.pop())
        async with (making := self._making):
            if making is not self._making:
                raise EnvFault("the pool was closed")
            worker = self._emptiest() or self._start()
            if worker.idle:
                return self._seat(worker, worker.idle.pop())
            worker.made += 1
            seat = self._seat(worker, worker.made)
            try:
                await seat.make()
            except BaseException:
                await seat.close()
                raise
            return seat

    def _seat(self, worker: _Worker, instance: int) -> EnvSlot:
        worker.taken += 1
        return EnvSlot(self, worker, instance)

    def breaks_workers(self, task: Task) -> bool:
        """Whether a task must run where it cannot harm other episodes."""
        return self._suspects.get(task, 0) >= TOGETHER

    def ended_well(self, task: Task) -> None:
        self._suspects.pop(task, None)

    async def lone_worker(self) -> _Worker:
        """A new process for a single episode, not counted in the limit of shared workers."""
        async with (making := self._making):
            if making is not self._making:
                raise EnvFault("the pool was closed")
            worker = self._start()
            # Draining: it takes no other session, and ends with its episode.
            worker.is_lone = worker.is_draining = True
            worker.made = worker.taken = 1
            return worker

    async def close(self) -> None:
        workers, self._workers = self._workers, {}
        # A new semaphore, because the pool's next user may run another event loop.
        self._making = asyncio.Semaphore(MADE_AT_ONCE)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await asyncio.gather(*(process.leave("the pool was closed") for process in workers))
        await self._reaper.close()

    def stats(self) -> PoolStats:
        for process in self._workers:
            process.measure()
        workers: list[WorkerStats] = []
        for process, worker in self._workers.items():
            workers.append(
                WorkerStats(
                    process.pid,
                    worker.taken,
                    process.queue,
                    process.memory_mb,
                    process.open_files,
                    worker.is_draining,
                )
            )
        sessions = sum(worker.sessions for worker in workers)
        return PoolStats(sessions, self.calls, self.faults, self.restarts, workers)

    def free(self, worker: _Worker) -> None:
        """Free a seat of a worker."""
        worker.taken -= 1
        worker.used = time.monotonic()
        if not worker.is_draining or worker.taken:
            return
        if worker.is_lone:
            worker.process.end("the only episode of the worker is over")
        else:
            worker.process.end("the worker held too much memory")

    def _emptiest(self) -> _Worker | None:
        """Where to go next; None for a worker that is yet to be started.

        All cores get one before any has a second session.
        """
        shared = [w for w in self._workers.values() if not w.is_lone]
        with_room = [w for w in shared if w.taken < self.per_worker and not w.is_draining]
        emptiest = min(with_room, key=lambda worker: worker.taken, default=None)
        may_start = self.settings.workers is None or len(shared) < self.settings.workers
        if emptiest is not None and (
            emptiest.taken == 0 or not may_start or len(shared) >= (os.cpu_count() or 1)
        ):
            return emptiest
        if not may_start:
            seats = len(shared) * self.per_worker
            raise PoolExhausted(
                f"{self.name}: all {seats} seats are taken ({len(shared)} workers, "
                f"{self.per_worker} in each)"
            )
        return None

    def _start(self) -> _Worker:
        boot = (self.name, self.options, self.settings.open_files)
        try:
            self._reaper.start()
            keep = self.settings.pass_env
            # A served environment needs the token. Its code does not run in the worker.
            if is_url(self.name):
                keep = (*keep, TOKEN_VARIABLE)
            process = WorkerProcess(
                boot,
                boot_s=self.settings.boot_s,
                reaper=self._reaper,
                on_end=self._replace,
                keep=keep,
                sandbox=self._sandbox,
            )
        except OSError as error:
            raise EnvFault(f"a worker cannot be started: {error}") from error
        worker = self._workers[process] = _Worker(process)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_EVERY_S, self._look)
        return worker

    def _replace(self, process: WorkerProcess) -> None:
        """Restart a worker that ended, if it had been in use."""
        ended = self._workers.pop(process, None)
        if ended is None:
            return
        self._suspect(ended)
        if not process.has_booted or ended.made == 0 or ended.is_lone:
            return
        log.warning("%s: %s", self.name, process.ended)
        self.restarts += 1
        try:
            self._start()
        except EnvFault as fault:
            log.warning("%s: %s", self.name, fault)

    def _suspect(self, ended: _Worker) -> None:
        """Count a failure for every task that ran in a broken worker, and blame the one that broke
        it.
        """
        ended.was_sole = ended.taken == 1
        for instance, task in ended.tasks.items():
            is_culprit = instance == ended.process.broken_by
            self._suspects[task] = TOGETHER if is_culprit else self._suspects.get(task, 0) + 1

    def _look(self) -> None:
        self._timer = None
        if self._workers:
            self._timer = asyncio.get_running_loop().call_later(LOOK_EVERY_S, self._look)
        for process in list(self._workers):
            process.look()
        if time.monotonic() - self._tidied > TIDY_EVERY_S:
            self._tidied = time.monotonic()
            for process in self._workers:
                process.trim_log()
            self._bound_memory(self.settings.memory_mb)
            self._end_idle()

    def _end_idle(self) -> None:
        unused = [
            w for w in self._workers.values() if w.taken == 0 and time.monotonic() - w.used > IDLE_S
        ]
        for worker in unused[: max(0, len(self._workers) - (os.cpu_count() or 1))]:
            del self._workers[worker.process]  # it is not to be replaced
            worker.process.end("nobody used the worker any more")

    def _bound_memory(self, most: int) -> None:
        for process, worker in list(self._workers.items()):
            process.measure()
            if process.memory_mb <= most:
                continue
            worker.is_draining = True
            if worker.taken == 0 or process.memory_mb > FAR_TOO_LARGE * most:
                process.end(
                    f"the worker was killed: it held {process.memory_mb:.0f} MB, with "
                    f"memory_mb = {most}"
                )


def _per_process(name: str, options: dict[str, Any], settings: WorkerSettings) -> int:
    """The environment's own `per_process`. Requested in the sandbox if its code must run there."""
    if settings.sandbox == "none":
        return envs[name].per_process
    from palestra.envs.serving.sandboxed import Sandboxed

    asked = Sandboxed(name, options, settings)
    asked.close()
    return asked.per_process


class EnvSlot:
    """A handle on one environment of a worker process."""

    def __init__(self, workers: Workers, worker: _Worker, instance: int) -> None:
        self.seconds = 0.0
        self._workers, self._worker, self._instance = workers, worker, instance
        self._unanswered = 0
        """Calls that failed, were canceled or are still pending: they leave the environment in an
        unknown state.
        """
        self._is_closed = False

    async def reset(self, task: Task) -> str:
        if self._workers.breaks_workers(task) and not self._worker.is_lone and not self._is_closed:
            await self._move()
        self._worker.tasks[self._instance] = task
        return await self._call("reset", task)

    async def _move(self) -> None:
        """Move to a worker without other sessions."""
        self._leave()
        self._worker, self._instance, self._unanswered = await self._workers.lone_worker(), 1, 0
        await self.make()

    async def step(self, action: str) -> Step:
        return await self._call("step", action)

    async def actions(self) -> list[str] | None:
        return await self._call("actions")

    async def expert(self) -> str | None:
        return await self._call("expert")

    async def scene(self) -> dict[str, Any] | None:
        return await self._call("scene")

    async def ask(self, what: str, kind: Any, argument: Any = None) -> Any:
        """Request metadata of the environment."""
        answer = await self._ask(what, argument, self._workers.settings.deadline_s)
        try:
            return msgspec.msgpack.decode(answer.result, type=kind)
        except msgspec.ValidationError as error:
            raise EnvFault(f"{what} gave a wrong answer: {error}") from error

    @property
    def is_gone(self) -> bool:
        """Whether its process has ended."""
        return self._worker.process.ended is not None

    async def make(self) -> None:
        """Create the environment. Starts the worker process if needed."""
        await self._ask("make", None, self._workers.settings.boot_s)

    async def close(self) -> None:
        """Return the environment, or drop it if it may be broken. Does not wait for dropping, but
        the seat stays taken until then.
        """
        if self._is_closed:
            return
        self._is_closed = True
        task = self._worker.tasks.get(self._instance)
        if task is not None and not self._unanswered and self._worker.process.ended is None:
            self._workers.ended_well(task)
        self._leave()

    def _leave(self) -> None:
        worker, process = self._worker, self._worker.process
        if process.ended is not None:
            return
        if not self._unanswered and not worker.is_lone:
            worker.idle.append(self._instance)
            worker.tasks.pop(self._instance, None)
            self._workers.free(worker)
        else:
            left = process.call(self._instance, "drop", None, self._workers.settings.deadline_s)
            left.add_done_callback(partial(self._dropped, worker, self._instance))

    def _dropped(self, worker: _Worker, instance: int, answer: asyncio.Future[Answer]) -> None:
        if answer.exception() is None:
            if answer.result().error is not None:
                log.warning("an environment could not be closed: %s", answer.result().error)
            worker.tasks.pop(instance, None)
            self._workers.free(worker)

    async def _call(self, method: str, argument: Any = None) -> Any:
        if self._is_closed:
            raise EnvFault("the handle was closed")
        answer = await self._ask(method, argument, self._workers.settings.deadline_s)
        try:
            return _decoders[method].decode(answer.result)
        except msgspec.ValidationError as error:
            self._unanswered += 1
            raise EnvFault(f"{method} gave a wrong answer: {error}") from error

    async def _ask(self, method: str, argument: Any, deadline_s: float) -> Answer:
        began = time.monotonic()
        self._unanswered += 1
        self._workers.calls += 1
        try:
            answer = await self._worker.process.call(self._instance, method, argument, deadline_s)
            if answer.error is not None:
                raise EnvFault(answer.error)
        except EnvFault as fault:
            self._workers.faults += 1
            self.seconds += time.monotonic() - began
            # It was alone in its worker, so no other episode can be to blame.
            if self._worker.was_sole and isinstance(fault, CollateralFault):
                raise EnvFault(str(fault)) from fault
            raise
        self.seconds += answer.seconds
        self._unanswered -= 1
        return answer
