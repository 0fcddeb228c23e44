"""Builds what the sites need before their first start: a virtual environment and a seeded base for
each.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from palestra.core.credentials import without_secrets
from palestra.core.errors import UserError
from palestra_web.sites.catalogue import SOURCE, Site, cache_folder

SHARED = ("wsgi_common", "django_common")
BASE_FILE = "base.sqlite3"


class BuildFailed(UserError):
    """A site cannot be built. The message says what to do."""


def environment(site: Site) -> Path:
    """Named by a hash of its content, so that changed pins create a new one."""
    return (
        cache_folder()
        / "environments"
        / f"{site.name}-{_digest([SOURCE / site.module / 'requirements.txt'])}"
    )


def base(site: Site) -> Path:
    """Named by the code that seeds it."""
    folders = [SOURCE / site.module, *(SOURCE / name for name in SHARED)]
    files: list[Path] = []
    for folder in folders:
        paths = [path for path in folder.rglob("*") if "__pycache__" not in path.parts]
        files += [path for path in paths if path.is_file()]
    return cache_folder() / "bases" / f"{site.name}-{_digest(files)}"


def python(site: Site) -> Path:
    return environment(site) / "bin" / "python"


def site_variables(site: Site) -> dict[str, str]:
    """The environment variables of a site's processes: the user's, without secrets and without
    those of our own Python.
    """
    kept = {
        key: value
        for key, value in without_secrets().items()
        if not key.startswith(("PYTHON", "DJANGO_", "VIRTUAL_ENV"))
    }
    own = {"PYTHONPATH": str(SOURCE), "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    return kept | own | {"SITE_NAME": site.name, "SITE_BASE": str(base(site))}


def need_program(program: str, user: str, tell: Callable[[str], None]) -> None:
    """Install the Debian package of the same name if it is missing and we have the rights."""
    if shutil.which(program):
        return
    if os.geteuid() == 0 and shutil.which("apt-get"):
        tell(f"{user}: installing {program} (apt-get)")
        variables = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for arguments in (
            ["update", "--quiet"],
            ["install", "--yes", "--quiet", "--no-install-recommends", program],
        ):
            subprocess.run(  # noqa: S603
                ["apt-get", *arguments],  # noqa: S607
                env=variables,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
            )
    if not shutil.which(program):
        raise BuildFailed(f"{user} needs {program}: apt-get install {program}")


def make_ready(site: Site, tell: Callable[[str], None]) -> None:
    """Build whatever is missing. Concurrent builds wait for each other."""
    with alone(site.name):
        if not (environment(site) / "complete").is_file():
            tell(f"{site.name}: making its virtual environment")
            _make_environment(site)
        if not (base(site) / BASE_FILE).is_file():
            tell(f"{site.name}: seeding it")
            _make_base(site)


def _make_environment(site: Site) -> None:
    folder = environment(site)
    shutil.rmtree(folder, ignore_errors=True)
    _do([sys.executable, "-m", "venv", str(folder)], f"{site.name}: no virtual environment")
    requirements = str(SOURCE / site.module / "requirements.txt")
    pip = [
        str(python(site)),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--requirement",
        requirements,
    ]
    _do(pip, f"{site.name}: its packages could not be installed")
    (folder / "complete").touch()


def _make_base(site: Site) -> None:
    """Seed a base in a folder next to its final one and rename it: a base is complete or absent."""
    folder = base(site)
    draft = folder.with_name(folder.name + ".draft")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    variables = site_variables(site) | {"SITE_BASE": str(draft)}
    _do(
        [str(python(site)), "-m", f"{site.module}.seed"],
        f"{site.name}: it could not be seeded",
        variables,
    )
    (draft / BASE_FILE).chmod(0o600)
    shutil.rmtree(folder, ignore_errors=True)
    draft.rename(folder)


def _do(command: list[str], complaint: str, variables: dict[str, str] | None = None) -> None:
    done = subprocess.run(  # noqa: S603
        command,
        env=variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BuildFailed(
            f"{complaint} ({' '.join(command[1:4])} ...):\n{done.stderr.strip()[-2000:]}"
        )


@contextmanager
def alone(work: str) -> Iterator[None]:
    """Holds a lock that excludes other processes on this machine."""
    cache_folder().mkdir(parents=True, exist_ok=True, mode=0o700)
    with (cache_folder() / f"{work}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _digest(files: list[Path]) -> str:
    digest = hashlib.sha256(f"{sys.version_info[:2]}".encode())
    for path in sorted(files):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(SOURCE)} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:12]
