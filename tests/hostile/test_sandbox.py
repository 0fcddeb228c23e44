"""What an environment can do from within `sandbox = "bwrap"`.

Every attempt that does no harm is also made without, where it succeeds.
"""

import asyncio
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

import palestra
from palestra.core.types import Task
from palestra.envs.serving import sandbox
from palestra.envs.serving.handles import EnvFault
from palestra.envs.serving.sandbox import objection
from palestra.envs.serving.worker_pool import Workers, WorkerSettings
from tests.hostile.escaping import MOST_MB, NAME
from tests.support.environments import is_running

pytestmark = pytest.mark.hostile
REPOSITORY = Path(palestra.__file__).parents[1]
SECRET = "the-trainer-knows-this"
REFUSED = (
    "EACCES",
    "EPERM",
    "EROFS",
    "ENOENT",
    "ESRCH",
    "ECONNREFUSED",
    "ENETUNREACH",
    "ENOSYS",
    "ENOSPC",
    "ENXIO",
)

without = objection()
needs_bwrap = pytest.mark.skipif(without is not None, reason=without or "")


def attempt(*orders, kind="bwrap", name=NAME, **settings):
    """What came of each, in one environment; a fault is told as its text."""
    told = []

    async def run():
        pool = Workers(
            name,
            {},
            WorkerSettings(
                **{"workers": 1, "per_worker": 1, "deadline_s": 30.0, "sandbox": kind, **settings}
            ),
        )
        seat = await pool.open()
        try:
            await seat.reset(Task("escaping", "train", "0"))
            for order in orders:
                told.append((await seat.step(json.dumps(order))).observation)
        except EnvFault as fault:
            told.append(str(fault))
        finally:
            await seat.close()
            await pool.close()

    asyncio.run(run())
    return told


@pytest.fixture
def project(tmp_path, monkeypatch):
    """The folder that a run is started in, with secrets beside it, above it and in it."""
    folder = tmp_path / "project"
    folder.mkdir()
    (tmp_path / "secret").write_text(SECRET)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / ".netrc").write_text(SECRET)
    (folder / "data.txt").write_text("for everybody")
    (folder / ".env").write_text(SECRET)
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text(SECRET)
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "up").symlink_to("../secret")
    (folder / "root").symlink_to("/proc/1/root")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PALESTRA_ENV_TOKEN", SECRET)
    monkeypatch.setenv("SOMETHING_ELSE", SECRET)
    monkeypatch.chdir(folder)
    return folder


# the network


@needs_bwrap
@pytest.mark.parametrize(("family", "kind", "order"), [
    (socket.AF_INET, socket.SOCK_STREAM, "tcp"),
    (socket.AF_INET, socket.SOCK_DGRAM, "udp"),
    pytest.param(socket.AF_UNIX, socket.SOCK_STREAM, "unix", marks=pytest.mark.short),
])  # fmt: skip
def test_no_listener_hears_of_it(family, kind, order):
    address = f"\0palestra-{secrets.token_hex(8)}" if family == socket.AF_UNIX else ("127.0.0.1", 0)
    with closing(socket.socket(family, kind)) as listener:
        listener.bind(address)
        if kind == socket.SOCK_STREAM:
            listener.listen()
        listener.settimeout(0.3)
        where = (
            address.replace("\0", "@") if family == socket.AF_UNIX else listener.getsockname()[1]
        )
        (told,) = attempt([order, where])
        assert told in REFUSED
        with pytest.raises(TimeoutError):
            listener.accept() if kind == socket.SOCK_STREAM else listener.recv(10)
        assert attempt([order, where], kind="none") == ["done None"]
        if kind == socket.SOCK_STREAM:
            listener.accept()[0].close()
        else:
            assert listener.recv(10) == b"escaped"


@needs_bwrap
def test_a_socket_in_a_folder_that_is_not_shown(tmp_path):
    with closing(socket.socket(socket.AF_UNIX)) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        assert attempt(["unix", str(tmp_path / "socket")]) == ["ENOENT"]
        assert attempt(["unix", str(tmp_path / "socket")], kind="none") == ["done None"]


# other processes


@pytest.fixture
def victim():
    process = subprocess.Popen(["sleep", "60"])
    yield process.pid
    process.kill()
    process.wait()


@needs_bwrap
@pytest.mark.parametrize("order", ["signal", "ptrace"])
def test_other_processes_are_out_of_reach(order, victim):
    assert attempt([order, victim]) == ["ESRCH"]
    assert attempt([order, victim], kind="none") == ["done None"]


