"""Debian's fossil, with an episode's own clock and chance in the place of the machine's.

Fossil asks the machine for both: tickets, suggested passwords and captchas are drawn from SQLite's
random numbers, and whatever is written carries the time, also in its hash and its address. The
clock is set by libfaketime. SQLite seeds its random numbers with a file whose name stands in the
program: a copy of the program names a file in the folder that it runs in.
"""

import hashlib
import os
import shutil
import subprocess
import sysconfig
import tempfile
from datetime import UTC, datetime
from pathlib import Path

NOW = datetime(2026, 6, 15, 10, 0, tzinfo=UTC)
"""When episodes begin, as on the Django sites (`django_common.clock`)."""
SECONDS = 60
"""The time limit of a request. Fossil usually answers within 20 ms."""
OPTIONS = ("--nojail", "--nossl", "--nocompress", "--nodelay", "--ipaddr", "127.0.0.1")
MACHINES = b"/dev/urandom\0"
OWN = b".dev/urandom\0"
"""One letter differs: a linker lets other words of the program, such as "dom", be the end of this
one.
"""
RANDOM_BYTES = 256
"""The most that a version of SQLite reads."""


def install(folder: Path) -> Path:
    """A copy of the machine's fossil that reads our random numbers."""
    found = shutil.which("fossil")
    if found is None:
        raise SystemExit("fossil is not installed: apt-get install fossil")
    content = Path(found).read_bytes()
    if MACHINES not in content:
        raise SystemExit(
            f"{found} does not name /dev/urandom, so that its random numbers cannot be an "
            "episode's own; take Debian's fossil"
        )
    program = folder / "fossil"
    draft = folder / f"fossil.{os.getpid()}"
    draft.write_bytes(content.replace(MACHINES, OWN))
    draft.chmod(0o700)
    return draft.rename(program)  # another server may be running the one that is there


def faketime() -> Path:
    """The library that sets a program's clock. A path that is wrong would be ignored, with the real
    time.
    """
    program = shutil.which("faketime")
    if program is None:
        raise SystemExit("faketime is not installed: apt-get install faketime")
    folder = Path(program).resolve().parent.parent
    folders = (
        folder / "lib" / str(sysconfig.get_config_var("MULTIARCH")),
        folder / "lib",
        folder / "lib64",
    )
    for library in (folder / "faketime" / "libfaketime.so.1" for folder in folders):
        if library.is_file():
            return library
    raise SystemExit(
        f"libfaketime.so.1 does not lie beside {program}, where Debian's package faketime has it"
    )


def answer(
    program: Path, library: Path, repository: Path, request: bytes, *, moment: datetime, seed: str
) -> subprocess.CompletedProcess[bytes]:
    """Answer one HTTP request. Deterministic for the same repository, moment and seed."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, ".dev").mkdir()
        Path(folder, ".dev", "urandom").write_bytes(
            hashlib.shake_256(seed.encode()).digest(RANDOM_BYTES)
        )
        # Fossil's global settings. Their file is created at the first start, which draws random
        # numbers for it; `check` is that start, before any episode.
        home = str(program.parent)
        return subprocess.run(  # noqa: S603
            [program, "http", repository.absolute(), *OPTIONS],
            input=request,
            cwd=folder,
            env={
                **{
                    name: os.environ[name]
                    for name in ("PATH", "LD_LIBRARY_PATH")
                    if name in os.environ
                },
                **{
                    "HOME": home,
                    "FOSSIL_HOME": home,
                    "TMPDIR": folder,
                    "SQLITE_TMPDIR": folder,
                    "TZ": "UTC",
                },
                **{"LD_PRELOAD": str(library), "FAKETIME": f"{moment:%Y-%m-%d %H:%M:%S}"},
                **{"NO_FAKE_STAT": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1"},
            },
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )


def check(program: Path, library: Path, repository: Path) -> None:
    """Verify that clock and random numbers are replaced on this machine.

    Start the program here before its first episode: it draws other random numbers at its first
    start in a folder.
    """
    asked = b"GET /login?anon=1 HTTP/1.0\r\nHost: code.test\r\n\r\n"  # with a captcha
    listed = b"GET /brlist HTTP/1.0\r\nHost: code.test\r\n\r\n"  # with ages
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "copy")

        def said(request: bytes, moment: datetime, seed: str) -> bytes:
            shutil.copyfile(repository, copy)
            return answer(program, library, copy, request, moment=moment, seed=seed).stdout

        said(asked, NOW, "one")
        if len({said(asked, NOW, seed) for seed in ("one", "one", "two", "three")}) != 3:
            raise SystemExit("fossil does not take its random numbers from us on this machine")
        if len({said(listed, moment, "one") for moment in (NOW, NOW, NOW.replace(year=2028))}) != 2:
            raise SystemExit("fossil does not take its clock from libfaketime on this machine")
