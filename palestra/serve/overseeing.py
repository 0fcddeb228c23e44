"""The overseer of inline environments, seen from the process that plays them."""

from __future__ import annotations

import itertools
import mmap
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache

from palestra.serve import overseer


class Overseeing:
    """Where the overseer reads what is called. Without `overseen` nobody reads it, and nothing is written."""

    def __init__(self) -> None:
        self._memory: mmap.mmap | None = None
        self._numbers = itertools.count(1)
        self._pid = 0
        """A forked child has the same memory, and must not write into it."""

    @contextmanager
    def overseen(self, grace_s: float = overseer.GRACE_S) -> Iterator[None]:
        """In here, a call that never returns ends this process. Where no process can be started, nobody looks."""
        if self._memory is not None:
            yield
            return
        with tempfile.TemporaryFile() as file:
            file.truncate(overseer.SIZE)
            memory = mmap.mmap(file.fileno(), overseer.SIZE)
            command = [sys.executable, "-I", "-S", overseer.__file__, str(os.getpid()), str(file.fileno()), str(grace_s)]
            try:
                process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[file.fileno()])  # noqa: S603
            except OSError:
                yield
                return
        self._memory, self._pid = memory, os.getpid()
        try:
            yield
        finally:
            self._memory = None
            process.kill()
            with suppress(ChildProcessError):
                process.wait()
            memory.close()

    def begins(self, name: str, method: str, seconds: float) -> None:
        memory = self._memory
        if memory is not None and self._pid == os.getpid():
            memory[:] = overseer.HEAD.pack(next(self._numbers), seconds) + _words(name, method)

    def ends(self) -> None:
        if self._memory is not None and self._pid == os.getpid():
            self._memory[:8] = bytes(8)


@lru_cache(1000)
def _words(name: str, method: str) -> bytes:
    room = overseer.SIZE - overseer.HEAD.size
    return f"{name}: {method}".encode(errors="replace")[:room].ljust(room, b"\0")


overseeing = Overseeing()
