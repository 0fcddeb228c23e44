"""Handles child processes that an environment's code forks: a child is a copy of the whole program
and must never continue as if it were the parent.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import threading
from collections.abc import Set
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType
from typing import NoReturn

from palestra.core.errors import UserError

PR_SET_PDEATHSIG = 1
FORKED = (
    'the environment forked the process that plays it (os.fork); set isolation = "process", '
    "which gives it one of its own"
)
CHILD_EXIT = 1
BURIAL_MS = 1000
"""The time limit for a child to report its pid, which is the first thing that it does."""
OWN_CODE = ("subprocess", "asyncio.subprocess")
"""Modules whose forked children run another program at once and never return to the caller. The
children of multiprocessing run one function and end.
"""

SIGNALS = (signal.SIGINT, signal.SIGTERM)

_libc = ctypes.CDLL(None)


class Forked(UserError, RuntimeError):
    """Code that must not fork did."""

    def __init__(self) -> None:
        super().__init__(FORKED)


class Exited(RuntimeError):
    """Code that must not end the process tried to."""

    def __init__(self, code: object) -> None:
        super().__init__(
            f"the environment called os._exit({code!r}), which would have ended the "
            "process that plays it"
        )


@dataclass(eq=False, slots=True)
class Call:
    """A call of an environment's code that is under way."""

    pid: int
    """The process that made the call.

    A child inherits the call, and is recognized by its different pid.
    """
    is_refusing: bool
    may_exit: bool
    outer: Call | None
    has_forked: bool = False
    """A child was forked although the call refuses it. It has already ended."""


class _State(threading.local):
    """Per thread: a fork copies only the forking thread, so no other thread's call can return in a
    child.
    """

    call: Call | None = None
    fork: str = ""
    """The kind of the fork in progress in this thread: "refused", "own code", "other", or empty
    outside of environment code.
    """
    is_main_thread = False
    report: tuple[int, int] = (-1, -1)
    """The pipe through which a refused child reports its pid."""
    mask: Set[int] = frozenset()
    """The signals that were blocked before the fork."""


_here = _State()


class contained:  # noqa: N801  used as a function; a generator would cost a microsecond per call
    """Guards a call of an environment's code: a child that is forked in it ends silently where the
    call ends.

    `refusing`: a child ends immediately, unless it runs code of its own (`subprocess`,
    `multiprocessing`), and the parent gets `Forked`. No child is left over, and a loop of forks has
    one child at a time.

    `may_exit`: `os._exit` ends this process, as in a worker. Otherwise it raises `Exited`.
    """

    __slots__ = ("_call", "_may_exit", "_refusing")

    def __init__(self, *, refusing: bool = False, may_exit: bool = False) -> None:
        self._refusing, self._may_exit = refusing, may_exit

    def __enter__(self) -> Call:
        # In a forked child, the inherited call belongs to the parent.
        pid, outer = os.getpid(), _here.call
        if outer is not None and outer.pid != pid:
            outer = None
        is_refusing = self._refusing or (outer is not None and outer.is_refusing)
        self._call = Call(pid, is_refusing, self._may_exit, outer)
        _ended.open(pid)
        _ended.bury()
        _here.call = self._call
        return self._call

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        # A child that the environment forked has come back out of the call: it ends here, before it
        # can continue as a second trainer.
        if os.getpid() != self._call.pid:
            _end_child()
        _here.call = self._call.outer
        if self._call.has_forked and (error is None or isinstance(error, Exception)):
            raise Forked from error


def die_with_parent(parent: int) -> None:
    """Let the kernel kill this process when the thread that started it is gone (Linux)."""
    if sys.platform == "linux":
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        # The parent may have ended before prctl took effect.
        if os.getppid() != parent:
            os._exit(CHILD_EXIT)


