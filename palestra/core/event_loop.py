"""The event loop of a run: on the caller's thread, or in a thread of its own while episodes are
collected alongside the learner, or where the caller's thread already runs an event loop (Jupyter).
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Collection, Coroutine
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")

GRACE_S = 30.0
"""How long episodes may take to stop when the run is over."""


class EventLoop:
    """Runs coroutines to their end. Other tasks progress only while the loop runs."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._thread: threading.Thread | None = None
        self._executor: ThreadPoolExecutor | None = None
        """Runs the loop where the caller's thread runs another one."""
        self._is_over = asyncio.Event()
        self._cancelled: Collection[asyncio.Task[Any]] = ()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._runner.get_loop()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self._thread is None and _has_running_loop():
            return self._run_in_thread(coroutine)
        if self._thread is None:
            try:
                return self._runner.run(coroutine)
            except KeyboardInterrupt:
                self._abandon()
                raise
        job = asyncio.run_coroutine_threadsafe(coroutine, self.get_loop())
        try:
            return job.result()
        except BaseException:
            job.cancel()
            raise

    def _run_in_thread(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run to the end in another thread: a thread can run only one event loop at a time.

        Always in the same one, as each thread that computes with torch has its own OpenMP threads.
        """
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix="rollout")
        job = self._executor.submit(self._runner.run, coroutine)
        try:
            return job.result()
        except KeyboardInterrupt:
            # It was raised in this thread only; the loop's thread still runs.
            if not job.done():
                self.get_loop().call_soon_threadsafe(self._abandon)
                wait([job], GRACE_S)
            raise

    def _abandon(self) -> None:
        """Cancel all tasks silently, so that they do not continue when the loop runs again to close
        things.
        """
        self.get_loop().set_exception_handler(lambda loop, context: None)
        for task in asyncio.all_tasks(self.get_loop()):
            task.cancel()

    def go_on(self) -> None:
        """Run the loop in a thread of its own from now on, also between calls of `run`."""
        if self._thread is None:
            self._is_over = asyncio.Event()
            thread = threading.Thread(
                target=lambda: self._runner.run(self._until_over()), name="playing", daemon=True
            )
            thread.start()
            self._thread = thread

    def halt(self, tasks: Collection[asyncio.Task[Any]]) -> None:
        """Cancel these tasks, and end the thread. From now on the loop runs only during `run`."""
        thread = self._thread
        if thread is None:
            return
        self._cancelled = tasks
        self.get_loop().call_soon_threadsafe(self._is_over.set)
        thread.join(GRACE_S)
        if thread.is_alive():
            log.error(
                "an environment has not answered for %g s; the thread in which it is "
                "played is left behind",
                GRACE_S,
            )
        else:
            self._thread = None

    async def _until_over(self) -> None:
        await self._is_over.wait()
        for task in self._cancelled:
            task.cancel()
        await asyncio.gather(*self._cancelled, return_exceptions=True)

    def close(self) -> None:
        if self._executor is None:
            self._runner.close()
        else:
            self._executor.submit(self._runner.close)
            self._executor.shutdown()


def _has_running_loop() -> bool:
    """Whether an event loop runs in this thread already."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
