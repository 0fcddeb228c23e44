"""A child process in which what strangers wrote is tried: what hangs, crashes or takes all memory
there costs one answer.

The child has neither the parent's environment variables nor its descriptors, writes no files, and
dies with its question's deadline.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import struct
import subprocess
import sys
import threading
import time
from contextlib import suppress
from importlib import import_module
from typing import IO, Any, TypedDict

import psutil

from palestra.core.untrusted import terminal_safe

START_S = 120.0
"""For the child's imports: disks may be slow."""
MOST_ANSWER = 1 << 24
KEPT_VARIABLES = (
    "PATH",
    "HOME",
    "TZ",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "LD_LIBRARY_PATH",
    "TMPDIR",
    "HF_HOME",
    "HF_HUB_CACHE",
)
"""Of the environment. Tokens are not among them."""
BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from palestra.core.confined "
    "import serve; serve(*sys.argv[2:])"
)


class Limits(TypedDict):
    """Of one question."""

    seconds: float
    memory_mb: int


class Refused(Exception):
    """The child's function raised this."""


class Overran(Exception):
    """There was no answer: the child took too long, or ended."""


class Confined:
    """Answers questions one by one by a function of a module, `module:function`, from JSON to JSON.

    The child starts with the first question, and again after one that it did not survive.
    """

    def __init__(self, target: str) -> None:
        self.target = target
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def ask(self, question: Any, *, seconds: float, memory_mb: int) -> Any:
        """`Refused` where the function raised, `Overran` where there is no answer."""
        with self._lock:
            if self._child is None or self._owner != os.getpid():
                self._child = self._begin()
            try:
                _send(_pipe(self._child.stdin), [question, seconds, memory_mb])
                answer = self._receive(seconds)
            except Overran:
                self._end()
                raise
            except OSError as error:
                raise Overran(self._why_ended(seconds)) from error
        if "refusal" in answer:
            raise Refused(answer["refusal"])
        return answer["answer"]

    def close(self) -> None:
        with self._lock:
            self._end()

    def _begin(self) -> subprocess.Popen[bytes]:
        self._owner = os.getpid()
        self._child = subprocess.Popen(  # noqa: S603  our own program
            [sys.executable, "-I", "-c", BOOT, json.dumps(sys.path), self.target],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
            | {"HF_HUB_OFFLINE": "1"},
            start_new_session=True,  # so that the keyboard's interrupt is not for it
        )
        self._receive(START_S)
        return self._child

    def _receive(self, seconds: float) -> Any:
        assert self._child is not None
        source, until, received = (
            _pipe(self._child.stdout).fileno(),
            time.monotonic() + seconds,
            b"",
        )
        poll = select.poll()  # select() knows no descriptors above 1,023
        poll.register(source, select.POLLIN)
        wanted = 8
        while len(received) < wanted:
            left = until - time.monotonic()
            if left <= 0 or not poll.poll(1000 * left):
                raise Overran(f"it took more than {seconds:g} s")
            if not (piece := os.read(source, 1 << 20)):
                raise Overran(self._why_ended(seconds))
            received += piece
            if len(received) >= 8 and wanted == 8:
                wanted += struct.unpack("<Q", received[:8])[0]
                if wanted > MOST_ANSWER:
                    raise Overran(f"it came to more than {MOST_ANSWER >> 20} MB")
        return json.loads(received[8:])

    def _why_ended(self, seconds: float) -> str:
        assert self._child is not None
        code = self._child.wait()
        self._child = None
        if code == -signal.SIGALRM:
            return f"it took more than {seconds:g} s"
        return (
            "it ended the process that tried it "
            f"({signal.Signals(-code).name if code < 0 else f'exit code {code}'})"
        )

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is None or self._owner != os.getpid():
            return
        child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout):
            with suppress(OSError):
                _pipe(pipe).close()


def serve(target: str) -> None:
    """In the child: answer until the parent is gone."""
    questions, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "r+b") as nowhere:  # whatever is read or printed by others
        os.dup2(nowhere.fileno(), 0)
        os.dup2(nowhere.fileno(), 1)
    module, _, name = target.partition(":")
    function = getattr(import_module(module), name)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # to write is an error, not the end
    _send(answers, {"answer": "ready"})
    while head := questions.read(8):
        question, seconds, memory_mb = json.loads(questions.read(struct.unpack("<Q", head)[0]))
        _limit_memory(memory_mb)
        signal.alarm(int(seconds) + 2)  # by its own clock, too: the parent may be dead
        try:
            answer = {"answer": function(question)}
        except MemoryError:
            answer = {"refusal": f"it needs more than {memory_mb} MB"}
        except BaseException as error:  # noqa: BLE001  panics of libraries in Rust are no Exceptions
            answer = {"refusal": in_one_line(error)}
        _send(answers, answer)
        signal.alarm(0)


def _limit_memory(memory_mb: int) -> None:
    """To so much more than is in use."""
    used = psutil.Process().memory_info().vms
    with suppress(OSError, ValueError):  # not every system has this limit
        resource.setrlimit(resource.RLIMIT_AS, (used + (memory_mb << 20), resource.RLIM_INFINITY))


def _send(pipe: IO[bytes], message: Any) -> None:
    content = json.dumps(message, default=str).encode()
    pipe.write(struct.pack("<Q", len(content)) + content)
    pipe.flush()


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe


SPEAKING = (
    "ValueError",
    "OSError",
    "RuntimeError",
    "ImportError",
    "NotImplementedError",
    "ConfigError",
    "TemplateError",
    "BadModel",
    "Refused",
    "Overran",
)
"""Errors whose message is a sentence. Others are shown with their names."""


def in_one_line(error: BaseException, most: int = 300) -> str:
    """The first line of an error's message, with nothing in it that a terminal would obey."""
    try:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    except Exception:  # noqa: BLE001  a stranger's error may not even have a text
        lines = []
    name = type(error).__name__
    text = (lines[0] if name in SPEAKING else f"{name}: {lines[0]}") if lines else name
    return terminal_safe(text if len(text) <= most else f"{text[:most]}...")
