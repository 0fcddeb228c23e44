"""Workers on the hosts of a Ray cluster, by Ray Train.

Ray Train replaces lost workers; the run is resumed from our own newest checkpoint.
"""

from __future__ import annotations

import io
import logging
import os
import secrets
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from palestra.core.credentials import HOSTS_VARIABLE, TOKEN_VARIABLE, name_host
from palestra.core.errors import ConfigError
from palestra.core.interrupts import Interrupted
from palestra.envs.serving.main import ServerSettings
from palestra.launch.env_servers import CAPACITY, EnvServer, served, urls_by_label
from palestra.launch.worker import Failure, LaunchFailed, WorkerSpec, resume_hint, say_stopped, work
from palestra.runs.run import Run

# Paths in a recipe are relative to the folder where the run was started.
os.environ.setdefault("RAY_CHDIR_TO_TRIAL_DIR", "0")

try:
    import ray
    from ray.train import FailureConfig, RunConfig, ScalingConfig, TrainingFailedError
    from ray.train.torch import TorchConfig, TorchTrainer
except ImportError as error:
    raise ConfigError(
        "launch.kind = 'ray': Ray is not installed; pip install 'palestra[ray]'"
    ) from error


STORAGE = ".ray"
"""In the run folder while it is being trained: Ray Train's own records."""
NO_CLUSTER = "there is no Ray cluster to be reached"
SHOW_EVERY_S = 0.5
STOP_EVERY_S = 1.0


class Board:
    """An actor that outlives the workers: it holds their token, the first worker's output, and the
    reason of a failure.
    """

    def __init__(self, token: str, restarts: int) -> None:
        self._token, self._restarts = token, restarts
        self._attempts = 0
        self._shown: list[str] = []
        self._failure: Failure | None = None
        self._stop = 0

    def token(self) -> str:
        return self._token

    def begin(self) -> None:
        """Called by the first worker of every attempt."""
        self._attempts += 1
        if self._attempts > 1:
            why = self._failure.line if self._failure is not None else "a worker was lost"
            self.show(
                f"{why}; all workers continue from the newest checkpoint (restart "
                f"{self._attempts - 1} of {self._restarts})\n"
            )
        self._failure = None

    def show(self, text: str) -> None:
        self._shown.append(text)

    def take_shown(self) -> str:
        text = "".join(self._shown)
        self._shown.clear()
        return text

    def leave(self, failure: Failure) -> None:
        """Record why a worker failed. The first failure counts, unless a later one is a
        `UserError`.
        """
        if self._failure is None or (failure.is_users and not self._failure.is_users):
            self._failure = failure

    def failure(self) -> Failure | None:
        return self._failure

    def ask_to_stop(self, number: int) -> None:
        self._stop = number

    def stop(self) -> int:
        """The signal that the command received, or 0."""
        return self._stop


class Shown(io.TextIOBase):
    """The stdout of a worker, sent to the terminal that the run was started from."""

    def __init__(self, board: Any) -> None:
        self._board = board

    def write(self, text: str) -> int:
        self._board.show.remote(text)
        return len(text)


def launch_on_ray(run: Run, spec: WorkerSpec) -> None:
    settings = run.config.launch
    with _cluster(run):
        token = os.environ.get(TOKEN_VARIABLE) or secrets.token_urlsafe(24)
        board: Any = ray.remote(num_cpus=0)(Board).remote(token, settings.restarts)
        servers = _start_env_servers(run, token)
        addresses = ray.get([server.address.remote() for server in servers])
        spec = msgspec.structs.replace(spec, env_urls=urls_by_label(run.config, addresses))
        told = {
            "assignment": spec,
            "board": board,
            "cwd": os.getcwd(),
            "hosts": os.environ.get(HOSTS_VARIABLE, ""),
        }
        lost = _fit(run, _trainer(run, told), board)
        failure: Failure | None = ray.get(board.failure.remote())
        run.check_folder()
        if failure is not None and failure.is_users:
            raise LaunchFailed(failure.line)
        if lost is not None:
            said = failure.line if failure is not None else str(lost).strip().splitlines()[-1]
            raise LaunchFailed(
                f"{said}; the run was restarted {settings.restarts} times, {resume_hint(run)}"
            )


def _fit(run: Run, trainer: TorchTrainer, board: Any) -> TrainingFailedError | None:
    """Wait until the run has ended or has failed. Prints the first worker's output, and passes
    signals on to it.

    Ray Train runs in a thread of its own: in the main thread it would handle Ctrl-C itself.
    """
    fitted: Future[None] = Future()

    def fit() -> None:
        try:
            trainer.fit()
            fitted.set_result(None)
        except Exception as error:  # noqa: BLE001  the main thread raises it
            fitted.set_exception(error)

    threading.Thread(target=fit, daemon=True).start()
    stopped: Interrupted | None = None
    while not fitted.done():
        try:
            wait([fitted], SHOW_EVERY_S)
            print(ray.get(board.take_shown.remote()), end="", flush=True)
        except Interrupted as interrupted:
            if stopped is not None:  # the second signal
                # Not by an exception: to disconnect while Ray Train waits would crash.
                say_stopped(run, str(interrupted))
                os._exit(interrupted.exit_code)
            stopped = interrupted
            ray.get(board.ask_to_stop.remote(interrupted.exit_code - 128))
    if stopped is not None:
        raise stopped
    error = fitted.exception()
    if error is not None and not isinstance(error, TrainingFailedError):
        raise error
    return error


