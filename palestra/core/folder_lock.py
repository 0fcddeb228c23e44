"""One trainer for each run folder: a lock that ends with the trainer's process."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import socket
import stat
import time
from contextlib import suppress
from pathlib import Path

from palestra.core.errors import UserError
from palestra.core.files import CannotRead, CannotWrite, read_json

log = logging.getLogger(__name__)

MOST_BYTES = 4096
TAKEN = (errno.EAGAIN, errno.EACCES)
RETRY_S = 0.2


class FolderInUse(UserError):
    """Another process trains in the folder; the message says which."""


class FolderLock:
    """`flock` on a file in the folder and, so that deleting the file does not help, on the folder.

    The system releases both when the process ends, however it ends. The file's content only
    describes the holder.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.path = folder / name
        self._descriptors: list[int] = []

    def take(self, *, timeout_s: float = 0.0) -> None:
        """Raises FolderInUse if another process still holds the lock after `timeout_s`, and
        CannotWrite if the file cannot be created.
        """
        until = time.monotonic() + timeout_s
        while not self._is_taken_now():
            self.release()
            if time.monotonic() >= until:
                raise FolderInUse(
                    f"{self.folder}: is being trained already, by {self._holder()}; wait "
                    "for it, or stop it first"
                )
            time.sleep(RETRY_S)
        self._sign()

    def release(self) -> None:
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors.clear()
        _held.discard(self)

    def _is_taken_now(self) -> bool:
        self._descriptors.append(self._opened())
        self._descriptors.append(os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        _held.add(self)
        try:
            fcntl.flock(self._descriptors[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in TAKEN:
                return False
            log.warning(
                "%s: this file system has no locks (%s): nothing would notice a second "
                "trainer in this folder",
                self.folder,
                error.strerror,
            )
            return True
        if self.path.name != NAME:  # the folder's own lock is the launcher's
            return True
        try:
            fcntl.flock(self._descriptors[1], fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return error.errno not in TAKEN  # NFS locks files alone
        return True

    def _opened(self) -> int:
        flags = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | flags, 0o666)
        except OSError as error:
            # Another user's file, or a disk that has become read-only. It can still be locked.
            try:
                descriptor = os.open(self.path, os.O_RDONLY | flags)
            except OSError:
                raise CannotWrite(f"{self.path}: cannot be written: {error.strerror}") from error
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise CannotWrite(
                f"{self.path}: cannot be written: it is not a regular file; delete it"
            )
        return descriptor

    def _sign(self) -> None:
        """Describe the holder in the file. On a full disk this fails, and the lock holds anyway."""
        holder = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since": time.strftime("%Y-%m-%d %H:%M:%S"),
        }
        content = json.dumps(holder).encode() + b"\n"
        with suppress(OSError):
            os.pwrite(self._descriptors[0], content, 0)
            os.ftruncate(self._descriptors[0], len(content))

    def _holder(self) -> str:
        try:
            said = read_json(self.path, most_bytes=MOST_BYTES)
            pid, host, since = int(said["pid"]), str(said["host"])[:100], str(said["since"])[:30]
        except (CannotRead, KeyError, TypeError, ValueError, OverflowError):
            return "another process"
        return f"process {pid} on host {host!r} since {since}"


NAME, WRITERS_NAME = ".lock", ".lock-writer"
"""The command's lock, and that of the first of several workers, which may outlive the command for a
moment.
"""

_held: set[FolderLock] = set()


def _forget() -> None:
    """A forked process inherits the locks, and must not hold them after this process has ended."""
    for lock in list(_held):
        lock.release()


os.register_at_fork(after_in_child=_forget)
