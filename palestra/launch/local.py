"""Workers on this host, by torch elastic: they start together, and when one is lost, all restart
from the newest checkpoint.
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
"""The signals that torch elastic passes on to the workers."""
LEAVING_S = 600
"""How long workers may take to save and exit after a signal. A second signal does not wait."""


def launch_local(run: Run, spec: WorkerSpec) -> None:
    """Train with workers on this host, and restart them `launch.restarts` times.

    Each attempt is a launch of its own with a new rendezvous: what a lost worker left in the old
    one confuses gloo.
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
                # If the folder is gone, the worker could not report its failure, and a restart
                # would fail as well.
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
    """Returns when all workers have exited."""
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
    """The cause of the failure: a `UserError` of a worker, else a worker that was killed, else what
    a worker reported.
    """
    said = read_failure(folder)
    if said is not None and said.is_users:
        return said
    for rank, failed in sorted(error.failures.items()):
        # Elastic itself sends SIGTERM to the workers that are left.
        if failed.exitcode < 0 and failed.exitcode != -signal.SIGTERM:
            why = f"worker {rank} was lost (killed by {failed.signal_name()})"
            return Failure(rank, "", why, False)
    if said is not None:
        return said
    rank, failed = error.get_first_failure()
    return Failure(rank, "", f"worker {rank} was lost (exit code {failed.exitcode})", False)


@contextmanager
def _elastic_behaves() -> Iterator[None]:
    """Silence torch elastic's long error reports, which we replace by one line, and restore the
    signal handlers that it leaves behind.
    """
    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(LEAVING_S))
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    silenced: list[logging.Logger] = []
    for name in list(logging.root.manager.loggerDict):
        logger = logging.getLogger(name)
        if name.startswith("torch.distributed.") and not logger.disabled:
            silenced.append(logger)
            logger.disabled = True
    try:
        yield
    finally:
        for logger in silenced:
            logger.disabled = False
        for number, handler in handlers.items():
            signal.signal(number, handler)
