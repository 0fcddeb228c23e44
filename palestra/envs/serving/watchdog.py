"""The watchdog of inline environments, as used by the process that runs them."""

from __future__ import annotations

import itertools
import logging
import mmap
import os
import subprocess
import sys
import tempfile
from functools import lru_cache

from palestra.core import early_interrupt
from palestra.envs.serving import watchdog_process

log = logging.getLogger(__name__)


class Watchdog:
    """The memory from which the watchdog process reads the current call.

    The process is started by the first call of a program that enables it, and ends with the
    program.
    """

    def __init__(self) -> None:
        self.is_wanted = False
        """Set only by our own programs: a library must not kill its caller's process."""
        self.grace_s = watchdog_process.GRACE_S
        self._memory: mmap.mmap | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = itertools.count(1)
        self._words = b""
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """A forked child has the same memory, and must not write into it."""
        self.is_wanted, self._memory = False, None

    def begins(self, name: str, method: str, seconds: float) -> None:
        if self._memory is None:
            if not self.is_wanted:
                return
            self._memory = self._start()
        words = _words(name, method)
        if words is not self._words:
            self._memory[watchdog_process.HEAD.size :] = self._words = words
        # The head is written last: it tells the watchdog that a new call has begun.
        watchdog_process.HEAD.pack_into(self._memory, 0, next(self._numbers), seconds)

    def ends(self) -> None:
        if self._memory is not None:
            watchdog_process.HEAD.pack_into(self._memory, 0, 0, 0.0)

    def _start(self) -> mmap.mmap:
        """Start the watchdog. If no process can be started, environments run without one."""
        with tempfile.TemporaryFile() as file:
            file.truncate(watchdog_process.SIZE)
            memory = mmap.mmap(file.fileno(), watchdog_process.SIZE)
            command = [
                sys.executable,
                "-I",
                "-S",
                watchdog_process.__file__,
                str(os.getpid()),
                str(file.fileno()),
                str(self.grace_s),
            ]
            try:
                self._process = subprocess.Popen(  # noqa: S603
                    command, stdin=subprocess.PIPE, pass_fds=[file.fileno()]
                )
            except OSError as error:
                log.warning("nobody watches over environments that hang in C: %s", error)
        return memory


@lru_cache(1000)
def _words(name: str, method: str) -> bytes:
    room = watchdog_process.SIZE - watchdog_process.HEAD.size
    return f"{name}: {method}".encode(errors="replace")[:room].ljust(room, b"\0")


watchdog = Watchdog()
# A person's Ctrl-C while an environment imports something is nothing that the environment did.
early_interrupt.before_exit.append(watchdog.ends)
