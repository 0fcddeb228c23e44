"""One worker process, seen from outside: calls go in, answers come out, and it is killed when it
hangs.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import psutil

from palestra.core.credentials import without_secrets
from palestra.envs.serving.frames import CHUNK, Answer, Call, Frames, framed
from palestra.envs.serving.handles import CollateralFault, EnvFault, EnvTimeout
from palestra.envs.serving.reaper import Reaper
from palestra.envs.serving.reaper_process import VARIABLE
from palestra.envs.serving.sandbox import Sandbox, variables

LINGER_S = 5.0
"""How long a worker may take to close its environments when it is asked to leave."""

SIGNALLED = 128
"""As shells do, bubblewrap tells a death by a signal as an exit code above this."""

_starter = ThreadPoolExecutor(1, thread_name_prefix="worker-starter")
"""Linux lets a process die with the thread that started it.

This one lives as long as the program, unlike those that run event loops.
"""


@dataclass(eq=False, slots=True)
class _Pending:
    """A call that was not answered yet."""

    instance: int
    method: str
    deadline_s: float
    answer: asyncio.Future[Answer]
    """Cancelled where nobody waits for it any more."""


class WorkerProcess:
    """Plays calls in the order in which they were made. It begins one when it has answered the one
    before: no deadline counts earlier.

    All of it belongs to the event loop that made it, which may rest between two runs: what came
    meanwhile is read before anything is judged to be late.
    """

    def __init__(
        self,
        boot: Any,
        *,
        boot_s: float,
        reaper: Reaper,
        on_end: Callable[[WorkerProcess], None],
        keep: Sequence[str] = (),
        sandbox: Sandbox | None = None,
    ) -> None:
        """`keep`: secrets that it may know."""
        self.has_booted = False
        self.ended: str | None = None
        """Why there is no such process any more."""
        self.broken_by: int | None = None
        """The environment whose call has ended it, where that is known."""
        self._later: type[EnvFault] = CollateralFault
        """What calls end in that are made when there is no such process any more."""
        self.memory_mb = 0.0
        """When it was last measured, its children included."""
        self.open_files = 0
        self._last: _Pending | None = None
        """The call that was being played when it fell silent."""
        self._loop = asyncio.get_running_loop()
        self._on_end = on_end
        self._calls: dict[int, _Pending] = {}
        self._made = 0
        self._under_way = 0
        """Calls that were sent and not answered."""
        self._since = 0.0
        """When the worker was last heard of, or was sent a call while it had none."""
        self._outbox: list[bytes] = []
        self._unsent = b""
        self._frames, self._decoder = Frames(), msgspec.msgpack.Decoder(Answer)
        self._log = _Log()
        self._is_sandboxed = sandbox is not None
        self._socket, theirs = socket.socketpair()
        with theirs:
            mark = secrets.token_hex(8)
            self._process = _starter.submit(
                _start, theirs, self._log.file.fileno(), mark, keep, sandbox
            ).result()
        self._reaper = reaper
        reaper.watch(self.pid, mark)
        self._socket.setblocking(False)
        self._loop.add_reader(self._socket, self._read)
        self.call(0, "boot", boot, boot_s).add_done_callback(
            lambda answer: answer.exception()
        )  # the calls after it end with it

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def queue(self) -> int:
        return len(self._calls)

    def call(
        self, instance: int, method: str, argument: Any, deadline_s: float
    ) -> asyncio.Future[Answer]:
        """The answer to come. All that are made in one turn of the loop are sent at once."""
        answer: asyncio.Future[Answer] = self._loop.create_future()
        if self.ended is not None:
            answer.set_exception(self._later(self.ended))
            return answer
        try:
            message = framed(Call(self._made, instance, method, argument))
        except (ValueError, TypeError, OverflowError) as error:
            answer.set_exception(EnvFault(f"{method} cannot be sent: {error}"))
            return answer
        self._calls[self._made] = _Pending(instance, method, deadline_s, answer)
        self._made += 1
        if not self._outbox:
            self._loop.call_soon(self._send)
        self._outbox.append(message)
        return answer

    def look(self) -> None:
        """To be called many times a second: has it died, or does it hang?"""
        if self.ended is not None:
            return
        if self._process.poll() is not None:
            while self._read():
                pass
            self._await_death()
        elif self._is_late():
            self._read()  # where the loop itself was held up, the answer may be here
            if self._is_late():
                self._end_late()

    def trim_log(self) -> None:
        self._log.trim()

    def measure(self) -> None:
        """What has ended meanwhile, or may not be looked at, does not count."""
        memory = files = 0
        for pid in process_family(self.pid):
            with suppress(psutil.Error):
                process = psutil.Process(pid)
                memory += process.memory_info().rss
                files += process.num_fds()
        self.memory_mb, self.open_files = memory / 2**20, files

    async def leave(self, reason: str) -> None:
        """`end`, with time to close its environments if it is not in the middle of a call."""
        try:
            if self.ended is None and not self._calls:
                self._loop.remove_reader(self._socket)
                with suppress(OSError):  # it may have died just now
                    self._socket.shutdown(socket.SHUT_WR)
                await self._exit(LINGER_S)
        finally:
            self.end(reason, kind=EnvFault)
        await self._exit(LINGER_S)

    async def _exit(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while self._process.poll() is None and time.monotonic() < until:
            await asyncio.sleep(0.005)

    # what is said

    def _send(self) -> None:
        if self.ended is not None:
            return
        if self._under_way == 0:
            self._since = time.monotonic()
        self._under_way += len(self._outbox)
        blocked = bool(self._unsent)
        self._unsent += b"".join(self._outbox)
        self._outbox.clear()
        if not blocked:
            self._write()

    def _write(self) -> None:
        try:
            sent = self._socket.send(self._unsent)
        except BlockingIOError:
            sent = 0
        except OSError:  # it is gone: the reader will say how
            self._loop.remove_writer(self._socket)
            return
        self._unsent = self._unsent[sent:]
        if self._unsent:
            self._loop.add_writer(self._socket, self._write)
        else:
            self._loop.remove_writer(self._socket)

    def _read(self) -> bool:
        """Whether something was read."""
        if self.ended is not None:
            return False
        try:
            data = self._socket.recv(CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(self._socket)
            self._last = self._first()
            # its exit code is settled by now, if it is dying; without its socket it is of no use
            self._kill()
            self._await_death()
            return False
        self._since = time.monotonic()
        try:
            for body in self._frames.feed(data):
                if self.ended is None:
                    self._answered(self._decoder.decode(body))
        except (msgspec.DecodeError, ValueError, KeyError) as error:
            self.end(
                f"the worker was killed: it sent what is no answer ({error!r})",
                blamed=self._first(),
            )
            return False
        return True

    def _answered(self, answer: Answer) -> None:
        pending = self._calls.pop(answer.id)
        self._under_way -= 1
        if pending.method == "boot":
            self._booted(answer)
        if not pending.answer.done():
            pending.answer.set_result(answer)

    def _booted(self, answer: Answer) -> None:
        self.has_booted = answer.error is None
        if answer.error is not None:
            self.end(f"the worker cannot be used: {answer.error}", kind=EnvFault)

    # how it ends

    def _first(self) -> _Pending | None:
        """The call that is being played, if any: it was sent before all others that were not
        answered.
        """
        return next(iter(self._calls.values())) if self._under_way else None

    def _is_late(self) -> bool:
        return (
            self._under_way > 0
            and time.monotonic() - self._since > next(iter(self._calls.values())).deadline_s
        )

    def _end_late(self) -> None:
        hung = next(iter(self._calls.values()))
        words = self._log.last_words()
        fault = EnvTimeout(f"{hung.method} gave no answer within {hung.deadline_s:g} s{words}")
        if hung.method == "boot":  # everybody's call
            self.end(
                f"the worker did not start within {hung.deadline_s:g} s{words}", kind=EnvTimeout
            )
            return
        if not hung.answer.done():
            hung.answer.set_exception(fault)
        self.end(
            f"the worker was killed because another session's call hung ({fault})", blamed=hung
        )

    def _await_death(self) -> None:
        if self.ended is not None:
            return
        if self._process.poll() is None:
            self._loop.call_later(0.005, self._await_death)
            return
        if reason := self._reaper.reason(
            self.pid
        ):  # whoever has started all those processes, it was not in one call
            self.end(reason)
        elif not self.has_booted:
            self.end(self._death(), kind=EnvFault)
        else:
            self.end(self._death(), blamed=self._last)

    def _death(self) -> str:
        code = self._process.returncode
        if self._is_sandboxed and code > SIGNALLED:
            code = SIGNALLED - code
        how = (
            f"by signal {-code} ({signal.strsignal(-code)})"
            if code < 0
            else f"with exit code {code}"
        )
        return f"the worker died {how}{self._log.last_words()}"

    def end(
        self, reason: str, *, kind: type[EnvFault] = CollateralFault, blamed: _Pending | None = None
    ) -> None:
        """Kill it and all that it has started: what we know of now, and the reaper whatever is
        left.

        Calls that were not answered end in a fault that says why: of this kind, but for the one
        that is to blame for it.
        """
        if self.ended is not None:
            return
        self.ended, self._later = reason, kind
        self.broken_by = blamed.instance if blamed is not None else None
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        self._socket.close()
        self._kill()
        self._reaper.end(self.pid)
        self._log.file.close()
        calls, self._calls = self._calls, {}
        for pending in calls.values():
            if not pending.answer.done():
                pending.answer.set_exception((EnvFault if pending is blamed else kind)(reason))
        self._on_end(self)
        self._bury()

    def _kill(self) -> None:
        """All that descend from it, and if it is dead already at least those of its process group.

        The group is halted first: who is halted starts nobody else meanwhile.
        """
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGSTOP)
        if self._process.returncode is None:
            for pid in process_family(self.pid):
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def _bury(self) -> None:
        if self._process.poll() is None:
            self._loop.call_later(0.01, self._bury)


def _start(
    connection: socket.socket, log: int, mark: str, keep: Sequence[str], sandbox: Sandbox | None
) -> subprocess.Popen[bytes]:
    parent = (
        os.getpid() if sandbox is None else 0
    )  # a sandbox ends with us by itself, and cannot see who we are
    command = [
        sys.executable,
        "-u",
        "-X",
        "faulthandler",
        "-m",
        "palestra.envs.serving.worker",
        str(connection.fileno()),
        str(parent),
    ]
    known = without_secrets(keep) if sandbox is None else variables(keep)
    return subprocess.Popen(  # noqa: S603
        command if sandbox is None else sandbox.command(command),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        pass_fds=[connection.fileno()],
        start_new_session=True,
        env={
            **known,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            VARIABLE: mark,
        },
    )


class _Log:
    """What a worker prints.

    A file, so that nobody has to read for the worker to go on; kept short.
    """

    LARGEST = 1024 * 1024
    LINES, TAIL = 5, 4096

    def __init__(self) -> None:
        self.file = tempfile.TemporaryFile()  # noqa: SIM115  closed when the worker ends
        descriptor = self.file.fileno()
        fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | os.O_APPEND)

    def trim(self) -> None:
        """Forget all but the end."""
        if os.fstat(self.file.fileno()).st_size > self.LARGEST:
            tail = self._tail()
            os.ftruncate(self.file.fileno(), 0)
            os.write(self.file.fileno(), tail)

    def last_words(self) -> str:
        lines = self._tail().decode(errors="replace").strip().splitlines()[-self.LINES :]
        return ": " + " | ".join(lines) if lines else ""

    def _tail(self) -> bytes:
        size = os.fstat(self.file.fileno()).st_size
        return os.pread(self.file.fileno(), self.TAIL, max(0, size - self.TAIL))


def process_family(pid: int) -> list[int]:
    """A process and all that descend from it; where there is no /proc, the process alone.

    psutil's `children` reads the parent of every process of the machine. With 115 of them that
    takes 3 ms and with 314 of them 8 ms, for each worker and twice a second, in the event loop in
    which episodes are played. The kernel's own list takes 0.02 ms.
    """
    family, waiting = [], [pid]
    while waiting:
        family.append(waiting.pop())
        with suppress(OSError):
            for task in os.listdir(f"/proc/{family[-1]}/task"):
                children = Path(f"/proc/{family[-1]}/task/{task}/children").read_text()
                waiting += map(int, children.split())
    return family
