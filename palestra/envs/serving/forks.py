"""Children that an environment's code forks: they have a copy of all that plays it, and must never
go on as if they were that process.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import threading
from collections.abc import Iterator, Set
from contextlib import contextmanager, suppress
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
"""How long a child may take to say who it is: the first thing it does."""
OWN_CODE = ("subprocess", "asyncio.subprocess")
"""Modules whose forks run another program at once, and so return to nobody. multiprocessing's
children run one function and end.
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
    """Of the process that made it.

    A child inherits the call, and is known by having another pid.
    """
    is_refusing: bool
    may_exit: bool
    outer: Call | None
    has_forked: bool = False
    """A child was made although the call refuses them. It has ended already."""


class _State(threading.local):
    """A fork copies only the thread that asks for it, so no other thread's calls can come back in a
    child.
    """

    call: Call | None = None
    fork: str = ""
    """What the fork is that is under way in this thread: "refused", "own code", "other"; empty
    where it does not concern us.
    """
    is_main_thread = False
    report: tuple[int, int] = (-1, -1)
    """A pipe on which a child that is refused says who it is."""
    mask: Set[int] = frozenset()
    """Of the signals that were blocked before the fork."""


_here = _State()


@contextmanager
def contained(*, refusing: bool = False, may_exit: bool = False) -> Iterator[Call]:
    """Around a call of an environment's code: a child that is forked in it ends where the call
    does, and says nothing.

    `refusing`: a child ends when it is born, unless it runs code of its own (`subprocess`,
    `multiprocessing`), and the parent gets `Forked`. So nothing is ever left over of it, and a loop
    of forks has one child at a time.

    `may_exit`: `os._exit` ends this process, as it does in a worker. Else it raises `Exited`.
    """
    outer = _here.call if _here.call is not None and _here.call.pid == os.getpid() else None
    call = Call(os.getpid(), refusing or (outer is not None and outer.is_refusing), may_exit, outer)
    _ended.open()
    _ended.bury()
    _here.call = call
    try:
        yield call
    except Exception as error:
        if call.has_forked:
            raise Forked from error
        raise
    finally:
        if os.getpid() != call.pid:
            _end_child()
        _here.call = outer
    if call.has_forked:
        raise Forked


def die_with_parent(parent: int) -> None:
    """Let the kernel kill this process when the thread that started it is gone (Linux)."""
    if sys.platform == "linux":
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(CHILD_EXIT)


class _Ended:
    """A pipe on which a process hears of the children that came back and were ended: nobody else
    will wait for them.
    """

    def __init__(self) -> None:
        self.pid = 0
        self._reader = self._writer = -1
        self._waiting: list[int] = []

    def open(self) -> None:
        """Each process has its own: what its parent had belongs to the parent."""
        if self.pid != os.getpid():
            reader, writer = os.pipe()
            for end in (reader, writer):
                os.set_blocking(end, False)
            self.pid, self._reader, self._writer, self._waiting = os.getpid(), reader, writer, []

    def say(self) -> None:
        """In the child, as its last word."""
        with suppress(OSError):
            os.write(self._writer, os.getpid().to_bytes(4, "little"))

    def bury(self) -> None:
        with suppress(BlockingIOError):
            said = os.read(self._reader, 4096)
            self._waiting += [
                int.from_bytes(said[at : at + 4], "little") for at in range(0, len(said), 4)
            ]
        self._waiting = [pid for pid in self._waiting if _is_alive(pid)]


def _is_alive(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == 0
    except ChildProcessError:  # somebody has waited for it, or it is a grandchild
        return False


_ended = _Ended()


def _end_child() -> None:
    """Without flushing what the parent has buffered, and without anything that is to be done at
    exit: all that is the parent's.
    """
    _ended.say()
    os._exit(CHILD_EXIT)


def _runs_own_code(caller: FrameType) -> bool:
    module = caller.f_globals.get("__name__", "")
    return module in OWN_CODE or module.endswith(
        "popen_fork"
    )  # of multiprocessing, and of the packages made after it


def _before() -> None:
    call = _here.call
    if call is None or call.pid != os.getpid():
        _here.fork = ""
    elif _runs_own_code(sys._getframe(1)):
        _here.fork = "own code"
    else:
        _here.fork = "refused" if call.is_refusing else "other"
        _here.is_main_thread = threading.current_thread() is threading.main_thread()
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
    if (
        _here.fork == "other" and _here.is_main_thread
    ):  # another thread may end long before its process
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
        signal.pthread_sigmask(signal.SIG_SETMASK, _here.mask)


def _reported(reader: int, writer: int) -> int:
    """The child that has ended when it was born, buried; 0 where there was none."""
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
    """A child does not answer for the run: SIGTERM ends it, and the pipe that tells the run of its
    signals is not told of the child's.

    They are blocked while it is forked: multiprocessing may end a child that has not come to this.
    """
    with suppress(ValueError):
        signal.set_wakeup_fd(-1)
    if callable(signal.getsignal(signal.SIGINT)):
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if callable(signal.getsignal(signal.SIGTERM)):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


_exit = os._exit


def _guarded_exit(status: int) -> NoReturn:
    """`os._exit` in a call of an environment's code is an exception there; a child that was forked
    in it may end as it likes.
    """
    call = _here.call
    if call is not None and call.pid == os.getpid() and not call.may_exit:
        raise Exited(status)
    _exit(status)


os._exit = _guarded_exit
os.register_at_fork(before=_before, after_in_child=_in_child, after_in_parent=_in_parent)
