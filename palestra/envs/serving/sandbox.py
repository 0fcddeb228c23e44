"""Worker processes under bubblewrap: no network, no other processes, and read-only access to only
those files that Python needs.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

PACKAGE = "install Debian's package bubblewrap (apt install bubblewrap)"
NEEDS_NETWORK = frozenset({"agentgym", "web", "webarena"})
"""Registered environments that need a server."""
TMP, SHM = "/tmp", "/dev/shm"  # noqa: S108  of a sandbox
TMP_MB = 512
"""The size of each `/tmp`, which is in memory, and of any file that a sandbox writes."""
SHM_MB = 64
OVER_MEMORY = 1.5
"""The memory limit of one process, as a multiple of `memory_mb`. Allocations above it fail at once,
before the pool measures the process.
"""
TASKS_EACH = 16
"""RLIMIT_NPROC counts threads too. It is set to this many per process of `max_processes`."""
OWN_PROCESSES = 3
"""Processes of bubblewrap itself, which `max_processes` does not count."""
NOBODY = 65534
"""The user id of a sandbox if the trainer is root. Root's files are then protected, and the kernel
applies process limits only to users other than root.
"""
PROBE_S = 20.0

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
ETC = (
    "alternatives",
    "fonts",
    "group",
    "java*",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "locale.alias",
    "mime.types",
    "nsswitch.conf",
    "passwd",
    "ssl/certs",
    "ssl/openssl.cnf",
    "timezone",
)
"""The files of /etc that programs need to start. Others may contain keys and passwords."""
KEPT = ("PATH", "LANG", "LANGUAGE", "TZ", "JAVA_HOME", "PYTHONHASHSEED")
KEPT_PREFIXES = ("LC_", "OMP_", "MKL_", "OPENBLAS_", "NUMEXPR_")


class NoSandbox(OSError):
    """A requested sandbox cannot be created. The message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Sandbox:
    """The limits and files of one worker's sandbox."""

    memory_mb: int
    max_processes: int
    read: tuple[str, ...] = ()
    """Further files and folders that it can read."""

    def command(self, program: list[str]) -> list[str]:
        """The command line that runs the program in a sandbox.

        If we are root, the program runs as nobody, in a second sandbox that cannot create others.
        """
        bwrap = _bwrap()
        apart = [f"--unshare-{name}" for name in ("ipc", "pid", "net", "uts", "cgroup-try")]
        outer = [bwrap, "--die-with-parent", *apart, "--hostname", "sandbox", "--cap-drop", "ALL"]
        alone = ["--unshare-user", *_no_more_users(bwrap)]
        inner = [*self._limits(), *program]
        if os.geteuid() != 0:
            return [*outer, *alone, *self._files(), "--", *inner]
        outer += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", *self._files()]
        leave_root = f"setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups --".split()
        second = [bwrap, "--die-with-parent", *alone, "--dev-bind", "/", "/", "--"]
        return [*outer, "--", *leave_root, *second, *inner]

    def _limits(self) -> list[str]:
        limits = [
            f"--data={int(OVER_MEMORY * self.memory_mb * 2**20)}",
            f"--fsize={TMP_MB * 2**20}",
            "--core=0",
        ]
        if _counts_by_namespace():
            limits.append(f"--nproc={TASKS_EACH * self.max_processes}")
        return ["prlimit", *limits, "--"]

    def _files(self) -> list[str]:
        """bubblewrap's options for files, in order: later mounts cover earlier ones."""
        here, missing = Path.cwd(), [path for path in self.read if not Path(path).exists()]
        if missing:
            raise NoSandbox(f"there is no {missing[0]!r}, which sandbox_read names")
        folders, masks = _folders(here), []
        said = [*_system(), "--proc", "/proc", "--dev", "/dev"]
        said += [*_tmpfs(SHM, SHM_MB), "--remount-ro", "/dev"]
        said += [*_tmpfs(TMP, TMP_MB), "--symlink", f"..{TMP}", f"/var{TMP}"]
        made: set[Path] = {Path(TMP)}
        for folder in folders:
            said += [*_parents(folder, made), "--ro-bind", str(folder), str(folder)]
            for hidden in _hidden(folder):
                if hidden.is_dir() and not hidden.is_symlink():
                    said += ["--perms", "0755", "--size", "4096", "--tmpfs", str(hidden)]
                    masks.append(hidden)
                elif hidden.is_file() and not hidden.is_symlink():
                    said += ["--ro-bind", "/dev/null", str(hidden)]
        for path in (*_python(), *(Path(path).absolute() for path in self.read)):
            if not _is_in(path, SYSTEM):
                said += [*_parents(path, made), "--ro-bind", str(path), str(path)]
        for mask in masks:
            said += ["--remount-ro", str(mask)]
        return [*said, "--remount-ro", "/", "--chdir", str(here) if here in folders else TMP]


def variables(keep: Iterable[str] = ()) -> dict[str, str]:
    """The environment variables of a sandbox: an allow-list, because others may hold secrets, plus
    those in `keep`.
    """
    listed = {*KEPT, *keep}
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in listed or name.startswith(KEPT_PREFIXES)
    }
    own = {"HOME": TMP, "TMPDIR": TMP, "USER": "nobody", "LOGNAME": "nobody"}
    return {**kept, **own, "PYTHONDONTWRITEBYTECODE": "1"}


