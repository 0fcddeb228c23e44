"""Handles on environments: asynchronous, with a deadline on every call, and faults that have a type."""

from __future__ import annotations

import logging
import math
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Protocol, TypeVar

import msgspec

from palestra.envs.base import Environment
from palestra.serve.forks import FORKED, Forked, contained
from palestra.types import Step, Stop, Task

T = TypeVar("T")

log = logging.getLogger(__name__)


class EnvFault(Exception):
    """The environment, not the agent, is to blame."""

    stop = Stop.ENV_FAULT


class EnvTimeout(EnvFault):
    """The environment did not answer before its deadline."""

    stop = Stop.TIMEOUT


class NoSeat(Exception):
    """As many environments are in use as there may be. Somebody has to close a handle first."""


def checked(step: Step) -> Step:
    """The step as it can be stored: an environment that answers with something else is broken."""
    if not isinstance(step, Step):
        raise TypeError(f"step must return a Step, not {step!r}")
    if not isinstance(step.observation, str) or not math.isfinite(step.reward):
        raise TypeError(f"a step needs a text and a finite reward, not {step.observation!r} and {step.reward!r}")
    return replace(step, reward=float(step.reward), info=msgspec.to_builtins(step.info, str_keys=True))


class EnvHandle(Protocol):
    """An environment, wherever it runs, for as long as somebody needs it. After an `EnvFault` it can only be closed."""

    @property
    def seconds(self) -> float:
        """Spent in the environment so far."""

    async def reset(self, task: Task) -> str: ...
    async def step(self, action: str) -> Step: ...
    async def actions(self) -> list[str] | None: ...
    async def expert(self) -> str | None: ...

    async def close(self) -> None:
        """Back to its pool: the next one to open a handle may get the same environment, unless it broke. May be called twice."""


class EnvPool(Protocol):
    """Where environments of one kind wait for their next episode, so that none is made anew each time."""

    async def open(self) -> EnvHandle:
        """A handle on an environment that nobody else has."""

    async def close(self) -> None:
        """Close all environments, also those that an interrupted episode still holds."""


@asynccontextmanager
async def opened(pool: EnvPool) -> AsyncIterator[EnvHandle]:
    env = await pool.open()
    try:
        yield env
    finally:
        await env.close()


class InlinePool:
    """Environments that run right here, between the engine's steps. Nothing races, so a run can be repeated bit for bit."""

    def __init__(self, make: Callable[[], Environment], deadline_s: float) -> None:
        self.make, self.deadline_s = make, deadline_s
        self.idle: list[Environment] = []
        self.taken: set[InlineHandle] = set()

    async def open(self) -> InlineHandle:
        handle = InlineHandle(self, self.idle.pop() if self.idle else None)
        self.taken.add(handle)
        return handle

    async def close(self) -> None:
        for handle in list(self.taken):
            await handle.close()
        while self.idle:
            self.throw_away(self.idle.pop())

    def throw_away(self, env: Environment) -> None:
        """That closing a broken environment fails too is no news."""
        try:
            with contained(refusing=True), alarm(self.deadline_s):
                env.close()
        except (Exception, Overdue) as error:  # noqa: BLE001  whatever it raises, it is not used again
            log.warning("an environment could not be closed: %s: %s", type(error).__name__, error)


class InlineHandle:
    def __init__(self, pool: InlinePool, env: Environment | None) -> None:
        self.seconds = 0.0
        self._pool, self._env = pool, env
        self._is_broken = False

    async def reset(self, task: Task) -> str:
        return self._call(lambda env: msgspec.convert(env.reset(task), str))

    async def step(self, action: str) -> Step:
        return self._call(lambda env: checked(env.step(action)))

    async def actions(self) -> list[str] | None:
        return self._call(lambda env: env.actions())

    async def expert(self) -> str | None:
        return self._call(lambda env: env.expert())

    async def close(self) -> None:
        self._pool.taken.discard(self)
        env, self._env = self._env, None
        if env is not None and self._is_broken:
            self._pool.throw_away(env)
        elif env is not None:
            self._pool.idle.append(env)

    def _call(self, call: Callable[[Environment], T]) -> T:
        if self not in self._pool.taken:
            raise EnvFault("the handle was closed")
        began = time.monotonic()
        self._is_broken = True  # until it has answered
        try:
            with contained(refusing=True) as inside, alarm(self._pool.deadline_s):
                if self._env is None:
                    self._env = self._pool.make()
                answer = call(self._env)
            self._is_broken = False
            return answer
        except Overdue:
            raise EnvTimeout(f"no answer within {self._pool.deadline_s:g} s" + (f"; {FORKED}" if inside.has_forked else "")) from None
        except Forked as error:
            raise EnvFault(str(error)) from error
        except Exception as error:
            raise EnvFault(f"{type(error).__name__}: {error}") from error
        finally:
            self.seconds += time.monotonic() - began


RING_AGAIN_S = 1.0
"""An exception that rises while Python calls a finalizer is dropped, and libraries that talk to other processes have such as take long."""


class Overdue(BaseException):
    """Not an Exception, so that an environment's `except Exception` does not swallow it."""


@contextmanager
def alarm(seconds: float) -> Iterator[None]:
    """Interrupts Python code that overruns. Off the main thread there are no signals: it is then judged when it returns."""
    if threading.current_thread() is not threading.main_thread():
        began = time.monotonic()
        yield
        if time.monotonic() - began > seconds:
            raise Overdue
        return

    def ring(*_: object) -> None:
        raise Overdue

    began = time.monotonic()
    before = signal.signal(signal.SIGALRM, ring)
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds, RING_AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if left:  # somebody else's alarm
            signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - began), 0.001), interval)