class _Ended:
    """A pipe through which ended children report their pids: nothing else waits for them."""

    def __init__(self) -> None:
        self.pid = 0
        self.is_used = False
        """Whether there was a fork: without one, every call would read an empty pipe."""
        self._reader = self._writer = -1
        self._waiting: list[int] = []

    def open(self, pid: int) -> None:
        """Open a pipe for this process. An inherited one belongs to the parent."""
        if self.pid != pid:
            reader, writer = os.pipe()
            for end in (reader, writer):
                os.set_blocking(end, False)
            self.pid, self._reader, self._writer, self._waiting = pid, reader, writer, []
            self.is_used = False

    def say(self) -> None:
        """Report the end of this child."""
        with suppress(OSError):
            os.write(self._writer, os.getpid().to_bytes(4, "little"))

    def bury(self) -> None:
        if not self.is_used:
            return
        with suppress(BlockingIOError):
            said = os.read(self._reader, 4096)
            # Writes of 4 bytes to a pipe are atomic, so pids are never interleaved.
            for at in range(0, len(said), 4):
                self._waiting.append(int.from_bytes(said[at : at + 4], "little"))
        self._waiting = [pid for pid in self._waiting if _is_alive(pid)]


def _is_alive(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == 0
    except ChildProcessError:  # somebody has waited for it, or it is a grandchild
        return False


_ended = _Ended()


def _end_child() -> None:
    """Exit without flushing buffers or running exit handlers, which belong to the parent."""
    _ended.say()
    os._exit(CHILD_EXIT)


def _runs_own_code(caller: FrameType) -> bool:
    module = caller.f_globals.get("__name__", "")
    # "popen_fork": multiprocessing and the packages that copy its structure.
    return module in OWN_CODE or module.endswith("popen_fork")


def _before() -> None:
    call = _here.call
    if call is None or call.pid != os.getpid():
        _here.fork = ""
    elif _runs_own_code(sys._getframe(1)):
        _here.fork = "own code"
    else:
        _here.fork = "refused" if call.is_refusing else "other"
        _here.is_main_thread = threading.current_thread() is threading.main_thread()
    # Blocked until the child has reset its handlers: a signal would otherwise run the trainer's
    # handlers in the child.
    if _here.fork:
        _here.mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    if _here.fork == "refused":
        _here.report = os.pipe()


def _in_child() -> None:
    if not _here.fork:
        return
    if _here.fork == "refused":
        with suppress(OSError):
            os.write(_here.report[1], os.getpid().to_bytes(4, "little"))
        os._exit(CHILD_EXIT)
    assert _here.call is not None
    _forget_signals()
    signal.pthread_sigmask(signal.SIG_SETMASK, _here.mask)
    # The kernel's signal is bound to the forking thread, which may end before the process does.
    if _here.fork == "other" and _here.is_main_thread:
        die_with_parent(_here.call.pid)


def _in_parent() -> None:
    fork, _here.fork = _here.fork, ""
    if fork == "refused":
        pid = _reported(*_here.report)
        call = _here.call if pid else None  # there is no child where the system had no room for one
        while call is not None:
            call.has_forked = True
            call = call.outer
    if fork:
        _ended.is_used = True
        signal.pthread_sigmask(signal.SIG_SETMASK, _here.mask)


def _reported(reader: int, writer: int) -> int:
    """The pid of the refused child, after waiting for it; 0 if there was none."""
    os.close(writer)
    try:
        poll = select.poll()
        poll.register(reader, select.POLLIN)
        pid = int.from_bytes(os.read(reader, 4), "little") if poll.poll(BURIAL_MS) else 0
    finally:
        os.close(reader)
    if pid:
        os.waitpid(pid, 0)
    return pid


def _forget_signals() -> None:
    """Reset a child's signal handling: SIGTERM ends it, and its signals do not reach the run's
    wakeup pipe.

    Signals are blocked during the fork, because multiprocessing may terminate a child that has not
    got here.
    """
    with suppress(ValueError):
        signal.set_wakeup_fd(-1)
    if callable(signal.getsignal(signal.SIGINT)):
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if callable(signal.getsignal(signal.SIGTERM)):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


_exit = os._exit


def _guarded_exit(status: int) -> NoReturn:
    """`os._exit` in a call of an environment's code raises an exception; a fork may exit."""
    call = _here.call
    if call is not None and call.pid == os.getpid() and not call.may_exit:
        raise Exited(status)
    _exit(status)


os._exit = _guarded_exit
os.register_at_fork(before=_before, after_in_child=_in_child, after_in_parent=_in_parent)
