"""The overseer of inline environments, seen from the process that plays them."""

from __future__ import annotations

import itertools
import logging
import mmap
import os
import subprocess
import sys
import tempfile
from functools import lru_cache

from palestra.serve import overseer

log = logging.getLogger(__name__)


class Overseeing:
    """Where the overseer reads what is called. It is started by the first call of a program that wants one, and ends with it."""

    def __init__(self) -> None:
        self.is_wanted = False
        """Only by programs of ours: who uses Palestra as a library may not like to be killed."""
        self.grace_s = overseer.GRACE_S
        self._memory: mmap.mmap | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = itertools.count(1)
        self._pid = 0
        """A forked child has the same memory, and must not write into it."""

    def begins(self, name: str, method: str, seconds: float) -> None:
        if self._memory is None:
            if not self.is_wanted:
                return
            self._memory = self._start()
        if self._pid == os.getpid():
            self._memory[:] = overseer.HEAD.pack(next(self._numbers), seconds) + _words(name, method)

    def ends(self) -> None:
        if self._memory is not None and self._pid == os.getpid():
            self._memory[:8] = bytes(8)

    def _start(self) -> mmap.mmap:
        """Where no process can be started, nobody looks."""
        self._pid = os.getpid()
        with tempfile.TemporaryFile() as file:
            file.truncate(overseer.SIZE)
            memory = mmap.mmap(file.fileno(), overseer.SIZE)
            command = [sys.executable, "-I", "-S", overseer.__file__, str(os.getpid()), str(file.fileno()), str(self.grace_s)]
            try:
                self._process = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[file.fileno()])  # noqa: S603
            except OSError as error:
                log.warning("nobody watches over environments that hang in C: %s", error)
        return memory


@lru_cache(1000)
def _words(name: str, method: str) -> bytes:
    room = overseer.SIZE - overseer.HEAD.size
    return f"{name}: {method}".encode(errors="replace")[:room].ljust(room, b"\0")


overseeing = Overseeing()
