"""Runs the command line once for each line it reads, in a fork of itself under limits: seconds of
imports are paid once.

A line is JSON, `{"arguments": [...], "folder": ...}`; so is the answer: `{"code": ..., "out": ...,
"errors": ..., "seconds": ...}`.
"""

import json
import os
import resource
import signal
import sys
import time
import traceback
from pathlib import Path

MOST_BYTES = 4 << 30
MOST_SECONDS = 60
MOST_PROCESSES = 200


def limited(folder: str) -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MOST_BYTES, used + MOST_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    here = len([name for name in os.listdir("/proc") if name.isdigit()])
    resource.setrlimit(
        resource.RLIMIT_NPROC, (here + 10 * MOST_PROCESSES, here + 10 * MOST_PROCESSES)
    )
    signal.alarm(MOST_SECONDS)
    os.chdir(folder)
    for number, name in ((1, "out.txt"), (2, "errors.txt")):
        with open(name, "wb") as file:
            os.dup2(file.fileno(), number)


def run(arguments: list[str]) -> int:
    from palestra.cli.main import main

    try:
        main(arguments)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    except BaseException:  # as the interpreter would
        traceback.print_exc()
        return 1
    return 0


def main() -> None:
    import peft
    import torch

    import palestra.learner.checkpoint
    import palestra.models.folder
    import palestra.models.gguf_import
    import palestra.training.evaluation

    torch.set_num_threads(1)
    assert all(
        (
            peft,
            palestra.training.evaluation,
            palestra.models.gguf_import,
            palestra.learner.checkpoint,
            palestra.models.folder,
        )
    )
    answers = os.fdopen(os.dup(1), "w")
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        asked, began = json.loads(line), time.monotonic()
        child = os.fork()
        if child == 0:
            os.setsid()
            limited(asked["folder"])
            code = run(asked["arguments"])
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        _, status = os.waitpid(child, 0)
        out, errors = (
            Path(asked["folder"], name).read_text(errors="replace")
            for name in ("out.txt", "errors.txt")
        )
        code = os.waitstatus_to_exitcode(status)
        print(
            json.dumps(
                {"code": code, "out": out, "errors": errors, "seconds": time.monotonic() - began}
            ),
            file=answers,
            flush=True,
        )


if __name__ == "__main__":
    main()
