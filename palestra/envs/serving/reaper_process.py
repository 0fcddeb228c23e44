"""`python reaper_process.py PARENT`: bounds the processes that workers may have, and ends those
that they leave behind.

It outlives its parent, however that ends, and knows a worker's descendants also where they have
left its process group and its session: they inherit a mark in their environment. It is told on its
standard input, a line each:

    watch PID MARK MOST    a worker, with the mark that its environment has, and how many processes
    it may have, itself included
    end PID                kill all that is left of it

and says on its standard output `over PID` before it kills a worker that has more. When its input
ends, or its parent, it kills all that it watches, and leaves. It imports nothing but the standard
library, and little of that: with `-I -S` it starts in 10 ms of processor time, and with psutil, for
which it would need the installed packages, in 27 ms. Where there is no /proc, it knows a worker's
process group and nothing else.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

VARIABLE = "PALESTRA_WORKER"
"""Of a worker's environment: its mark."""
LOOK_EVERY_MS = 20
"""Reading one number tells whether any process was started since.

Only then is there something to look at.
"""
IDLE_MS = 1000
"""For orders, while nobody is watched."""
LOOK_ANEW_S = 5.0
"""All processes are looked at again: in the middle of an `exec` one has no environment, and numbers
are used again.
"""
KILL_S = 5.0
"""For what cannot be killed at once, such as a process that waits for a disk."""


class Process(NamedTuple):
    """What the kernel says of one."""

    parent: int
    session: int
    started: int
    """With its number, this tells it from all others."""
    is_dead: bool
    """And not yet waited for."""


class Family:
    """A worker and all that descend from it."""

    def __init__(self, worker: int, mark: str, most: int) -> None:
        self.worker, self.mark, self.most = worker, mark.encode(), most
        leader = _look_at(worker)
        self.members = {worker: leader.started} if leader else {}
        """When each of them was started, by number."""
        self.is_over = False
        """It has had more members than it may."""

    def add(self, pid: int, process: Process) -> None:
        """At the first one too many its process group is killed, which no fork escapes: to look at
        all of them takes longer than that.
        """
        self.members[pid] = process.started
        if len(self.members) > self.most and not self.is_over:
            self.is_over = True
            _say(f"over {self.worker}")
            if (
                process.session == self.worker
            ):  # so there is such a session, and nobody else has got its number
                self.kill_group()

    def kill_group(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.worker, signal.SIGKILL)


class ProcessReaper:
    def __init__(self) -> None:
        self.families: dict[int, Family] = {}
        self._seen: set[int] = set()
        self._newest = ""
        self._anew = 0.0

    def watch(self, worker: int, mark: str, most: int) -> None:
        self.families[worker] = Family(worker, mark, most)
        self._anew = 0.0

    def look(self) -> None:
        """Has anybody grown too large?"""
        newest = _newest_process()
        is_time = time.monotonic() > self._anew + LOOK_ANEW_S
        if not self.families or (newest == self._newest and not is_time):
            return
        self._newest = newest
        self._find(anew=is_time)
        for family in [each for each in self.families.values() if each.is_over]:
            self.end([family.worker])

    def end(self, workers: Iterable[int]) -> None:
        """Kill all that is left of these.

        They are halted first: who is halted starts nobody else.
        """
        ending = [family for worker in workers if (family := self.families.get(worker))]
        until = time.monotonic() + KILL_S
        halted: set[tuple[int, int]] = set()
        self._find(anew=True)
        while (found := _living(ending)) - halted:
            for pid, started in found - halted:
                _send(pid, started, signal.SIGSTOP)
            halted |= found
            self._find(anew=False)
        while (found := _living(ending)) and time.monotonic() < until:
            for pid, started in found:
                _send(pid, started, signal.SIGKILL)
            time.sleep(0.002)
            self._find(anew=False)
        for family in ending:
            if not self._seen:  # there is no /proc
                family.kill_group()
            del self.families[family.worker]

    def _find(self, *, anew: bool) -> None:
        """Who belongs to which family.

        Who was once a member stays one; others are looked at once, unless all are looked at `anew`.
        """
        now = _processes()
        if anew:
            self._seen, self._anew = set(), time.monotonic()
        owners: dict[int, Family] = {}
        for family in self.families.values():
            family.members = {pid: started for pid, started in family.members.items() if pid in now}
            owners |= dict.fromkeys(family.members, family)
        sessions = {
            family.worker: family for family in self.families.values()
        }  # also of a worker that is dead
        strangers: dict[int, Process] = {}
        for pid in sorted(now - self._seen):
            process = _look_at(pid)
            if process is None:
                continue
            owner = owners.get(pid)
            if (
                owner is not None and owner.members[pid] != process.started
            ):  # another process has got the number
                del owner.members[pid], owners[pid]
                owner = None
            owner = owner or sessions.get(process.session) or owners.get(process.parent)
            if owner is None:
                strangers[pid] = process
            else:
                owner.add(pid, process)
                owners[pid] = owner
        self._seen = now
        self._find_escaped(strangers, owners)

    def _find_escaped(self, strangers: dict[int, Process], owners: dict[int, Family]) -> None:
        """Those that have left their session and lost their parent: by their marks, and then
        whoever belongs to them.
        """
        marks = {family.mark: family for family in self.families.values()}
        found = {pid: owner for pid in strangers if (owner := marks.get(_mark_of(pid)))}
        while found:
            for pid, owner in found.items():
                owner.add(pid, strangers.pop(pid))
            owners |= found
            found = {
                pid: owner
                for pid, each in strangers.items()
                if (owner := owners.get(each.parent) or owners.get(each.session))
            }


