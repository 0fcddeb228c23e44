"""An environment that tries to leave its sandbox as it is told to.

Each attempt is bounded by itself, should the sandbox not hold it.
"""

import ctypes
import errno
import json
import mmap
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from palestra.core.types import Step, Task
from palestra.envs.base import Environment

NAME = "tests.hostile.escaping:Escaping"
MOST_PROCESSES = 200
MOST_MB = 1500
PTRACE_ATTACH, CLONE_NEWUSER, CLONE_NEWNS = 16, 0x10000000, 0x00020000

libc = ctypes.CDLL(None, use_errno=True)


class Escaping(Environment):
    """`step` takes `[order, argument, ...]` and says what came of it: "done ..." or the name of the
    error.
    """

    name = "escaping"

    def tasks(self, split):
        return [Task(self.name, split, "0")]

    def reset(self, task):
        return "try"

    def step(self, action):
        order, *arguments = json.loads(action)
        try:
            return Step(f"done {getattr(self, f'do_{order}')(*arguments)}")
        except OSError as error:
            return Step(errno.errorcode.get(error.errno, type(error).__name__))

    # the network

    def do_tcp(self, port):
        with socket.create_connection(("127.0.0.1", port), timeout=5) as sent:
            sent.sendall(b"escaped")

    def do_udp(self, port):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sent:
            sent.connect(("127.0.0.1", port))
            sent.send(b"escaped")
            time.sleep(0.1)
            sent.send(b"escaped")  # here it is told that nobody listens

    def do_unix(self, path):
        with socket.socket(socket.AF_UNIX) as sent:
            sent.connect(path.replace("@", "\0"))
            sent.sendall(b"escaped")

    # other processes

    def do_processes(self):
        return sorted(
            Path(f"/proc/{pid}/cmdline").read_text().split("\0")[0]
            for pid in os.listdir("/proc")
            if pid.isdecimal()
        )

    def do_signal(self, pid):
        os.kill(pid, signal.SIGCONT)

    def do_ptrace(self, pid):
        checked(libc.ptrace(PTRACE_ATTACH, pid, None, None))

    def do_variables(self):
        return json.dumps(dict(os.environ))

    # files

    def do_read(self, path):
        return Path(path).read_text(errors="replace")[:2000]

    def do_list(self, path):
        return sorted(os.listdir(path))

    def do_write(self, path):
        with Path(path).open("a") as file:
            file.write("escaped")

    def do_open_for_writing(self, path):
        os.close(os.open(path, os.O_WRONLY))

    def do_mode(self, path, mode):
        Path(path).chmod(mode)

    def do_fill(self, folder, count):
        written = 0
        try:
            for number in range(count):
                with (Path(folder) / f"fill{number}").open("wb", buffering=0) as file:
                    for _ in range(8):
                        written += file.write(bytes(2**20))
        except OSError as error:
            return f"{written >> 20} {errno.errorcode[error.errno]}"
        return f"{written >> 20} without an end"

    def do_print(self, size_mb):
        for _ in range(size_mb):
            with suppress(OSError):
                os.write(1, bytes(2**20))
        return os.fstat(1).st_size >> 20

    # rights

    def do_device(self, path):
        os.mknod(path, 0o666 | 0o060000, os.makedev(254, 0))

    def do_mount(self):
        checked(libc.mount(b"none", b"/tmp", b"tmpfs", 0, None))

    def do_remount(self, path):
        checked(
            libc.mount(None, path.encode(), None, 32 | 4096, None)
        )  # MS_REMOUNT | MS_BIND: no longer read-only

    def do_chroot(self):
        os.chroot("/tmp")

    def do_setuid(self):
        os.setuid(0)

    def do_become_root(self):
        checked(libc.unshare(CLONE_NEWUSER | CLONE_NEWNS))

    def do_who(self):
        status = Path("/proc/self/status").read_text()
        rights = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        return [
            int(rights["CapEff"], 16) | int(rights["CapBnd"], 16),
            int(rights["NoNewPrivs"]),
            os.getuid() != 0,
        ]

    # what never ends

    def do_hang(self):
        ctypes.PyDLL(None).sleep(600)

    def do_threads(self, count):
        stop = threading.Event()
        for number in range(count):
            try:
                threading.Thread(target=stop.wait, daemon=True).start()
            except RuntimeError:
                stop.set()
                return number
        stop.set()
        return count

    def do_fork_bomb(self):
        """Each of its processes starts others, all in sessions of their own; never more than some
        hundred are asked for.
        """
        code = (
            "import os,time\nfor _ in range(7):\n  try: os.fork()\n  except OSError: pass\n"
            "os.setsid()\ntime.sleep(60)"
        )
        for _ in range(MOST_PROCESSES // 128 + 1):
            subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", code], env={}, start_new_session=True
            )
        time.sleep(60)

    def do_daemon(self, mark):
        """A process that has left its session, its parent and its environment variables behind."""
        code = (
            "import os,time\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): "
            f"os._exit(0)\ntime.sleep(90) # {mark}"
        )
        subprocess.run([sys.executable, "-I", "-S", "-c", code], env={}, check=True)
        return "left"

    def do_memory(self):
        held = []
        while len(held) * 16 < MOST_MB:
            held.append(bytearray(16 * 2**20))
        return len(held) * 16

    def do_shared_memory(self):
        held = mmap.mmap(-1, MOST_MB * 2**20)
        for at in range(0, len(held), 4096):
            held[at] = 1
        time.sleep(30)


def checked(result):
    if result:
        raise OSError(ctypes.get_errno(), "refused")


class Importing(Escaping):
    """Whose module says where it was imported."""

    name = "importing"
    per_process = 3

    def task(self, id):
        raise ValueError(f"no task {id}")


class NoOptions(Escaping):
    def __init__(self):
        raise RuntimeError(f"constructed by {os.getuid()}")
