"""An environment that misbehaves as it is told to.

It imports no torch, so that workers start fast.
"""

import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from palestra.core.types import Step, Task
from palestra.envs.base import Environment

NAME = "tests.fault.environments:Obedient"


class Obedient(Environment):
    name = "obedient"
    alive = 0
    """Instances of this process that were not closed."""

    def __init__(self, start_s: float = 0.0, farewell: str = "") -> None:
        time.sleep(start_s)
        self.farewell = farewell
        self.steps = self.episodes = 0
        self.held: list = []
        self.close_s = 0.0
        Obedient.alive += 1

    def tasks(self, split):
        return [Task(self.name, split, str(n)) for n in range(10)]

    def reset(self, task):
        self.steps, self.episodes = 0, self.episodes + 1
        return "say red"

    def expert(self):
        return "red"

    def step(self, action):
        self.steps += 1
        order, _, argument = action.partition(" ")
        return Step(str(getattr(self, f"do_{order}")(argument)))

    def close(self):
        Obedient.alive -= 1
        time.sleep(self.close_s)
        if self.farewell:
            with Path(self.farewell).open("a") as file:
                file.write("closed\n")

    def do_cling(self, _):
        self.close_s = 600.0

    def do_red(self, _):
        time.sleep(0.002)
        return "right"

    def do_count(self, _):
        return self.steps

    def do_who(self, _):
        return f"{os.getpid()} {id(self)} {self.episodes}"

    def do_alive(self, _):
        return Obedient.alive

    def do_sleep(self, seconds):
        time.sleep(float(seconds))

    def do_hold_the_interpreter(self, _):
        ctypes.PyDLL(None).sleep(600)  # in C, and no other thread of Python gets a turn

    def do_backtrack(self, _):
        re.match(r"(a+)+$", "a" * 64 + "b")

    def do_ignore_signals(self, _):
        for ignored in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(ignored, signal.SIG_IGN)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(600)

    def do_raise(self, _):
        raise RuntimeError("the simulator broke")

    def do_leave(self, _):
        sys.exit("no more")

    def do_exit(self, code):
        os._exit(int(code))

    def do_segfault(self, _):
        ctypes.string_at(0)

    def do_kill(self, _):
        os.kill(os.getpid(), signal.SIGKILL)

    def do_print(self, text):
        print(text)
        print(text, "again", file=sys.stderr)
        os.write(1, b"from C\n")

    def do_flood(self, megabytes):
        for _ in range(int(megabytes)):
            print("x" * 2**20)

    def do_hold(self, megabytes):
        self.held.append(b"x" * (int(megabytes) * 2**20))

    def do_open(self, count):
        self.held += [Path(__file__).open() for _ in range(int(count))]  # noqa: SIM115

    def do_spawn(self, apart):
        return subprocess.Popen(["sleep", "600"], start_new_session=bool(apart)).pid


class Judged(Obedient):
    """One right word, and it is over."""

    def step(self, action):
        return Step(super().step(action).observation, reward=1.0, terminated=True, success=True)
