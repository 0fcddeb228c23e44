"""Handles on environments: asynchronous, with a deadline on every call, and faults that have a type."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, BinaryIO, Protocol, TypeVar

import msgspec

from palestra.envs.base import Environment
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
    """All places for environments are taken. Nothing is broken: ask again later."""


def checked(step: Step) -> Step:
    """The step as it can be stored: an environment that answers with something else is broken."""
    if not isinstance(step, Step):
        raise TypeError(f"step must return a Step, not {step!r}")
    if not isinstance(step.observation, str) or not math.isfinite(step.reward):
        raise TypeError(f"a step needs a text and a finite reward, not {step.observation!r} and {step.reward!r}")
    return replace(step, reward=float(step.reward), info=msgspec.to_builtins(step.info, str_keys=True))


class EnvHandle(Protocol):
    """An environment, wherever it runs. After an `EnvFault` it must be thrown away."""

    seconds: float
    """Spent in the environment so far."""

    async def reset(self, task: Task) -> str: ...
    async def step(self, action: str) -> Step: ...
    async def actions(self) -> list[str] | None: ...
    async def expert(self) -> str | None: ...
    async def close(self) -> None: ...


class InlineHandle:
    """Runs the environment right here, between the engine's steps. Nothing races, so a run can be repeated bit for bit."""

    def __init__(self, make: Callable[[], Environment], deadline_s: float) -> None:
        self.deadline_s = deadline_s
        self.seconds = 0.0
        self._make = make
        self._env: Environment | None = None

    async def reset(self, task: Task) -> str:
        return self._call(lambda env: msgspec.convert(env.reset(task), str))

    async def step(self, action: str) -> Step:
        return self._call(lambda env: checked(env.step(action)))

    async def actions(self) -> list[str] | None:
        return self._call(lambda env: env.actions())

    async def expert(self) -> str | None:
        return self._call(lambda env: env.expert())

    async def close(self) -> None:
        if self._env is not None:
            self._call(lambda env: env.close())

    def _call(self, call: Callable[[Environment], T]) -> T:
        began = time.monotonic()
        try:
            with _alarm(self.deadline_s):
                if self._env is None:
                    self._env = self._make()
                return call(self._env)
        except _Overdue:
            raise EnvTimeout(f"no answer within {self.deadline_s:g} s") from None
        except Exception as error:
            raise EnvFault(f"{type(error).__name__}: {error}") from error
        finally:
            self.seconds += time.monotonic() - began


class _Overdue(BaseException):
    """Not an Exception, so that an environment's `except Exception` does not swallow it."""


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Interrupts Python code that overruns. Off the main thread there are no signals: it is then judged when it returns."""
    if threading.current_thread() is not threading.main_thread():
        began = time.monotonic()
        yield
        if time.monotonic() - began > seconds:
            raise _Overdue
        return

    def ring(*_: object) -> None:
        raise _Overdue

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class ProcessHandle:
    """Runs the environment in a worker process that can hang, leak or die without taking the run along."""

    LINE_LIMIT = 64 * 1024 * 1024

    def __init__(self, name: str, options: dict[str, Any], deadline_s: float) -> None:
        self.name, self.options, self.deadline_s = name, options, deadline_s
        self.seconds = 0.0
        self._process: asyncio.subprocess.Process | None = None
        self._errors: BinaryIO | None = None

    async def reset(self, task: Task) -> str:
        return await self._call("reset", task, str)

    async def step(self, action: str) -> Step:
        return await self._call("step", action, Step)

    async def actions(self) -> list[str] | None:
        return await self._call("actions", None, list[str] | None)

    async def expert(self) -> str | None:
        return await self._call("expert", None, str | None)

    async def close(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        if self._errors is not None:
            self._errors.close()

    async def _call(self, method: str, argument: Any, kind: Any) -> Any:
        began = time.monotonic()
        try:
            async with asyncio.timeout(self.deadline_s):
                answer = await self._exchange(msgspec.json.encode([method, argument]) + b"\n")
        except TimeoutError:
            await self.close()
            raise EnvTimeout(f"{method} gave no answer within {self.deadline_s:g} s") from None
        except OSError as error:
            raise EnvFault(f"the worker cannot be reached: {error}") from error
        finally:
            self.seconds += time.monotonic() - began
        if not answer:
            raise EnvFault(await self._last_words())
        reply = msgspec.json.decode(answer, type=dict[str, msgspec.Raw])
        if "error" in reply:
            raise EnvFault(msgspec.json.decode(reply["error"], type=str))
        try:
            return msgspec.json.decode(reply["result"], type=kind)
        except msgspec.ValidationError as error:
            raise EnvFault(f"{method} gave a wrong answer: {error}") from error

    async def _exchange(self, line: bytes) -> bytes:
        if self._process is None:
            self._errors = tempfile.TemporaryFile()  # noqa: SIM115  closed with the handle
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "palestra.serve.worker", self.name, msgspec.json.encode(self.options).decode()),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=self._errors,
                limit=self.LINE_LIMIT,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line)
        await self._process.stdin.drain()
        return await self._process.stdout.readline()

    async def _last_words(self) -> str:
        assert self._process is not None
        assert self._errors is not None
        code = await self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return f"the worker died with exit code {code}" + (f": {lines[-1]}" if lines else "")


class EnvPool:
    """Handles that wait for their next episode, so that no environment is made anew each time."""

    def __init__(self, make: Callable[[], EnvHandle]) -> None:
        self._make = make
        self._idle: list[EnvHandle] = []
        self._taken: list[EnvHandle] = []

    def take(self) -> EnvHandle:
        handle = self._idle.pop() if self._idle else self._make()
        self._taken.append(handle)
        return handle

    def give_back(self, handle: EnvHandle) -> None:
        self._taken.remove(handle)
        self._idle.append(handle)

    async def throw_away(self, handle: EnvHandle) -> None:
        """For a handle whose environment may be broken. That closing it fails too is no news."""
        self._taken.remove(handle)
        await close_quietly(handle)

    async def close(self) -> None:
        """Close all handles, also those that an interrupted episode still holds."""
        handles, self._idle, self._taken = [*self._idle, *self._taken], [], []
        for handle in handles:
            await close_quietly(handle)


async def close_quietly(handle: EnvHandle) -> None:
    try:
        await handle.close()
    except EnvFault as fault:
        log.warning("an environment could not be closed: %s", fault)