def misuse(name: str, sandbox: str, read: tuple[str, ...], isolation: str) -> str | None:
    """The error in an environment's settings, if they alone show one."""
    if sandbox == "none":
        if not read:
            return None
        return (
            f"sandbox_read = {list(read)}: has no effect with sandbox = 'none'; did you "
            "mean 'bwrap'?"
        )
    if isolation != "process":
        return (
            f"sandbox = {sandbox!r}: has no effect with isolation = {isolation!r}; did you "
            "mean 'process'?"
        )
    if name in NEEDS_NETWORK:
        return (
            f"sandbox = {sandbox!r}: {name} needs the network, which a sandbox does not have; "
            "did you mean 'none'?"
        )
    return None


def objection(read: Iterable[str] = ()) -> str | None:
    """Why no sandbox can be created on this machine, or None. Checked before a run starts."""
    try:
        Sandbox(1, 1, tuple(read)).command([])
        _probe()
    except NoSandbox as error:
        return str(error)
    return None


@lru_cache
def _probe() -> None:
    """Start a sandbox once: bwrap may be installed and yet forbidden by the kernel."""
    command = Sandbox(1024, 16).command([sys.executable, "-I", "-S", "-c", ""])
    try:
        probe = subprocess.run(  # noqa: S603
            command, env=variables(), capture_output=True, text=True, timeout=PROBE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoSandbox(f"bwrap cannot be started: {error}") from error
    if probe.returncode:
        said = (probe.stderr.strip().splitlines() or [f"exit code {probe.returncode}"])[-1]
        who = ""
        if os.geteuid() == 0:
            who = "; root's sandboxes run as nobody, who must be able to read Python"
        raise NoSandbox(
            f"bwrap does not work on this machine ({said}); does its kernel allow user "
            f"namespaces?{who}"
        )


def _bwrap() -> str:
    found = shutil.which("bwrap")
    if found is None:
        raise NoSandbox(f"there is no bwrap on the PATH; {PACKAGE}")
    return found


@lru_cache
def _no_more_users(bwrap: str) -> tuple[str, ...]:
    """The option that forbids further user namespaces, if this bwrap has it.

    Inside its own user namespace, a program has capabilities that expose more of the kernel.
    """
    usage = subprocess.run([bwrap, "--help"], capture_output=True, text=True, check=False)  # noqa: S603
    return ("--disable-userns",) if "--disable-userns" in usage.stdout + usage.stderr else ()


def _counts_by_namespace() -> bool:
    """Whether RLIMIT_NPROC counts only the user's processes in the sandbox: since Linux 5.14.

    Before, it counts all processes of the user.
    """
    numbers = platform.release().split("-")[0].split(".")
    return tuple(int(number) for number in numbers[:2] if number.isdecimal()) >= (5, 14)


def _system() -> Iterator[str]:
    for folder in map(Path, SYSTEM):
        if folder.is_symlink():
            yield from ("--symlink", str(folder.readlink()), str(folder))
        elif folder.exists():
            yield from ("--ro-bind", str(folder), str(folder))
    yield from ("--dir", "/etc", "--dir", "/etc/ssl", "--dir", "/var")
    for pattern in ETC:
        for path in sorted(Path("/etc").glob(pattern)):
            yield from ("--ro-bind-try", str(path), str(path))


def _tmpfs(path: str, size_mb: int) -> list[str]:
    return ["--perms", "1777", "--size", str(size_mb * 2**20), "--tmpfs", path]


def _folders(here: Path) -> list[Path]:
    """The folders of the module search path. One that contains the user's home is never shown."""
    home = Path.home().resolve()
    found = [here, *(Path(path).absolute() for path in sys.path if path)]
    shown = [
        path
        for path in dict.fromkeys(found)
        if path.exists() and not home.is_relative_to(path.resolve())
    ]
    if here not in shown:
        raise NoSandbox(
            f"the current folder {str(here)!r} holds your home, which a sandbox never "
            "shows; start in a project's own folder"
        )
    known: list[str | Path] = [*SYSTEM, *_python()]
    return [path for path in shown if not _is_in(path, known)]


def _hidden(folder: Path) -> list[Path]:
    """The dot files of a user's folder, such as .env, .git and .netrc."""
    return sorted(path for path in folder.glob(".*")) if folder.is_dir() else []


def _python() -> list[Path]:
    """The interpreter, its packages and ours."""
    given = [Path(sys.prefix), Path(sys.base_prefix), Path(sys.exec_prefix)]
    given.append(Path(__file__).parents[2])
    found = sorted({*given, *(path.resolve() for path in given)})
    # Only outermost folders: a folder inside another one needs no mount of its own.
    kept: list[Path] = []
    for path in found:
        others = [other for other in found if other != path]
        if not _is_in(path, SYSTEM) and not _is_in(path, others):
            kept.append(path)
    return kept


def _is_in(path: Path, folders: Iterable[str | Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


def _parents(path: Path, made: set[Path]) -> list[str]:
    """Options that create the parent folders that do not exist yet in the sandbox."""
    options: list[str] = []
    for folder in reversed(path.parents):
        if folder != Path("/") and folder not in made:
            made.add(folder)
            options += ["--dir", str(folder)]
    return options
