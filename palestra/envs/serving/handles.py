"""Handles on environments: asynchronous, with a deadline on every call, and faults that have a
type.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Protocol, TypeVar

from palestra.core.errors import UserError
from palestra.core.interrupts import told_apart
from palestra.core.registry import UnknownName
from palestra.core.types import Step, Stop, Task
from palestra.envs.base import Environment
from palestra.envs.serving.forks import FORKED, Forked, contained
from palestra.envs.serving.validation import (
    Overdue,
    ValidatedEnv,
    cut,
    described,
    is_environments,
    shown,
    text,
)
from palestra.envs.serving.watchdog import watchdog

T = TypeVar("T")

log = logging.getLogger(__name__)


class EnvFault(Exception):
    """The environment, not the agent, is to blame."""

    stop = Stop.ENV_FAULT
    is_collateral = False
    """Whether somebody else's episode has caused it."""


class EnvTimeout(EnvFault):
    """The environment did not answer before its deadline."""

    stop = Stop.TIMEOUT


class CollateralFault(EnvFault):
    """Another session of the same worker process broke it: this one is to be begun anew as if
    nothing had been.
    """

    is_collateral = True


class PoolExhausted(Exception):
    """As many environments are in use as there may be. Somebody has to close a handle first."""


class BadEnvironment(UserError, ValueError):
    """An environment broke outside of episodes: one line that names it."""


ONE_LINE = 500
"""Characters of what an environment says in an error."""
DEADLINE_S = 60.0
"""For what is asked of an environment where no other deadline was given."""


@contextmanager
def guarded(
    name: str,
    what: str,
    *,
    deadline_s: float = DEADLINE_S,
    refusing: bool = False,
    telling: tuple[type[Exception], ...] = (),
) -> Iterator[None]:
    """Around each question to an environment outside of episodes: whatever it does, within its
    deadline, is a `BadEnvironment`.

    Errors that say themselves what is to be done are let through: those that are `telling`, and a
    name that is not known.
    """
    words = ""
    try:
        with told_apart(), contained(refusing=refusing), alarm(deadline_s, name, what):
            try:
                yield
            except BaseException as error:
                if is_environments(error) and not isinstance(
                    error, (BadEnvironment, UnknownName, *telling)
                ):
                    words = cut(" ".join(described(error).split()), ONE_LINE)
                raise
    except Overdue:
        raise BadEnvironment(
            f"{name}: {what} gave no answer within {deadline_s:g} s (deadline_s)"
        ) from None
    except Forked as error:
        raise BadEnvironment(f"{name}: {what}: {error}") from error
    except BaseException as error:
        if not words:
            raise
        raise BadEnvironment(f"{name}: {what} raised {words}") from error


def check_attributes(name: str, env: Environment) -> None:
    """What a run, an evaluation and a server rely on besides the methods."""
    with guarded(name, "max_turns"):
        most, splits = env.max_turns, env.splits
        if not isinstance(most, int) or isinstance(most, bool) or most < 1:
            raise BadEnvironment(
                f"{name}: max_turns is {shown(most)}, expected a number of turns from 1 on"
            )
        if not isinstance(splits, tuple | list) or not all(
            isinstance(split, str) for split in splits
        ):
            raise BadEnvironment(f"{name}: splits is {shown(splits)}, expected a tuple of names")


def listed(name: str, env: Environment, split: str) -> list[Task]:
    """The tasks of a split, if that is what they are."""
    tasks = list(env.tasks(split))
    for task in tasks:
        if not isinstance(task, Task) or not all(
            type(field) is str for field in (task.env, task.split, task.id, task.category)
        ):
            raise BadEnvironment(
                f"{name}: tasks({split!r}) has {shown(task)}, expected a Task of texts"
            )
        if not task.id.isascii():
            text(f"{name}: an id in tasks({split!r}) must be a text", task.id)
    return tasks


class EnvHandle(Protocol):
    """An environment, wherever it runs, for as long as somebody needs it.

    After an `EnvFault` it can only be closed.
    """

    @property
    def seconds(self) -> float:
        """Spent in the environment so far."""

    async def reset(self, task: Task) -> str: ...
    async def step(self, action: str) -> Step: ...
    async def actions(self) -> list[str] | None: ...
    async def expert(self) -> str | None: ...

    async def close(self) -> None:
        """Back to its pool: the next one to open a handle may get the same environment, unless it
        broke. May be called twice.
        """


