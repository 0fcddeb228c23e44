"""Ctrl-C before a command is ready for it.

The first seconds are imports, and what they have half done is not worth a traceback.
"""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

IMPORTING = "<frozen importlib._bootstrap"
_is_running = False
_exit = os._exit
"""The real one: environments' code gets another, which a Ctrl-C during its import must not call."""
before_exit: list[Callable[[], None]] = []
"""Called before the process ends."""


def install() -> None:
    """In a program of ours, before anything else is imported.

    Who has made us ignore Ctrl-C is obeyed.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _on_interrupt)


def leave_to_python() -> None:
    """For asyncio, which deals with Ctrl-C only where Python's own handler is in place."""
    if signal.getsignal(signal.SIGINT) is _on_interrupt:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def running() -> Iterator[None]:
    """Around the command, which ends in good order by itself."""
    global _is_running
    try:
        _is_running = True
        yield
    finally:
        _is_running = False


def _on_interrupt(number: int, frame: FrameType | None) -> None:
    """Not by an exception while modules are imported: libraries swallow it or take it for an error
    of their own.

    The exception tells a person's Ctrl-C from a KeyboardInterrupt that an environment raises.
    """
    if not _is_running or _imports(frame):
        for call in before_exit:
            call()
        _exit(128 + number)
    from palestra.core.interrupts import Interrupted  # not above: until now nothing is imported

    raise Interrupted(number)


def _imports(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith(IMPORTING):
            return True
        frame = frame.f_back
    return False
