"""The process that ends what workers leave behind: it finds those that hide, spares everybody else,
and is itself replaced.
"""

import asyncio
import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from palestra.core.types import Task
from palestra.envs.serving import reaper_process
from palestra.envs.serving.reaper import Reaper
from palestra.envs.serving.reaper_process import VARIABLE, ProcessReaper
from palestra.envs.serving.worker_pool import Workers, WorkerSettings
from tests.support.environments import is_running

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="processes are found in /proc"
)

SLEEP_S = 60


class Family:
    """A worker that sleeps, and others that may or may not belong to it.

    None of them outlives the test.
    """

    def __init__(self):
        self.mark = secrets.token_hex(8)
        self.started = []
        self.worker = self.start(mark=self.mark)

    def start(self, *, mark=None):
        variables = os.environ | ({VARIABLE: mark} if mark else {})
        process = subprocess.Popen(["sleep", str(SLEEP_S)], env=variables, start_new_session=True)
        self.started.append(process)
        while (
            b"sleep" not in Path(f"/proc/{process.pid}/cmdline").read_bytes()
        ):  # before that, its environment is ours
            time.sleep(0.001)
        return process

    def is_alive(self, process):
        return process.poll() is None


@pytest.fixture
def family():
    family = Family()
    try:
        yield family
    finally:
        for process in family.started:
            process.kill()
            process.wait()


def test_who_has_the_mark_ends_and_nobody_else_does(family):
    daemon, other, stranger = (
        family.start(mark=family.mark),
        family.start(mark=f"{family.mark}0"),
        family.start(),
    )
    found = ProcessReaper()
    found.watch(family.worker.pid, family.mark, 10)
    found.end([family.worker.pid])
    assert not family.is_alive(family.worker)
    assert not family.is_alive(daemon)
    assert family.is_alive(other)
    assert family.is_alive(stranger)


def test_a_daemon_is_found_when_its_worker_is_gone_already(family):
    daemon = family.start(mark=family.mark)
    found = ProcessReaper()
    found.watch(family.worker.pid, family.mark, 10)
    family.worker.kill()
    family.worker.wait()
    found.end([family.worker.pid])
    assert not family.is_alive(daemon)


def test_a_worker_ends_at_the_first_process_too_many(family, capfd):
    found = ProcessReaper()
    found.watch(family.worker.pid, family.mark, 3)
    others = [family.start(mark=family.mark) for _ in range(2)]
    found.look()
    assert all(map(family.is_alive, (family.worker, *others)))
    assert capfd.readouterr().out == ""
    others.append(family.start(mark=family.mark))
    found.look()
    assert not any(map(family.is_alive, (family.worker, *others)))
    assert capfd.readouterr().out == f"over {family.worker.pid}\n"


def test_processes_that_have_ended_do_not_count(family):
    found = ProcessReaper()
    found.watch(family.worker.pid, family.mark, 2)
    for _ in range(4):
        found.look()
        brief = family.start(mark=family.mark)
        found.look()
        brief.kill()
        brief.wait()
    found.look()
    assert family.is_alive(family.worker)


def test_a_number_that_another_process_has_got_by_now_is_nobodys_number(family):
    stranger = family.start()
    started = reaper_process._look_at(stranger.pid).started
    found = ProcessReaper()
    found.watch(family.worker.pid, family.mark, 10)
    found.families[family.worker.pid].members[stranger.pid] = (
        started - 1
    )  # what had that number before was a member
    found.end([family.worker.pid])
    assert not family.is_alive(family.worker)
    assert family.is_alive(stranger)


def test_what_the_kernel_says_of_a_process():
    """With a name that is made to mislead: the fields come after the last bracket."""
    program = (
        "from pathlib import Path; Path('/proc/self/comm').write_text('a) S 1 (2'); "
        "print(flush=True); input()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    process.stdout.readline()
    found = reaper_process._look_at(process.pid)
    assert (found.parent, found.session, found.is_dead) == (os.getpid(), process.pid, False)
    process.kill()
    while not (found := reaper_process._look_at(process.pid)).is_dead:
        time.sleep(0.001)
    process.communicate()
    assert reaper_process._look_at(process.pid) is None


def test_a_reaper_that_is_killed_is_replaced_and_the_next_one_knows_all(family):
    daemon = family.start(mark=family.mark)
    client = Reaper(most=10)
    client.start()
    client.watch(family.worker.pid, family.mark)
    first = client._process
    first.kill()
    first.wait()
    second_worker = family.start(mark="other")
    client.watch(second_worker.pid, "other")
    assert client._process is not first
    client.end(family.worker.pid)
    asyncio.run(client.close())
    assert not any(map(family.is_alive, (family.worker, daemon, second_worker)))


def test_a_reaper_ends_with_its_parent(family):
    """Also where a child of the parent still has the pipe on which it listens."""
    program = (
        "import os, sys, time\n"
        "from palestra.envs.serving.reaper import Reaper\n"
        "client = Reaper(most=10)\n"
        "client.start()\n"
        f"client.watch({family.worker.pid}, '{family.mark}')\n"
        "print(client._process.pid, flush=True)\n"
        "if os.fork() == 0:\n"
        "    os.close(1)\n"
        "    time.sleep(3)\n"
        "    os._exit(0)\n"
        "os._exit(0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        close_fds=True,
    )
    pid = int(done.stdout)
    until = time.monotonic() + 10
    while (is_running(pid) or family.is_alive(family.worker)) and time.monotonic() < until:
        time.sleep(0.02)
    assert not is_running(pid)
    assert not family.is_alive(family.worker)


def test_a_worker_that_dies_leaves_nothing(tmp_path):
    """What it had started is in a session of its own, and has lost its parent."""

    async def scenario():
        options = {"folder": str(tmp_path), "how": "becomes_a_daemon"}
        pool = Workers("tests.chaos.forking:Forking", options, WorkerSettings(workers=1))
        seat = await pool.open()
        await seat.reset(Task("forking", "train", "0"))
        await seat.step("red")
        (worker,) = pool.stats().workers
        daemons, until = [], time.monotonic() + 10
        while (
            not daemons and time.monotonic() < until
        ):  # it says who it is when it has lost its parent
            found = [int(path.name.removeprefix("child-")) for path in tmp_path.glob("child-*")]
            daemons = [pid for pid in found if is_running(pid)]
            await asyncio.sleep(0.02)
        assert len(daemons) == 1
        os.kill(worker.pid, signal.SIGKILL)
        until = time.monotonic() + 10
        while is_running(daemons[0]) and time.monotonic() < until:
            await asyncio.sleep(0.02)
        assert not is_running(daemons[0])
        await seat.close()
        await pool.close()

    asyncio.run(scenario())
