"""`python -I -S watchdog_process.py PID FILE`: ends a process that an inline environment never lets
go of.

Code in C that keeps the interpreter cannot be interrupted from inside, not even by another thread.
So this is a process of its own. It reads from shared memory which call is under way, and counts its
own looks: a machine that was asleep makes nobody late.
"""

from __future__ import annotations

import mmap
import os
import select
import signal
import struct
import sys

HEAD = struct.Struct("<Qd")
"""The number of the call that is under way (0: none), and the seconds that it may take."""
SIZE = 512
"""Of the memory: behind the head stands what is called, in words."""
LOOK_EVERY_S = 0.25
GRACE_S = 10.0
"""More than the deadline: an environment that can be interrupted was interrupted long before."""
REMEDY = 'set isolation = "process", where it can be ended alone'


def main() -> None:
    parent, memory = int(sys.argv[1]), mmap.mmap(int(sys.argv[2]), SIZE, prot=mmap.PROT_READ)
    grace_s, seen, looks = float(sys.argv[3]), 0, 0
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the parent's: it leaves when it has ended
    while (
        os.getppid() == parent and not select.select([0], [], [], LOOK_EVERY_S)[0]
    ):  # a pipe that closes when the parent ends
        number, allowed_s = HEAD.unpack_from(memory)
        if number != seen or not number:
            seen, looks = number, 0
        elif not _is_stopped(parent):
            looks += 1
        if looks * LOOK_EVERY_S > allowed_s + grace_s:
            _say(
                f"{_what(memory)} does not return and cannot be interrupted (deadline_s = "
                f"{allowed_s:g}): the run is ended; {REMEDY}"
            )
            os.kill(parent, signal.SIGKILL)
            return
    if HEAD.unpack_from(memory)[0]:
        _say(
            f"the process ended in the middle of {_what(memory)}; if nobody has ended it, "
            f"the environment did: {REMEDY}"
        )


def _what(memory: mmap.mmap) -> str:
    return memory[HEAD.size : SIZE].rstrip(b"\0").decode(errors="replace")


def _is_stopped(pid: int) -> bool:
    """By Ctrl-Z or a debugger.

    Read by hand: `-I -S` leaves psutil and all other packages out of this process.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] in (b"T", b"t")
    except OSError:
        return False


def _say(words: str) -> None:
    cursor = "\x1b[?25h" if sys.stderr.isatty() else ""  # the display may have hidden it
    os.write(2, f"{cursor}palestra: {words}\n".encode())


if __name__ == "__main__":
    main()
