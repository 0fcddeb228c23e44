"""A barrier between environments with varying response times and an engine whose batches must not
depend on them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from palestra.core.types import Step, Task
from palestra.envs.serving.handles import EnvHandle, EnvPool

log = logging.getLogger(__name__)


class BarrierPool:
    """A pool that counts pending calls, so that the engine can wait for all answers."""

    def __init__(self, pool: EnvPool, timeout_s: float) -> None:
        self._pool = pool
        self._timeout_s = timeout_s
        self._under_way = 0
        self._all_answered: asyncio.Future[None] | None = None
        self._is_given_up = False

    @property
    def is_busy(self) -> bool:
        """Whether `quiesce` would wait."""
        return self._under_way > 0 and not self._is_given_up

    async def quiesce(self) -> None:
        """Wait until no call is pending.

        A call that is still pending after `timeout_s` waits for something other than its
        environment, such as a free seat on a server. From then on this method does not wait at all.
        """
        if not self.is_busy:
            return
        self._all_answered = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._all_answered
        except TimeoutError:
            self._is_given_up = True
            log.warning(
                "%d episodes wait for an environment and are not waited for any more: "
                "this run cannot be repeated bit for bit. "
                "Does rollout.concurrency exceed the environments that can be had?",
                self._under_way,
            )
        finally:
            self._all_answered = None

    @contextmanager
    def counting(self) -> Iterator[None]:
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1
            if (
                not self._under_way
                and self._all_answered is not None
                and not self._all_answered.done()
            ):
                self._all_answered.set_result(None)

    async def open(self) -> BarrierHandle:
        with self.counting():
            return BarrierHandle(await self._pool.open(), self)

    async def close(self) -> None:
        await self._pool.close()


class BarrierHandle:
    def __init__(self, handle: EnvHandle, pool: BarrierPool) -> None:
        self._handle, self._pool = handle, pool

    @property
    def seconds(self) -> float:
        return self._handle.seconds

    async def reset(self, task: Task) -> str:
        with self._pool.counting():
            return await self._handle.reset(task)

    async def step(self, action: str) -> Step:
        with self._pool.counting():
            return await self._handle.step(action)

    async def actions(self) -> list[str] | None:
        with self._pool.counting():
            return await self._handle.actions()

    async def expert(self) -> str | None:
        with self._pool.counting():
            return await self._handle.expert()

    async def close(self) -> None:
        with self._pool.counting():
            await self._handle.close()
