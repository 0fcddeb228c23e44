"""Asynchronous handles on environments, with a deadline on every call and typed faults."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Protocol, TypeVar

from palestra.core.errors import UserError
from palestra.core.extras import MissingPackage, naming_extras
from palestra.core.interrupts import told_apart
from palestra.core.registry import UnknownName
from palestra.core.types import Example, Step, Stop, Task
from palestra.envs.base import Environment
from palestra.envs.serving.forks import FORKED, Forked, contained
from palestra.envs.serving.validation import (
    ONE_LINE,
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
    """Whether another episode caused it."""


class EnvTimeout(EnvFault):
    """The environment did not answer before its deadline."""

    stop = Stop.TIMEOUT


class CollateralFault(EnvFault):
    """Another session of the same worker process broke the worker. The episode is restarted and
    does not count as failed.
    """

    is_collateral = True


class PoolExhausted(Exception):
    """All environments of the pool are in use. A handle must be closed first."""


class BadEnvironment(UserError, ValueError):
    """An environment failed outside of an episode. The one-line message names it."""


DEADLINE_S = 60.0
"""The default deadline of a call."""


@contextmanager
def guarded(
    name: str,
    what: str,
    *,
    deadline_s: float = DEADLINE_S,
    refusing: bool = False,
    telling: tuple[type[Exception], ...] = (),
) -> Iterator[None]:
    """Guards a call outside of an episode: any failure, or a missed deadline, raises
    `BadEnvironment`.

    Errors whose own message says what to do pass through: the types in `telling`, `UnknownName`,
    and a package that an extra brings.
    """
    words = ""
    try:
        with told_apart(), contained(refusing=refusing), alarm(deadline_s, name, what):
            try:
                with naming_extras(name):
                    yield
            except BaseException as error:
                if is_environments(error) and not isinstance(
                    error, (BadEnvironment, UnknownName, MissingPackage, *telling)
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


def check_attributes(name: str, env: Environment, *, deadline_s: float = DEADLINE_S) -> None:
    """Check the attributes that a run, an evaluation and a server rely on."""
    with guarded(name, "max_turns", deadline_s=deadline_s):
        most = env.max_turns
        if not isinstance(most, int) or isinstance(most, bool) or most < 1:
            raise BadEnvironment(
                f"{name}: max_turns is {shown(most)}, expected a number of turns from 1 on"
            )
    with guarded(name, "splits", deadline_s=deadline_s):
        splits = env.splits
        is_sequence = isinstance(splits, tuple | list)
        if not is_sequence or not all(isinstance(split, str) for split in splits):
            raise BadEnvironment(f"{name}: splits is {shown(splits)}, expected a tuple of names")
    with guarded(name, "instructions", deadline_s=deadline_s):
        text("it must be a text", env.instructions)
    with guarded(name, "example", deadline_s=deadline_s):
        example = env.example
        if not isinstance(example, tuple | list) or not all(map(_is_turn, example)):
            raise BadEnvironment(
                f"{name}: example is {shown(example)}, expected a tuple of palestra.Example"
            )


def _is_turn(example: Any) -> bool:
    is_triple = isinstance(example, tuple | list) and len(example) == len(Example._fields)
    return is_triple and all(isinstance(part, str) for part in example)


def vocabulary_of(env: Environment) -> list[str] | None:
    """The vocabulary. Raises TypeError or ValueError if something in it is no text."""
    words = env.vocabulary()
    return None if words is None else [text("it must list texts", word) for word in words]


def listed(name: str, env: Environment, split: str) -> list[Task]:
    """The tasks of a split. Raises `BadEnvironment` if any is not a valid `Task`."""
    tasks = list(env.tasks(split))
    for task in tasks:
        if not isinstance(task, Task) or not _is_of_texts(task):
            raise BadEnvironment(
                f"{name}: tasks({split!r}) has {shown(task)}, expected a Task of texts"
            )
        if not task.id.isascii():
            text(f"{name}: an id in tasks({split!r}) must be a text", task.id)
    return tasks


def _is_of_texts(task: Task) -> bool:
    fields = (task.env, task.split, task.id, task.category)
    return all(type(field) is str for field in fields)


class EnvHandle(Protocol):
    """An environment in use, in any isolation mode.

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
        """Return the environment to its pool, which may reuse it unless it broke. May be called
        twice.
        """


class EnvPool(Protocol):
    """Environments of one kind, which are reused from episode to episode."""

    async def open(self) -> EnvHandle:
        """A handle on an environment for exclusive use."""

    async def close(self) -> None:
        """Close all environments, including those of interrupted episodes."""


@asynccontextmanager
async def opened(pool: EnvPool) -> AsyncIterator[EnvHandle]:
    env = await pool.open()
    try:
        yield env
    finally:
        await env.close()


class InlinePool:
    """Environments in this process, which run between the engine's steps.

    Nothing runs concurrently, so a run is reproducible bit for bit.
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
        """Close an environment. A failure is only logged: a broken one often fails to close too."""
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
        # Any exit but a normal return leaves the environment in an unknown state.
        self._is_broken = True
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
                    # Described here, under the same deadline: `__str__` is environment code too.
                    if is_environments(error):
                        words = described(error)
                    raise
            self._is_broken = False
            return answer
        except Overdue:
            message = f"no answer within {self._pool.deadline_s:g} s"
            if inside.has_forked:
                message += f"; {FORKED}"
            raise EnvTimeout(message) from None
        except Forked as error:
            raise EnvFault(str(error)) from error
        except BaseException as error:
            if not is_environments(error):
                raise
            raise EnvFault(words) from error
        finally:
            self.seconds += time.monotonic() - began


RING_AGAIN_S = 1.0
"""The interval of repeated alarms: Python drops an exception that is raised inside a finalizer, and
libraries that talk to other processes have slow finalizers.
"""


def _ring(*_: object) -> None:
    raise Overdue


class alarm:  # noqa: N801  used as a function; a generator would cost a microsecond per call
    """Interrupts Python code of an environment that exceeds its deadline.

    Off the main thread there are no signals, so the deadline is checked when the call returns. Code
    that cannot be interrupted, such as C code, is left to the watchdog, if it runs.
    """

    __slots__ = (
        "_before", "_began", "_interval", "_is_main", "_left", "_method", "_name", "_seconds",
    )  # fmt: skip

    def __init__(self, seconds: float, name: str, method: str) -> None:
        self._seconds, self._name, self._method = seconds, name, method

    def __enter__(self) -> None:
        self._began = time.monotonic()
        watchdog.begins(self._name, self._method, self._seconds)
        self._is_main = threading.get_ident() == threading.main_thread().ident
        if self._is_main:
            self._before = signal.signal(signal.SIGALRM, _ring)
            self._left, self._interval = signal.setitimer(
                signal.ITIMER_REAL, self._seconds, RING_AGAIN_S
            )

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if self._is_main:
                signal.setitimer(signal.ITIMER_REAL, 0)
                signal.signal(signal.SIGALRM, self._before)
        finally:
            watchdog.ends()
        took = time.monotonic() - self._began
        # Restore a timer that somebody else had set. 0 would disable it.
        if self._is_main and self._left:
            rest = max(self._left - took, 0.001)
            signal.setitimer(signal.ITIMER_REAL, rest, self._interval)
        # The environment may have caught the Overdue that the signal handler raised.
        if error is None and took > self._seconds:
            raise Overdue
