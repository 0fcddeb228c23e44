"""Ctrl-C and SIGTERM: a run stops soon, at a point where it can be resumed."""

from __future__ import annotations

import math
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

OVER = 0
"""No signal has this number."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)
UNDER_WAY_S = 5.0
"""How long an operation may take to finish after a signal: an update of the weights, say."""
SAME_S = 0.5
"""Signals within this time count as one: `timeout` and others send theirs to a process and to its
group.
"""
CLOSING_S = 3.0
"""How long environments and trackers may take to close after everything is saved."""


class Interrupted(KeyboardInterrupt):
    """The run stops. A KeyboardInterrupt, since event loops let these through."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


@contextmanager
def told_apart() -> Iterator[None]:
    """Around code in which Ctrl-C raises `Interrupted`. A plain KeyboardInterrupt then comes from
    the code itself.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _interrupt(number: int, _: FrameType | None) -> None:
    raise Interrupted(number)


ENDING_S = 10.0
"""How long threads and exit handlers of libraries may delay the end of the program."""


def end_in_time(code: int, seconds: float = ENDING_S) -> None:
    """End the process with this code after `seconds`, even if the interpreter still waits for
    threads or exit handlers.
    """

    def end() -> None:
        time.sleep(seconds)
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        os.write(
            2,
            f"palestra: a thread or an exit handler did not end within {seconds:g} s and "
            "was left behind\n".encode(),
        )
        os._exit(code)

    threading.Thread(target=end, name="end", daemon=True).start()


class Interrupts:
    """Signal handling: a signal raises `Interrupted`, at once or at the end of an operation that
    must be complete.

    Does nothing until `installed`. If an operation takes too long, the process ends with what is on
    disk. A second signal ends it at once.
    """

    def __init__(self, exit_message: Callable[[], str] = str) -> None:
        self.exit_message = exit_message
        """The message that is printed when the process ends at once."""
        self.may_end_process = True
        """False in a program or a notebook of the user's, which continues after the interrupt: a
        second signal then raises `Interrupted` at once, unless a checkpoint is being written.
        """
        self.together: Callable[[int], int] | None = None
        """With several ranks: a collective call that returns the signal that any of them received,
        so that they stop together.
        """
        self._asked = 0
        self._is_held = self._is_saving = False
        self._deadline = math.inf

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Handle signals in the block. Does nothing in other threads, which receive none."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        before = {number: signal.signal(number, self._on_signal) for number in SIGNALS}
        wakeup = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        watcher = threading.Thread(
            target=self._watch, args=(reader,), name="interrupts", daemon=True
        )
        watcher.start()
        try:
            yield
        finally:
            # After a signal, the watcher stays: it ends the process if closing takes too long.
            if not self._asked or not self.may_end_process:
                signal.set_wakeup_fd(wakeup)
                for number, handler in before.items():
                    signal.signal(number, handler)
                os.write(writer, bytes([OVER]))
                watcher.join()
                os.close(reader)
                os.close(writer)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Around an operation that must be complete, except for parts that are `allowed` to be
        abandoned.
        """
        with self._set(True):
            yield

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Around an operation that can be abandoned at any point; with several ranks only before it
        begins, since none can continue alone.
        """
        if self.together is not None:
            agreed = self.together(self._asked)
            # A signal that came during the call is passed on to the other ranks the next time.
            self._asked = self._asked or agreed
            with self._set(not agreed):
                yield
            return
        with self._set(False):
            yield

    @contextmanager
    def _set(self, is_held: bool) -> Iterator[None]:
        before, self._is_held = self._is_held, is_held
        try:
            self.check()
            yield
        finally:
            self._is_held = before
        self.check()

    def check(self) -> None:
        if self._asked and not self._is_held:
            raise Interrupted(self._asked)

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Around saving, which is never abandoned, however long it takes. After it, a stopping run
        has a few seconds to close.
        """
        with self.held():
            self._is_saving = True
            try:
                yield
            finally:
                self._deadline, self._is_saving = time.monotonic() + CLOSING_S, False

    def ask(self, number: int) -> None:
        """Act as if the signal had come, at the next check. May be called from any thread."""
        self._asked = self._asked or number

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if not self._asked:
            self._asked = number
            self.check()
        elif not self.may_end_process and not self._is_saving:
            raise Interrupted(number)

    def _watch(self, reader: int) -> None:
        """Ends the process after a second signal or a missed deadline. Runs in a thread that gets
        signals through a pipe, since Python's handlers wait while the main thread is in a library.
        """
        count, number, first = 0, 0, 0.0
        while True:
            ready, _, _ = select.select([reader], [], [], 0.1 if count else None)
            for byte in os.read(reader, 64) if ready else b"":
                if byte == OVER:
                    return
                if byte in SIGNALS and not (count and time.monotonic() - first < SAME_S):
                    count, number, first = count + 1, byte, time.monotonic()
                    self._deadline = first + UNDER_WAY_S
            is_late = count and not self._is_saving and time.monotonic() > self._deadline
            if self.may_end_process and (count > 1 or is_late):
                self._leave(number)

    def _leave(self, number: int) -> None:
        cursor = "\x1b[?25h" if sys.stderr.isatty() else ""  # the display may have hidden it
        os.write(2, f"{cursor}palestra: {self.exit_message()}\n".encode())
        os._exit(128 + number)
