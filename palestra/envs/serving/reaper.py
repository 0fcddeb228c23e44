"""The pool's side of the reaper: a process that limits the number of worker processes, and that
outlives the pool to kill what workers leave behind.
"""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import time
from contextlib import suppress

from palestra.envs.serving import reaper_process

log = logging.getLogger(__name__)

LEAVE_S = 2 * reaper_process.KILL_S


class Reaper:
    """Started with the first worker.

    A reaper that was killed is replaced, and the new one gets the same orders.
    """

    def __init__(self, most: int, own: int = 0) -> None:
        self.most, self.own = most, own
        """The process limit of a worker, including itself, and the processes of its sandbox."""
        self._process: subprocess.Popen[bytes] | None = None
        self._watched: dict[int, str] = {}
        """The marks of the workers that are not ended."""
        self._over: set[int] = set()
        """Workers that exceeded the limit."""
        self._unread = b""

    def start(self) -> None:
        """Start the process before the first worker: if it cannot be started, no worker runs
        without a reaper.
        """
        if self._process is None:
            self._process = _started()

    def watch(self, worker: int, mark: str) -> None:
        self._watched[worker] = mark
        self._tell(f"watch {worker} {mark} {self.most + self.own}")

    def end(self, worker: int) -> None:
        """Kill all remaining processes of a worker. Only `close` waits until they are gone."""
        if self._watched.pop(worker, None) is not None:
            self._tell(f"end {worker}")

    def reason(self, worker: int) -> str | None:
        """Why the reaper killed a worker, or None."""
        if self._process is not None and self._process.stdout is not None:
            with suppress(BlockingIOError):
                *lines, self._unread = (
                    self._unread + os.read(self._process.stdout.fileno(), 65536)
                ).split(b"\n")
                self._over |= {int(line.removeprefix(b"over ")) for line in lines}
        if worker not in self._over:
            return None
        self._over.discard(worker)
        return (
            "the worker was killed: it and what it had started were more processes than "
            f"max_processes = {self.most}"
        )

    async def close(self) -> None:
        """When this returns, nothing is left of any worker."""
        process, self._process = self._process, None
        self._watched = {}
        if process is None:
            return
        _close(process)
        until = time.monotonic() + LEAVE_S
        while process.poll() is None and time.monotonic() < until:
            await asyncio.sleep(0.005)
        if process.poll() is None:
            log.warning("processes that an environment has started cannot be killed")

    def _tell(self, order: str) -> None:
        if (
            self._process is not None
            and self._process.poll() is None
            and _told(self._process, order)
        ):
            return
        if self._process is not None:
            log.warning("the reaper of the worker processes is gone; another one is started")
            _close(self._process)
            self._process.poll()
        self._process, self._unread = _started(), b""
        for worker, mark in self._watched.items():
            _told(self._process, f"watch {worker} {mark} {self.most + self.own}")
        if order.startswith("end"):
            _told(self._process, order)


def _told(process: subprocess.Popen[bytes], order: str) -> bool:
    assert process.stdin is not None
    try:
        os.write(process.stdin.fileno(), f"{order}\n".encode())
    except BrokenPipeError:
        return False
    return True


def _started() -> subprocess.Popen[bytes]:
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, "-I", "-S", reaper_process.__file__, str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
        start_new_session=True,  # Ctrl-C is for us
    )
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    return process


def _close(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
