"""Commands in children of one process that has imported the command line, so that a hundred of
them take seconds.

As a program: reads a JSON object a line, and answers with one.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "transformers")


@dataclass
class Answer:
    """What a command has done."""

    code: int
    out: str
    err: str
    cpu: float
    """Seconds of processor time, those of the imports of the command line included."""
    heavy: list[str]
    """Packages that were imported and take seconds."""
    left: list[str]
    """Files and folders that were not there before."""


class Commands:
    """Runs commands until it is closed."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.forked_commands"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )

    def run(self, arguments: list[str], folder: Path, missing: tuple[str, ...] = ()) -> Answer:
        """`missing`: packages that are not installed for this command."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        asked = {"arguments": arguments, "folder": str(folder), "missing": missing}
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        return Answer(**json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


class Without:
    """Finds modules as Python does, except those of some packages."""

    def __init__(self, missing: list[str]) -> None:
        self.missing = missing

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        if name.partition(".")[0] in self.missing:
            return None
        return PathFinder.find_spec(name, path, target)  # type: ignore[arg-type]


def main() -> None:
    from palestra.cli.main import main as command

    imports = _seconds(resource.getrusage(resource.RUSAGE_SELF))
    for line in sys.stdin:
        asked = json.loads(line)
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            receiving, sending = os.pipe()
            child = os.fork()
            if child == 0:
                os.dup2(out.fileno(), 1)
                os.dup2(err.fileno(), 2)
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                sys.stdin = open(0)  # noqa: SIM115
                _run(command, sending, **asked)
            os.close(sending)
            with open(receiving) as told:
                text = told.read()
            _, status, usage = os.wait4(child, 0)
            outcome = json.loads(text or json.dumps({"code": -status, "heavy": [], "left": []}))
            out.seek(0)
            err.seek(0)
            cpu = imports + _seconds(usage)
            print(json.dumps({**outcome, "out": out.read(), "err": err.read(), "cpu": cpu}))
            sys.stdout.flush()


def _run(command, sending: int, arguments: list[str], folder: str, missing: list[str]) -> None:  # type: ignore[no-untyped-def]
    resource.setrlimit(resource.RLIMIT_CPU, (30, 30))  # a command that is no mistake after all
    os.chdir(folder)
    before = _files()
    if missing:
        position = sys.meta_path.index(PathFinder)
        sys.meta_path[position] = Without(missing)  # type: ignore[call-overload]
    code: object = 0
    try:
        command(arguments)
    except SystemExit as end:
        code = end.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    with contextlib.suppress(ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    heavy = [name for name in HEAVY if name in sys.modules]
    outcome = {"code": code, "heavy": heavy, "left": sorted(_files() - before)}
    os.write(sending, json.dumps(outcome).encode())
    os._exit(0)


def _files() -> set[str]:
    return {str(path) for path in Path().rglob("*") if "__pycache__" not in path.parts}


def _seconds(usage: resource.struct_rusage) -> float:
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