def _newest_process() -> str:
    """The number that was given out last; what is not there cannot tell."""
    try:
        with open("/proc/loadavg") as file:
            return file.read().rsplit(None, 1)[-1]
    except OSError:
        return ""


def _processes() -> set[int]:
    try:
        return {int(name) for name in os.listdir("/proc") if name.isdecimal()}
    except OSError:
        return set()


def _look_at(pid: int) -> Process | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b") ")[2].split()
    except OSError:
        return None
    return (
        Process(int(fields[1]), int(fields[3]), int(fields[19]), fields[0] in (b"Z", b"X"))
        if len(fields) > 19
        else None
    )


def _mark_of(pid: int) -> bytes:
    """What it has inherited; nothing where it is somebody else's."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            _, _, rest = (b"\0" + file.read()).partition(b"\0" + VARIABLE.encode() + b"=")
    except OSError:
        return b""
    return rest.partition(b"\0")[0]


def _living(families: Iterable[Family]) -> set[tuple[int, int]]:
    """Those that can still do something."""
    members = [(pid, started) for family in families for pid, started in family.members.items()]
    return {
        (pid, started)
        for pid, started in members
        if (process := _look_at(pid)) and process.started == started and not process.is_dead
    }


def _send(pid: int, started: int, number: signal.Signals) -> None:
    """Unless another process has its number by now."""
    process = _look_at(pid)
    if process is not None and process.started == started:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _say(line: str) -> None:
    with suppress(OSError):  # nobody may be there to hear it
        os.write(1, f"{line}\n".encode())


def main() -> None:
    parent, reaper, unread = int(sys.argv[1]), ProcessReaper(), b""
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    with suppress(PermissionError):  # among hundreds that want the processor, it has to be quick
        os.setpriority(os.PRIO_PROCESS, 0, -10)
    orders = select.poll()
    orders.register(0, select.POLLIN)
    while True:
        is_orphan = os.getppid() != parent  # its last orders may still be unread
        if orders.poll(0 if is_orphan else LOOK_EVERY_MS if reaper.families else IDLE_MS):
            data = os.read(0, 65536)
            if not data:
                break
            *lines, unread = (unread + data).split(b"\n")
            _obey(reaper, [line.decode().split() for line in lines])
        elif is_orphan:
            break
        reaper.look()
    reaper.end(list(reaper.families))


def _obey(reaper: ProcessReaper, orders: list[list[str]]) -> None:
    """All that were given together: one look at the machine is enough for all who are to end."""
    ending: list[int] = []
    for what, pid, *rest in orders:
        if what == "watch":
            reaper.watch(int(pid), rest[0], int(rest[1]))
        else:
            ending.append(int(pid))
    if ending:
        reaper.end(ending)


if __name__ == "__main__":
    main()
