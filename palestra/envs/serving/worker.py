"""`python -m palestra.envs.serving.worker SOCKET PARENT`: plays environments of one kind, one call
after another.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from typing import Any

import msgspec

from palestra.core.types import Task
from palestra.envs import Environment, envs
from palestra.envs.serving.about import ASKED, told
from palestra.envs.serving.forks import contained, die_with_parent
from palestra.envs.serving.frames import CHUNK, Call, Frames, framed
from palestra.envs.serving.validation import ValidatedEnv, described


def main() -> None:
    descriptor, parent = map(int, sys.argv[1:3])
    if parent:
        _die_with(parent)
    # Only the trainer reacts to Ctrl-C. An environment that sends SIGINT to its own process must
    # not end the worker either.
    signal.signal(signal.SIGINT, lambda *_: None)
    player, frames, decoder = _Player(), Frames(), msgspec.msgpack.Decoder(Call)
    with socket.socket(fileno=descriptor) as pool:
        while data := pool.recv(CHUNK):
            for body in frames.feed(data):
                # Sent at once, because the next call may hang.
                pool.sendall(player.answer(decoder.decode(body)))
    player.close()


def _die_with(parent: int) -> None:
    """Leave when the process that asks is gone, even in the middle of a call that never ends and
    never lets go of the interpreter.
    """
    die_with_parent(parent)
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    os.killpg(0, signal.SIGKILL)


class _Player:
    """The environments of this process, by number."""

    def __init__(self) -> None:
        self._kind: type[Environment] | None = None
        self._options: dict[str, Any] = {}
        self._instances: dict[int, ValidatedEnv] = {}

    def answer(self, call: Call) -> bytes:
        began = time.perf_counter()
        try:
            # Without `contained`, a child that the environment forks would return here and answer
            # the call a second time.
            with contained(may_exit=True):
                result = self._play(call)
            return framed((call.id, time.perf_counter() - began, None, result))
        # Whatever it raises is this episode's fault and no other's.
        except BaseException as error:  # noqa: BLE001
            return framed((call.id, time.perf_counter() - began, described(error), None))

    def _play(self, call: Call) -> Any:
        match call.method:
            case "boot":
                name, self._options, open_files = call.argument
                _limit_open_files(open_files)
                self._kind = envs[name]
            case "make":
                assert self._kind is not None
                self._instances[call.instance] = ValidatedEnv(self._kind(**self._options))
            case "reset":
                return self._instances[call.instance].reset(msgspec.convert(call.argument, Task))
            case "step":
                return self._instances[call.instance].step(call.argument)
            case "actions":
                return self._instances[call.instance].actions()
            case "expert":
                return self._instances[call.instance].expert()
            case "scene":
                return self._instances[call.instance].scene()
            case what if what in ASKED:
                return told(self._instances[call.instance].env, what, call.argument)
            case "drop":
                played = self._instances.pop(call.instance, None)
                if played is not None:
                    played.env.close()
            case _:
                raise ValueError(f"there is no call {call.method!r}")
        return None

    def close(self) -> None:
        for played in self._instances.values():
            with suppress(BaseException), contained(may_exit=True):
                played.env.close()


def _limit_open_files(count: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = count if hard == resource.RLIM_INFINITY else min(count, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


if __name__ == "__main__":
    main()
