"""`python -m palestra.serve.worker NAME OPTIONS`: plays one environment over lines of JSON on stdin and stdout."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Any

import msgspec

from palestra.envs import envs
from palestra.serve.handle import checked
from palestra.types import Task


def main() -> None:
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what libraries print must not end up among the answers
    threading.Thread(target=_die_with, args=(os.getppid(),), daemon=True).start()
    env = envs[sys.argv[1]](**msgspec.json.decode(sys.argv[2]))
    for line in sys.stdin.buffer:
        answers.write(msgspec.json.encode(_answer(env, *msgspec.json.decode(line))) + b"\n")
    env.close()


def _die_with(parent: int) -> None:
    """Leave when the process that asks is gone, even in the middle of a call that never ends."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def _answer(env: Any, method: str, argument: Any) -> dict[str, Any]:
    calls = {
        "reset": lambda: env.reset(msgspec.convert(argument, Task)),
        "step": lambda: checked(env.step(argument)),
        "actions": lambda: env.actions(),
        "expert": lambda: env.expert(),
    }
    try:
        return {"result": calls[method]()}
    except Exception as error:  # noqa: BLE001  it goes back to the caller as a fault
        return {"error": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    main()