class EnvPool(Protocol):
    """Where environments of one kind wait for their next episode, so that none is made anew each
    time.
    """

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
    """Environments that run right here, between the engine's steps.

    Nothing races, so a run can be repeated bit for bit.
    """

    def __init__(
        self, make: Callable[[], Environment], deadline_s: float, name: str = "the environment"
    ) -> None:
        self.make, self.deadline_s, self.name = make, deadline_s, name
        self.idle: list[ValidatedEnv] = []
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

    def throw_away(self, played: ValidatedEnv) -> None:
        """That closing a broken environment fails too is no news."""
        try:
            with contained(refusing=True), alarm(self.deadline_s, self.name, "close"):
                played.env.close()
        except BaseException as error:
            if not is_environments(error) and not isinstance(error, Overdue):
                raise
            log.warning("an environment could not be closed: %s", described(error))


class InlineHandle:
    def __init__(self, pool: InlinePool, env: ValidatedEnv | None) -> None:
        self.seconds = 0.0
        self._pool, self._env = pool, env
        self._is_broken = False

    async def reset(self, task: Task) -> str:
        return self._call("reset", lambda env: env.reset(task))

    async def step(self, action: str) -> Step:
        return self._call("step", lambda env: env.step(action))

    async def actions(self) -> list[str] | None:
        return self._call("actions", lambda env: env.actions())

    async def expert(self) -> str | None:
        return self._call("expert", lambda env: env.expert())

    async def close(self) -> None:
        self._pool.taken.discard(self)
        env, self._env = self._env, None
        if env is not None and self._is_broken:
            self._pool.throw_away(env)
        elif env is not None:
            self._pool.idle.append(env)

    def _call(self, method: str, call: Callable[[ValidatedEnv], T]) -> T:
        if self not in self._pool.taken:
            raise EnvFault("the handle was closed")
        began = time.monotonic()
        self._is_broken = True  # until it has answered
        words = ""
        try:
            with (
                contained(refusing=True) as inside,
                alarm(self._pool.deadline_s, self._pool.name, method),
            ):
                try:
                    if self._env is None:
                        self._env = ValidatedEnv(self._pool.make())
                    answer = call(self._env)
                except BaseException as error:
                    if is_environments(error):
                        words = described(error)  # its own code, so it has the same deadline
                    raise
            self._is_broken = False
            return answer
        except Overdue:
            raise EnvTimeout(
                f"no answer within {self._pool.deadline_s:g} s"
                + (f"; {FORKED}" if inside.has_forked else "")
            ) from None
        except Forked as error:
            raise EnvFault(str(error)) from error
        except BaseException as error:
            if not is_environments(error):
                raise
            raise EnvFault(words) from error
        finally:
            self.seconds += time.monotonic() - began


RING_AGAIN_S = 1.0
"""An exception that rises while Python calls a finalizer is dropped, and libraries that talk to
other processes have such as take long.
"""


def _ring(*_: object) -> None:
    raise Overdue


@contextmanager
def alarm(seconds: float, name: str, method: str) -> Iterator[None]:
    """Interrupts Python code of an environment that overruns. Off the main thread there are no
    signals: it is then judged when it returns.

    What cannot be interrupted, such as code in C, is for the watchdog, where one is at work.
    """
    began = time.monotonic()
    watchdog.begins(name, method, seconds)
    if threading.get_ident() != threading.main_thread().ident:
        try:
            yield
        finally:
            watchdog.ends()
    else:
        before = signal.signal(signal.SIGALRM, _ring)
        left, interval = signal.setitimer(signal.ITIMER_REAL, seconds, RING_AGAIN_S)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            watchdog.ends()
            if left:  # somebody else's alarm
                signal.setitimer(
                    signal.ITIMER_REAL, max(left - (time.monotonic() - began), 0.001), interval
                )
    if time.monotonic() - began > seconds:  # it may have caught what was raised in it
        raise Overdue
