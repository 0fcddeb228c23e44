"""An environment that runs in a sandbox. None of its code is imported in this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from palestra.core.types import Step, Task
from palestra.envs import Environment
from palestra.envs.serving.about import About
from palestra.envs.serving.handles import EnvFault
from palestra.envs.serving.worker_pool import EnvSlot, Workers, WorkerSettings

T = TypeVar("T")


def make_sandboxed(name: str, options: dict[str, Any], settings: WorkerSettings) -> Environment:
    """As `make_env`: raises a one-line ValueError for a wrong environment or option."""
    try:
        return Sandboxed(name, options, settings)
    except EnvFault as fault:
        raise ValueError(
            f"options = {options!r}: {name}, in its sandbox: {' '.join(str(fault).split())}"
        ) from fault


class Sandboxed(Environment):
    """Forwards calls to a worker of its own, over its own event loop, so that it also works inside
    of another loop.
    """

    def __init__(self, name: str, options: dict[str, Any], settings: WorkerSettings) -> None:
        self._pool = Workers(name, options, replace(settings, workers=1, per_worker=1))
        self._seat: EnvSlot | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        try:
            about: About = self._asked("about", About)
        except BaseException:
            self.close()
            raise
        # Set on the instance, because other instances of the class wrap other environments.
        vars(self).update(name=about.name, splits=about.splits, per_process=about.per_process)
        self.max_turns = about.max_turns
        self.instructions = about.instructions
        self.example = tuple(about.example)

    def tasks(self, split: str) -> Sequence[Task]:
        found: list[Task] = self._asked("tasks", list[Task], split)
        return found

    def task(self, id: str) -> Task:
        try:
            found: Task = self._asked("task", Task, id)
        except EnvFault as fault:
            kind, _, message = str(fault).partition(": ")
            raise ValueError(message) if kind == "ValueError" else fault from None
        return found

    def vocabulary(self) -> list[str] | None:
        words: list[str] | None = self._asked("vocabulary", list[str] | None)
        return words

    def texts(self) -> Iterable[str] | None:
        texts: list[str] | None = self._asked("texts", list[str] | None)
        return texts

    def reset(self, task: Task) -> str:
        return self._run(self._on_seat(lambda seat: seat.reset(task)))

    def step(self, action: str) -> Step:
        return self._run(self._on_seat(lambda seat: seat.step(action)))

    def actions(self) -> list[str] | None:
        return self._run(self._on_seat(lambda seat: seat.actions()))

    def expert(self) -> str | None:
        return self._run(self._on_seat(lambda seat: seat.expert()))

    def close(self) -> None:
        """End the worker. A later call starts another one."""
        loop, self._loop = self._loop, None
        if loop is not None:
            asyncio.run_coroutine_threadsafe(self._pool.close(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
        self._seat = None

    def _asked(self, what: str, kind: Any, argument: Any = None) -> Any:
        return self._run(self._on_seat(lambda seat: seat.ask(what, kind, argument)))

    async def _on_seat(self, call: Any) -> Any:
        if self._seat is None:
            self._seat = await self._pool.open()
        try:
            return await call(self._seat)
        except EnvFault:
            if self._seat.is_gone:
                self._seat = None
            raise

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(
                target=_run_loop, args=(self._loop,), name="sandboxed", daemon=True
            ).start()
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.close()