@needs_bwrap
@pytest.mark.short
def test_nothing_is_known_of_other_processes(project):
    environ = f"/proc/{os.getpid()}/environ"
    seen, read, known = attempt(["processes"], ["read", environ], ["variables"])
    assert SECRET not in read
    assert (
        read in REFUSED or "PALESTRA_WORKER" in read
    )  # nobody has the number there, or one of its own processes
    assert seen.startswith("done")
    assert all(
        name in ("bwrap", sys.executable, "''") or "bwrap" in name for name in eval_list(seen)
    )
    assert not any(word in known for word in (SECRET, "SOMETHING_ELSE", "PALESTRA_ENV_TOKEN"))
    seen, known = attempt(["processes"], ["variables"], kind="none")
    assert len(eval_list(seen)) > 5
    assert "SOMETHING_ELSE" in known


def eval_list(told):
    return json.loads(told.removeprefix("done ").replace("'", '"'))


# files


@needs_bwrap
@pytest.mark.short
def test_only_what_a_run_is_made_of_can_be_read(project):
    home, above = project.parent / "home" / ".netrc", project.parent / "secret"
    hidden = [
        home,
        above,
        project / "link",
        project / "up",
        project / ".env",
        project / ".git" / "config",
        project / "root" / above,
    ]
    told = attempt(["read", "data.txt"], *(["read", str(path)] for path in hidden))
    assert told[0] == "done for everybody"
    assert set(told[1:]) <= set(REFUSED), dict(zip(hidden, told[1:], strict=True))
    assert (
        attempt(*(["read", str(path)] for path in hidden[:-1]), kind="none")
        == [f"done {SECRET}"] * 6
    )


@needs_bwrap
def test_what_is_named_can_be_read_and_not_written(project):
    named = str(project.parent / "secret")
    assert attempt(["read", named], ["write", named], sandbox_read=(named,)) in (
        [f"done {SECRET}", error] for error in ("EROFS", "EACCES")
    )


@needs_bwrap
@pytest.mark.parametrize(
    "path",
    [
        "/etc/shadow",
        "/root/.ssh",
        "/root/.bashrc",
        "/etc/hostname",
        "/run",
        "/sys",
        "/var/log",
        "/home",
        "/dev/kmsg",
        "/dev/mem",
    ],
)
def test_the_rest_of_the_machine_is_not_there(path):
    assert attempt(["list" if Path(path).is_dir() else "read", path]) == ["ENOENT"]


@needs_bwrap
def test_nothing_can_be_written_but_its_own_tmp(project):
    places = [
        project,
        Path(sys.prefix),
        Path(palestra.__file__).parent,
        Path("/"),
        Path("/usr"),
        Path("/etc"),
        Path("/dev"),
        Path("/proc"),
        project / ".git",
    ]
    told = attempt(
        ["write", "/tmp/mine"],
        ["write", "/var/tmp/mine"],
        *(["write", str(place / "escaped")] for place in places),
        ["write", "data.txt"],
    )
    assert told[:2] == ["done None"] * 2
    assert set(told[2:]) <= {"EROFS", "EACCES", "ENOENT"}, told
    assert not any((place / "escaped").exists() for place in places)
    assert not Path("/tmp/mine").exists()
    assert (project / "data.txt").read_text() == "for everybody"
    assert attempt(["write", str(project / "escaped")], kind="none") == ["done None"]


@needs_bwrap
@pytest.mark.parametrize(
    "path",
    ["/proc/sys/kernel/core_pattern", "/proc/sys/vm/overcommit_memory", "/proc/sysrq-trigger"],
)
def test_the_kernel_is_not_told_anything(path):
    """Root's own files: a sandbox that runs as root without any capability may still write them."""
    assert attempt(["open_for_writing", path])[0] in ("EACCES", "EROFS", "ENOENT")


@needs_bwrap
def test_the_machines_devices_keep_their_modes():
    mode = Path("/dev/null").stat().st_mode & 0o777
    assert attempt(["mode", "/dev/null", mode], ["write", "/dev/null"]) == ["EPERM", "done None"]


@needs_bwrap
@pytest.mark.parametrize("folder", ["/tmp", "/dev/shm"])
def test_a_disk_cannot_be_filled(folder, monkeypatch):
    monkeypatch.setattr(sandbox, "TMP_MB", 24)
    monkeypatch.setattr(sandbox, "SHM_MB", 24)
    (told,) = attempt(["fill", folder, 20])
    assert told in ("done 23 ENOSPC", "done 24 ENOSPC")


@needs_bwrap
def test_what_it_prints_is_bounded(monkeypatch):
    monkeypatch.setattr(sandbox, "TMP_MB", 16)
    (told,) = attempt(["print", 200])
    assert 0 <= int(told.removeprefix("done ")) <= 16


# rights


@needs_bwrap
@pytest.mark.short
def test_it_has_no_rights():
    orders = [
        ["device", "/tmp/disk"],
        ["mount"],
        ["remount", str(REPOSITORY / "palestra")],
        ["chroot"],
        ["setuid"],
        ["become_root"],
        ["who"],
    ]
    told = attempt(*orders)
    assert set(told[:3]) | set(told[3:4]) == {"EPERM"}
    assert told[4] in ("EINVAL", "EPERM")
    assert told[5] in ("ENOSPC", "EPERM")
    assert told[6] == "done [0, 1, True]"


