"""A pool of worker processes for environments of one kind: they can hang, leak or die without
taking anything else along.
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
"""For workers that hang or died."""
TIDY_EVERY_S = 0.5
"""For what they print and what they hold."""
MADE_AT_ONCE = max(4, 2 * (os.cpu_count() or 1))
"""So many processes and environments of a pool are started at a time: a hundred together would all
miss their deadline.
"""
IDLE_S = 600.0
"""A worker that nobody has used for so long ends, unless it is one of the first, of which there is
one for each core.
"""
TOGETHER = 3
"""A task whose worker broke so many times in a row, whoever broke it, is played in a worker of its
own from then on.
"""
FAR_TOO_LARGE = 1.5
"""A worker that holds so many times its `memory_mb` is not waited for."""

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
    """Environments in one process; what the environment says itself (`per_process`) where None."""
    workers: int | None = None
    """At most so many processes that environments share; as many as are needed where None."""
    deadline_s: float = 60.0
    """Seconds that any one call may take."""
    boot_s: float = 60.0
    """Seconds that a process may take to start, and an environment to be made."""
    memory_mb: int = 4096
    """A process that holds more, with its children, gets no new sessions, and ends with its last
    one.
    """
    open_files: int = 4096
    """At most so many in one process."""
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
    """Calls that were made and not answered."""
    memory_mb: float
    open_files: int
    is_draining: bool


@dataclass(frozen=True, slots=True)
class PoolStats:
    """How a pool is doing; calls, faults and restarts since it was made."""

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
    """For one episode, whose task is known to break workers."""
    tasks: dict[int, Task] = field(default_factory=dict)
    """What is played in which of its environments."""
    was_sole: bool = False
    """When it broke, it had one seat taken: there is nobody else to blame."""
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
        """A seat in the worker that has the fewest taken. Raises `NoSeat` where all are."""
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
        """Whether it is to be played where it can harm nobody else."""
        return self._suspects.get(task, 0) >= TOGETHER

    def ended_well(self, task: Task) -> None:
        self._suspects.pop(task, None)

    async def lone_worker(self) -> _Worker:
        """A new process for a single episode: beside those that are shared, however many these may
        be.
        """
        async with (making := self._making):
            if making is not self._making:
                raise EnvFault("the pool was closed")
            worker = self._start()
            worker.is_lone = worker.is_draining = (
                True  # nobody else gets a seat in it, and it ends with its episode
            )
            worker.made = worker.taken = 1
            return worker

    async def close(self) -> None:
        workers, self._workers = self._workers, {}
        self._making = asyncio.Semaphore(
            MADE_AT_ONCE
        )  # the next to use it may have another event loop
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await asyncio.gather(*(process.leave("the pool was closed") for process in workers))
        await self._reaper.close()

    def stats(self) -> PoolStats:
        for process in self._workers:
            process.measure()
        workers = [
            WorkerStats(
                w.process.pid,
                w.taken,
                w.process.queue,
                w.process.memory_mb,
                w.process.open_files,
                w.is_draining,
            )
            for w in self._workers.values()
        ]
        return PoolStats(
            sum(w.sessions for w in workers), self.calls, self.faults, self.restarts, workers
        )

    def free(self, worker: _Worker) -> None:
        """Somebody has left a seat."""
        worker.taken -= 1
        worker.used = time.monotonic()
        if worker.is_draining and worker.taken == 0:
            worker.process.end(
                "the only episode of the worker is over"
                if worker.is_lone
                else "the worker held too much memory"
            )

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
            keep = (
                *self.settings.pass_env,
                *((TOKEN_VARIABLE,) if is_url(self.name) else ()),
            )  # a served one runs no code there
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
        """One that was of no use to anybody is not started again until somebody asks for a seat."""
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
        """All whose episodes a broken worker held, and above all who broke it."""
        ended.was_sole = ended.taken == 1
        for instance, task in ended.tasks.items():
            is_culprit = instance == ended.process.broken_by
            self._suspects[task] = TOGETHER if is_culprit else self._suspects.get(task, 0) + 1

    def _look(self) -> None:
        self._timer = (
            asyncio.get_running_loop().call_later(LOOK_EVERY_S, self._look)
            if self._workers
            else None
        )
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
    """What the environment says itself; where its code runs in a sandbox only,
    it is asked there.
    """
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
        """Calls that ended in a fault, were cancelled or are still under way: nobody knows in what
        state they leave the environment.
        """
        self._is_closed = False

    async def reset(self, task: Task) -> str:
        if self._workers.breaks_workers(task) and not self._worker.is_lone and not self._is_closed:
            await self._move()
        self._worker.tasks[self._instance] = task
        return await self._call("reset", task)

    async def _move(self) -> None:
        """To a worker where nobody else has a seat."""
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
        """What the environment tells besides playing."""
        answer = await self._ask(what, argument, self._workers.settings.deadline_s)
        try:
            return msgspec.msgpack.decode(answer.result, type=kind)
        except msgspec.ValidationError as error:
            raise EnvFault(f"{what} gave a wrong answer: {error}") from error

    @property
    def is_gone(self) -> bool:
        """Its process has ended."""
        return self._worker.process.ended is not None

    async def make(self) -> None:
        """The environment itself. Starting the process is part of it where there was none."""
        await self._ask("make", None, self._workers.settings.boot_s)

    async def close(self) -> None:
        """Nobody waits for an environment that has to be thrown away, but until it is gone its seat
        is taken.
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
            if self._worker.was_sole and isinstance(
                fault, CollateralFault
            ):  # there was no other who could have done it
                raise EnvFault(str(fault)) from fault
            raise
        self.seconds += answer.seconds
        self._unanswered -= 1
        return answer
