"""Worker processes under bubblewrap: no network, no other processes, and of the disk only what
Python needs, read-only.
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
"""Registered environments that are nothing without a server."""
TMP, SHM = "/tmp", "/dev/shm"  # noqa: S108  of a sandbox
TMP_MB = 512
"""Of each `/tmp`, which is memory; and of any one file that a sandbox writes."""
SHM_MB = 64
OVER_MEMORY = 1.5
"""One process may hold so many times `memory_mb`: above that its allocations fail before the pool
has measured it.
"""
TASKS_EACH = 16
"""RLIMIT_NPROC counts threads, too: so many for each of `max_processes`."""
OWN_PROCESSES = 3
"""Those of bubblewrap itself, which `max_processes` does not count."""
NOBODY = 65534
"""Whom an environment runs as where the trainer is root: root's files stay root's, and the kernel
bounds the processes of others only.
"""
PROBE_S = 20.0

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
ETC = (
    *(
        "alternatives",
        "fonts",
        "group",
        "java*",
        "ld.so.cache",
        "ld.so.conf",
        "ld.so.conf.d",
        "localtime",
        "locale.alias",
    ),
    *("mime.types", "nsswitch.conf", "passwd", "ssl/certs", "ssl/openssl.cnf", "timezone"),
)
"""Of /etc: what programs start with. The rest has keys and passwords."""
KEPT = ("PATH", "LANG", "LANGUAGE", "TZ", "JAVA_HOME", "PYTHONHASHSEED")
KEPT_PREFIXES = ("LC_", "OMP_", "MKL_", "OPENBLAS_", "NUMEXPR_")


class NoSandbox(OSError):
    """A sandbox was asked for and cannot be made. One line says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Sandbox:
    """What one worker may have."""

    memory_mb: int
    max_processes: int
    read: tuple[str, ...] = ()
    """Further files and folders that it can read."""

    def command(self, program: list[str]) -> list[str]:
        """The program, in a sandbox.

        Root starts it as nobody, in a second sandbox that may make no others.
        """
        bwrap = _bwrap()
        apart = [
            "--unshare-ipc",
            "--unshare-pid",
            "--unshare-net",
            "--unshare-uts",
            "--unshare-cgroup-try",
        ]
        outer = [bwrap, "--die-with-parent", *apart, "--hostname", "sandbox", "--cap-drop", "ALL"]
        alone = ["--unshare-user", *_no_more_users(bwrap)]
        inner = [*self._limits(), *program]
        if os.geteuid() != 0:
            return [*outer, *alone, *self._files(), "--", *inner]
        outer += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", *self._files()]
        leave_root = [
            "setpriv",
            "--reuid",
            str(NOBODY),
            "--regid",
            str(NOBODY),
            "--clear-groups",
            "--",
        ]
        return [
            *outer,
            "--",
            *leave_root,
            bwrap,
            "--die-with-parent",
            *alone,
            "--dev-bind",
            "/",
            "/",
            "--",
            *inner,
        ]

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
        """In order: what comes later lies over what came before."""
        here, missing = Path.cwd(), [path for path in self.read if not Path(path).exists()]
        if missing:
            raise NoSandbox(f"there is no {missing[0]!r}, which sandbox_read names")
        folders, masks = _folders(here), []
        said = [
            *_system(),
            "--proc",
            "/proc",
            "--dev",
            "/dev",
            *_tmpfs(SHM, SHM_MB),
            "--remount-ro",
            "/dev",
        ]
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
    """The environment variables of a sandbox: an allow-list, as any other may hold a secret, and
    those that `keep` names.
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
    """What is wrong with an environment's settings, as far as they alone can tell."""
    if sandbox == "none":
        return (
            f"sandbox_read = {list(read)}: has no effect with sandbox = 'none'; did you "
            "mean 'bwrap'?"
            if read
            else None
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
    """Why no sandbox can be made here, where none can: to be asked before a run begins."""
    try:
        Sandbox(1, 1, tuple(read)).command([])
        _probe()
    except NoSandbox as error:
        return str(error)
    return None


@lru_cache
def _probe() -> None:
    """That there is a bwrap does not mean that the kernel lets it work."""
    command = Sandbox(1024, 16).command([sys.executable, "-I", "-S", "-c", ""])
    try:
        probe = subprocess.run(  # noqa: S603
            command, env=variables(), capture_output=True, text=True, timeout=PROBE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoSandbox(f"bwrap cannot be started: {error}") from error
    if probe.returncode:
        said = (probe.stderr.strip().splitlines() or [f"exit code {probe.returncode}"])[-1]
        who = (
            "; root's sandboxes run as nobody, who must be able to read Python"
            if os.geteuid() == 0
            else ""
        )
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
    """In a namespace of users of its own, a program has rights that let it try more of the kernel.

    Older versions cannot forbid it.
    """
    usage = subprocess.run([bwrap, "--help"], capture_output=True, text=True, check=False)  # noqa: S603
    return ("--disable-userns",) if "--disable-userns" in usage.stdout + usage.stderr else ()


def _counts_by_namespace() -> bool:
    """From Linux 5.14 on, RLIMIT_NPROC counts the processes of a user in a sandbox, and not all
    that the user has.
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
    """Where modules are looked for. A folder that holds the user's home is never shown."""
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
    return [
        path
        for path in shown
        if not _is_in(path, SYSTEM) and not any(_is_in(path, [own]) for own in _python())
    ]


def _hidden(folder: Path) -> list[Path]:
    """What begins with a dot in a folder of the user's: .env, .git, .netrc."""
    return sorted(path for path in folder.glob(".*")) if folder.is_dir() else []


def _python() -> list[Path]:
    """The interpreter, its packages and ours."""
    given = [
        Path(path)
        for path in (sys.prefix, sys.base_prefix, sys.exec_prefix, Path(__file__).parents[2])
    ]
    found = sorted({*given, *(path.resolve() for path in given)})
    return [
        path
        for path in found
        if not _is_in(path, SYSTEM)
        and not any(path != other and _is_in(path, [other]) for other in found)
    ]


def _is_in(path: Path, folders: Iterable[str | Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


def _parents(path: Path, made: set[Path]) -> list[str]:
    """The folders above, which everybody may pass through."""
    new = [
        folder for folder in reversed(path.parents) if folder != Path("/") and folder not in made
    ]
    made.update(new)
    return [word for folder in new for word in ("--dir", str(folder))]