# what never ends


@needs_bwrap
def test_the_kernel_bounds_processes_and_threads():
    if not sandbox._counts_by_namespace():
        pytest.skip("before Linux 5.14, processes are not counted by namespace")
    most = 8 * sandbox.TASKS_EACH
    (told,) = attempt(["threads", 1000], max_processes=8)
    assert most - 40 < int(told.removeprefix("done ")) < most
    assert attempt(["threads", 200], kind="none", max_processes=8) == ["done 200"]


@needs_bwrap
@pytest.mark.short
def test_a_fork_bomb_ends_with_its_sandbox():
    before = processes_of_nobody()
    (told,) = attempt(["fork_bomb"], max_processes=10)
    assert (
        told == "the worker was killed: it and what it had started were more processes than "
        "max_processes = 10"
    )
    eventually(lambda: processes_of_nobody() <= before)


def processes_of_nobody():
    """All sandboxes' processes of the machine that run the bomb's code."""
    return {
        pid
        for pid in map(int, filter(str.isdecimal, os.listdir("/proc")))
        if b"range(7)" in command_line(pid)
    }


def command_line(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def left(mark):
    return [
        pid
        for pid in map(int, filter(str.isdecimal, os.listdir("/proc")))
        if pid != os.getpid() and mark.encode() in command_line(pid)
    ]


def eventually(condition):
    for _ in range(200):
        if condition():
            return
        time.sleep(0.05)
    pytest.fail("it never came true")


@needs_bwrap
@pytest.mark.parametrize("then", [[], [["hang"]]])
def test_a_daemon_ends_with_its_worker(then):
    mark = secrets.token_hex(12)
    first, *rest = attempt(["daemon", mark], *then, deadline_s=2.0)
    assert first == "done left"
    assert not then or "no answer within 2 s" in rest[0]
    eventually(lambda: not left(mark))


TRAINER = """
import asyncio, json, sys
from palestra.envs.serving.worker_pool import Workers, WorkerSettings
from palestra.core.types import Task
async def run():
    pool = Workers("tests.hostile.escaping:Escaping", {}, WorkerSettings(workers=1, per_worker=1, \
sandbox="bwrap"))
    seat = await pool.open()
    await seat.reset(Task("escaping", "train", "0"))
    print((await seat.step(json.dumps(["daemon", sys.argv[1]]))).observation, \
next(iter(pool._workers)).pid, flush=True)
    await seat.step(json.dumps(["hang"]))
asyncio.run(run())
"""


@needs_bwrap
def test_nothing_outlives_a_trainer_that_is_killed():
    mark = secrets.token_hex(12)
    trainer = subprocess.Popen(
        [sys.executable, "-c", TRAINER, mark], stdout=subprocess.PIPE, text=True, cwd=REPOSITORY
    )
    told = trainer.stdout.readline().split()
    assert told[:2] == ["done", "left"]
    assert len(left(mark)) >= 2  # the trainer, and the daemon
    trainer.kill()
    trainer.wait()
    trainer.stdout.close()
    eventually(lambda: not left(mark) and not is_running(int(told[2])))


@needs_bwrap
def test_memory_is_bounded():
    (private,) = attempt(["memory"], memory_mb=256)
    assert "MemoryError" in private or "memory_mb = 256" in private
    (shared,) = attempt(["shared_memory"], memory_mb=256)
    assert "memory_mb = 256" in shared
    assert attempt(["memory"], kind="none") == [f"done {-(-MOST_MB // 16) * 16}"]


@needs_bwrap
def test_a_death_by_a_signal_is_told_as_one():
    async def run():
        pool = Workers(NAME, {}, WorkerSettings(workers=1, sandbox="bwrap"))
        seat = await pool.open()
        await seat.reset(Task("escaping", "train", "0"))
        try:
            process = next(iter(pool._workers))
            inner = [
                pid
                for pid in family(process.pid)
                if b"palestra.envs.serving.worker" in command_line(pid)
            ]
            os.kill(inner[-1], signal.SIGKILL)
            await seat.step(json.dumps(["who"]))
        finally:
            await pool.close()

    with pytest.raises(EnvFault, match="the worker died by signal 9"):
        asyncio.run(run())


def family(pid):
    from palestra.envs.serving.worker_process import process_family

    return sorted(process_family(pid))


@needs_bwrap
def test_folders_that_a_sandbox_cannot_have(project, monkeypatch):
    assert "there is no 'nowhere', which sandbox_read names" in objection(["nowhere"])
    monkeypatch.chdir(project.parent / "home")
    assert "holds your home, which a sandbox never shows" in objection()
