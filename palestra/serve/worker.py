"""`python -m palestra.serve.worker NAME OPTIONS`: plays one environment over lines of JSON on stdin and stdout."""

from __future__ import annotations

import os
import sys
from typing import Any

import msgspec

from palestra.envs import envs
from palestra.types import Task


def main() -> None:
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what libraries print must not end up among the answers
    env = envs[sys.argv[1]](**msgspec.json.decode(sys.argv[2]))
    for line in sys.stdin.buffer:
        answers.write(msgspec.json.encode(_answer(env, *msgspec.json.decode(line))) + b"\n")
    env.close()


def _answer(env: Any, method: str, argument: Any) -> dict[str, Any]:
    calls = {
        "reset": lambda: env.reset(msgspec.convert(argument, Task)),
        "step": lambda: env.step(argument),
        "actions": lambda: env.actions(),
        "expert": lambda: env.expert(),
    }
    try:
        return {"result": calls[method]()}
    except Exception as error:  # noqa: BLE001  it goes back to the caller as a fault
        return {"error": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    main()