def _stop(number: int, frame: object) -> NoReturn:
    raise Interrupted(number)


@contextmanager
def _cluster(run: Run) -> Iterator[None]:
    """Connect to the configured cluster, or start one on this host for the duration of the run."""
    settings = run.config.launch
    address = settings.address or os.environ.get("RAY_ADDRESS", "")
    own: dict[str, Any] = {
        "num_cpus": max(os.cpu_count() or 1, settings.workers + settings.env_servers),
        "include_dashboard": False,
    }
    _check_reachable(address)
    try:
        ray.init(
            address=address or "local",
            log_to_driver=False,
            logging_level=logging.ERROR,
            **({} if address else own),
        )
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ConfigError(f"launch.address = {address!r}: {NO_CLUSTER}: {error}") from error
    before = {number: signal.signal(number, _stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except Interrupted as interrupted:
        say_stopped(run, str(interrupted))
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        ray.shutdown()
        shutil.rmtree(run.folder / STORAGE, ignore_errors=True)


def _check_reachable(address: str) -> None:
    """Fail within 10 s if the cluster cannot be reached; Ray itself tries for minutes."""
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or "/" in address:
        return
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except OSError as error:
        raise ConfigError(f"launch.address = {address!r}: {NO_CLUSTER}: {error}") from error


def _trainer(run: Run, told: dict[str, Any]) -> TorchTrainer:
    settings = run.config.launch
    resources = ray.cluster_resources()
    has_gpus = run.config.device != "cpu" and resources.get("GPU", 0) > 0
    kind = "GPU" if has_gpus else "CPU"
    available = resources.get(kind, 0)
    if available < settings.workers:
        waiting = (
            f"launch.workers = {settings.workers}: the cluster has "
            f"{available:.0f} {kind}s; waiting for more"
        )
        print(waiting, file=sys.stderr, flush=True)
    return TorchTrainer(
        _loop,
        train_loop_config=told,
        torch_config=TorchConfig(backend="cpu:gloo,cuda:nccl" if has_gpus else "gloo"),
        scaling_config=ScalingConfig(num_workers=settings.workers, use_gpu=has_gpus),
        run_config=RunConfig(
            name=STORAGE,
            storage_path=str(run.folder.resolve()),
            failure_config=FailureConfig(max_failures=settings.restarts),
        ),
    )


def _loop(told: dict[str, Any]) -> None:
    """The function that Ray Train runs on every worker, and again after a failure."""
    board = told["board"]
    failure = ray.get(board.failure.remote())
    # A restart would fail the same way. Ray Train cannot be told to give up, so the workers of the
    # next attempt just return, and the launcher raises the error.
    if failure is not None and failure.is_users:
        return
    if Path(told["cwd"]).is_dir():
        os.chdir(told["cwd"])
        sys.path.insert(0, told["cwd"])
    os.environ[TOKEN_VARIABLE] = ray.get(board.token.remote())
    os.environ[HOSTS_VARIABLE] = told["hosts"]
    for urls in told["assignment"].env_urls.values():  # of servers that this run has started
        for url in urls:
            name_host(url)
    if os.environ["RANK"] == "0":
        ray.get(board.begin.remote())
    try:
        with redirect_stdout(Shown(board)):
            work(
                told["assignment"],
                lambda failure: ray.get(board.leave.remote(failure)),
                partial(_follow, board),
            )
    except Interrupted:
        pass  # all workers exit together
    finally:
        # An actor handles a worker's calls in order: with this answer, all output has arrived.
        ray.get(board.failure.remote())


def _follow(board: Any, run: Run) -> None:
    """Pass a signal of the command on to the run, since Ray's workers receive none."""

    def look() -> None:
        while not (number := ray.get(board.stop.remote())):
            time.sleep(STOP_EVERY_S)
        run.interrupts.ask(number)

    threading.Thread(target=look, daemon=True).start()


def _start_env_servers(run: Run, token: str) -> list[Any]:
    """Spread over the cluster's hosts."""
    if not run.config.launch.env_servers:
        return []
    settings = msgspec.json.encode(
        ServerSettings(served(run.config), capacity=CAPACITY, tokens=(token,))
    )
    kind = ray.remote(num_cpus=1, scheduling_strategy="SPREAD")(EnvServer)
    return [kind.remote(settings) for _ in range(run.config.launch.env_servers)]
