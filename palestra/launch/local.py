"""Workers on this host, by torch elastic: they start together, and when one is lost all go on
together from the newest checkpoint.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from palestra.core.interrupts import Interrupted
from palestra.launch.worker import (
    Failure,
    LaunchFailed,
    WorkerSpec,
    forget_failure,
    read_failure,
    resume_hint,
    say_restart,
    say_stopped,
)
from palestra.runs.run import Run

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
"""Those that torch elastic passes on to the workers."""
LEAVING_S = 600
"""For workers to save and leave when they are told to stop. A second signal does not wait."""


def launch_local(run: Run, spec: WorkerSpec) -> None:
    """Each attempt is a launch of its own, with a fresh meeting point: what a lost worker left in
    the old one confuses gloo.
    """
    restarts = run.config.launch.restarts
    with _elastic_behaves():
        for attempt in range(restarts + 1):
            forget_failure(run.folder)
            try:
                _start_workers(run.config.launch.workers, spec)
                return
            except SignalException as stopped:
                say_stopped(run, stopped.sigval.name)
                raise Interrupted(stopped.sigval) from None
            except ChildFailedError as error:
                # where it is gone, the worker could not leave word, and another one would not find
                # it either
                run.check_folder()
                failure = _failure(run.folder, error)
            finally:
                forget_failure(run.folder)
            if failure.is_users:
                raise LaunchFailed(failure.line)
            if attempt < restarts:
                say_restart(run, failure.line, attempt + 1)
    raise LaunchFailed(
        f"{failure.line}; the run was restarted {restarts} times, {resume_hint(run)}"
    )


def _start_workers(workers: int, spec: WorkerSpec) -> None:
    """Returns when all of them are done."""
    with tempfile.TemporaryDirectory(prefix="palestra-launch-") as logs:
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=workers,
            run_id=Path(logs).name,
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            local_addr="127.0.0.1",
            max_restarts=0,
            monitor_interval=0.1,
            logs_specs=DefaultLogsSpecs(log_dir=logs),
        )
        described = msgspec.json.encode(spec).decode()
        elastic_launch(config, sys.executable)("-m", "palestra.launch", described, str(os.getpid()))


def _failure(folder: Path, error: ChildFailedError) -> Failure:
    """What broke the run: an error that somebody must mend, else a worker that was killed, else
    what a worker said.
    """
    said = read_failure(folder)
    if said is not None and said.is_users:
        return said
    for rank, failed in sorted(error.failures.items()):
        if (
            failed.exitcode < 0 and failed.exitcode != -signal.SIGTERM
        ):  # which elastic itself sends to those that are left
            return Failure(
                rank, "", f"worker {rank} was lost (killed by {failed.signal_name()})", False
            )
    if said is not None:
        return said
    rank, failed = error.get_first_failure()
    return Failure(rank, "", f"worker {rank} was lost (exit code {failed.exitcode})", False)


@contextmanager
def _elastic_behaves() -> Iterator[None]:
    """It reports at length on what we say in a line,
    and leaves its own handling of signals behind.
    """
    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(LEAVING_S))
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    loggers = [
        logging.getLogger(name)
        for name in list(logging.root.manager.loggerDict)
        if name.startswith("torch.distributed.")
    ]
    loud = [logger for logger in loggers if not logger.disabled]
    for logger in loud:
        logger.disabled = True
    try:
        yield
    finally:
        for logger in loud:
            logger.disabled = False
        for number, handler in handlers.items():
            signal.signal(number, handler)
