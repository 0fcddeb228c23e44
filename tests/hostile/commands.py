"""`python -m tests.hostile.commands`: many commands of Palestra's, one after another in one
process, each with what came of it.

Imports take seconds, a command on a small run a fraction of one. The process has limits on time,
memory and processes.
"""

import contextlib
import io
import json
import os
import resource
import signal
import subprocess
import sys
import traceback
from pathlib import Path

from palestra.runs import plot

ROOT = Path(__file__).parents[2]
DATA_BYTES = 6 << 30
PROCESSES = 4000
CASE_S = 60


class Commands:
    """The process, for those who ask it: `commands("train", "--resume", folder)` returns exit code,
    output and errors.
    """

    def __init__(self):
        environment = os.environ | {
            "OMP_NUM_THREADS": "1",
            "OMP_WAIT_POLICY": "PASSIVE",
            "PYTHONPATH": str(ROOT),
        }
        command = [sys.executable, "-m", "tests.hostile.commands"]
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *arguments):
        self.process.stdin.write(json.dumps([str(argument) for argument in arguments]) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, f"{arguments}: the process is gone, exit code {self.process.wait()}"
        found = json.loads(answer)
        assert "Traceback" not in found["errors"], found["errors"]
        return found["code"], found["out"], found["errors"]

    def close(self):
        self.process.stdin.close()
        self.process.wait(20)


def limit():
    resource.setrlimit(resource.RLIMIT_DATA, (DATA_BYTES, DATA_BYTES))
    _, most = resource.getrlimit(resource.RLIMIT_NPROC)
    processes = PROCESSES if most == resource.RLIM_INFINITY else min(PROCESSES, most)
    resource.setrlimit(resource.RLIMIT_NPROC, (processes, processes))


class TookTooLong(Exception):
    pass


def take_too_long(number, frame):
    raise TookTooLong


def answer(arguments):
    import logging

    from palestra.cli.main import main

    out, errors = io.StringIO(), io.StringIO()
    code = 0
    signal.signal(signal.SIGALRM, take_too_long)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        signal.alarm(CASE_S)
        try:
            main(arguments)
        except SystemExit as ended:
            code = ended.code or 0
        except BaseException:
            code = 1
            errors.write(traceback.format_exc())
        finally:
            signal.alarm(0)
    for handler in logging.getLogger("palestra").handlers[:]:
        handler.close()
        logging.getLogger("palestra").removeHandler(handler)
    return {"code": code, "out": out.getvalue(), "errors": errors.getvalue()}


def main():
    limit()
    # A curve takes longer than all the rest.
    plot.plot_run = lambda run: run.folder / "curve.png"
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        answers.write(json.dumps(answer(json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
