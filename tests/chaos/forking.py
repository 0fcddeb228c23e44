"""Environments that fork. However little stops them, each test makes no more than `MOST` processes,
and they end after `ALARM_S`.

They import no torch, so that worker processes start fast.
"""

import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from palestra.core.types import Step, Task
from palestra.envs.base import Environment

MOST = 20
ALARM_S = 20


def claim(folder):
    """One of `MOST` slots: two processes never get the same one. False when all are taken."""
    for number in range(MOST):
        try:
            os.close(os.open(Path(folder) / f"slot-{number:02d}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
        return True
    return False


def fork(folder):
    """`os.fork` within the budget; -1 when it is spent.

    The child writes down who it is, and ends after a while in any case.
    """
    if not claim(folder):
        return -1
    pid = os.fork()
    if pid == 0:
        begin_child(folder)
    return pid


def begin_child(folder):
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(ALARM_S)
    (Path(folder) / f"child-{os.getpid()}").touch()


def children(folder):
    return sorted(int(path.name.removeprefix("child-")) for path in Path(folder).glob("child-*"))


class Forking(Environment):
    """Say red.

    What it does meanwhile is an option: `how` names a method, `where` the call in which it is done.
    """

    name = "forking"
    max_turns = 2

    def __init__(self, folder: str, how: str = "comes_back", where: str = "step") -> None:
        self.folder, self.how, self.where = folder, how, where
        self._at("make")

    def _at(self, where):
        if where == self.where:
            (Path(self.folder) / f"tried-{self.where}").touch()
            getattr(self, self.how)()

    def tasks(self, split):
        self._at("tasks")
        return [
            Task(self.name, split, f"{split}-{n}") for n in range(30 if split == "train" else 4)
        ]

    def reset(self, task):
        self._at("reset")
        return "say red"

    def step(self, action):
        self._at("step")
        right = action.strip() == "red"
        return Step(
            "right" if right else "wrong", reward=float(right), terminated=True, success=right
        )

    def actions(self):
        self._at("actions")
        return ["red", "blue"]

    def expert(self):
        self._at("expert")
        return "red"

    def scene(self):
        self._at("scene")
        return {"kind": "forking"}

    def vocabulary(self):
        self._at("vocabulary")
        return ["say", "red", "blue", "right", "wrong"]

    def close(self):
        self._at("close")

    # what it does

    def comes_back(self):
        """Parent and child go on alike."""
        fork(self.folder)

    def raises(self):
        if fork(self.folder) == 0:
            raise RuntimeError("the child gives up")

    def leaves(self):
        if fork(self.folder) == 0:
            sys.exit("the child leaves")

    def stays(self):
        """A child that never comes back."""
        if fork(self.folder) == 0:
            while True:
                time.sleep(0.1)

    def bursts(self):
        """Forks as often as it can, and so do its children."""
        while fork(self.folder) >= 0:
            pass

    def fills(self):
        """Children that stay, as many as there may be."""
        while (pid := fork(self.folder)) > 0:
            pass
        time.sleep(ALARM_S if pid == 0 else 1)

    def becomes_a_daemon(self):
        """A grandchild in a session of its own:
        neither its group nor its parent says whose it is.
        """
        pid = fork(self.folder)
        if pid == 0:
            os.setsid()
            if fork(self.folder) == 0:
                time.sleep(ALARM_S)
            os._exit(0)
        if pid > 0:
            os.waitpid(pid, 0)

    def starts_a_daemon(self):
        """The same without a fork of ours: a program that puts another one into the background."""
        if claim(self.folder):
            program = (
                f"import subprocess; subprocess.Popen(['sleep', '{ALARM_S}'], "
                "start_new_session=True)"
            )
            subprocess.run([sys.executable, "-S", "-c", program], check=True)

    def starts_a_program(self):
        if claim(self.folder):
            subprocess.run(["true"], check=True)

    def starts_a_program_prepared(self):
        """A function that is called between fork and exec: the hooks of `os.register_at_fork` are
        called, too.
        """
        if claim(self.folder):
            subprocess.run(["true"], check=True, preexec_fn=os.setpgrp)

    def asks_a_process(self):
        """multiprocessing's fork: the child runs a function of its own and ends."""
        if not claim(self.folder):
            return
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe()
        process = context.Process(target=answer, args=(theirs, self.folder))
        process.start()
        theirs.close()
        assert ours.poll(10)
        assert ours.recv() == "an answer"
        process.join(10)
        assert process.exitcode == 0

    def ends_a_process(self):
        """A child of multiprocessing obeys SIGTERM, whatever its parent makes of that signal."""
        if not claim(self.folder):
            return
        process = multiprocessing.get_context("fork").Process(target=wait, args=(self.folder,))
        process.start()
        process.terminate()
        process.join(10)
        assert process.exitcode == -signal.SIGTERM

    def forks_in_c(self):
        """Where no hook of Python's is called."""
        if claim(self.folder) and ctypes.CDLL(None).fork() == 0:
            begin_child(self.folder)


def answer(connection, folder):
    begin_child(folder)
    connection.send("an answer")


def wait(folder):
    begin_child(folder)
    time.sleep(ALARM_S)


def main():
    """`python -m tests.chaos.forking ISOLATION SETTINGS [EPISODES] < OPTIONS`: plays episodes, and
    prints what came of each.

    It is the process that trains, without what takes seconds to import. Whatever goes on as if it
    were it prints a second time.
    """
    import asyncio
    import json

    from palestra.core import interrupts
    from palestra.envs import make_env
    from palestra.envs.serving.handles import EnvFault, InlinePool
    from palestra.envs.serving.worker_pool import Workers, WorkerSettings

    name, options = "tests.chaos.forking:Forking", json.load(sys.stdin)
    settings = {"deadline_s": 10.0, **json.loads(sys.argv[2])}
    interrupts.UNDER_WAY_S = 0.5
    if sys.argv[1] == "inline":
        pool = InlinePool(lambda: make_env(name, options), **settings)
    else:
        pool = Workers(name, options, WorkerSettings(workers=1, **settings))

    async def play():
        env = await pool.open()
        try:
            await env.reset(Task("forking", "train", "0"))
            await env.actions()
            await env.expert()
            return (await env.step("red")).observation
        finally:
            await env.close()

    async def play_all():
        for _ in range(int(sys.argv[3])):
            try:
                say(await play())
            except EnvFault as fault:
                say(f"{fault.stop}: {fault}")
        await pool.close()

    def say(line):
        print(line, flush=True)

    signals = interrupts.Interrupts()
    with (
        signals.installed(),
        signals.held(),
    ):  # as while a step is learned from: SIGTERM waits for its end
        asyncio.run(play_all())
        time.sleep(1.0)  # a signal that went astray shows
    own = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
    say(f"the end; children: {own.read_text().split() if own.exists() else []}")


if __name__ == "__main__":
    main()
