"""A worker: it joins the others, opens the run folder and trains.

Only the first worker prints anything.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from palestra.core import process_group as world
from palestra.core.errors import UserError
from palestra.core.files import CannotRead, delete, read_json
from palestra.core.folder_lock import WRITERS_NAME
from palestra.core.interrupts import Interrupted, end_in_time
from palestra.core.log import logging_to
from palestra.core.printing import print_json, print_result
from palestra.envs.serving.watchdog import watchdog

if TYPE_CHECKING:
    from palestra.runs.run import Run
    from palestra.training.preflight import Prepared

log = logging.getLogger(__name__)

LEAVING_S = 30.0
"""How long to wait for the lock of a lost worker that is still exiting."""
MOST_BYTES = 1_000_000
FAILURE = ".failure.json"
"""In the run folder while it is being trained: why a worker gave up."""


class WorkerSpec(msgspec.Struct, frozen=True):
    """What a worker needs to know besides the run folder."""

    folder: str
    overrides: dict[str, Any] = {}
    """Settings that were changed for the rest of the run."""
    display: str = "auto"
    """What a person sees: one of `training.display.DISPLAYS`."""
    notes: list[str] = []
    """Lines to show first."""
    env_urls: dict[str, list[str]] = {}
    """The servers of environments that were started for the duration of the run, by label."""


class Failure(msgspec.Struct, frozen=True):
    """Why a worker gave up."""

    rank: int
    error: str
    message: str
    is_users: bool
    """Whether it is a `UserError`: a restart would fail the same way, and the message is enough."""

    @property
    def line(self) -> str:
        if self.error and not self.is_users:
            return f"worker {self.rank} failed with {self.error}: {self.message}"
        return self.message


class LaunchFailed(UserError, RuntimeError):
    """The run cannot continue; the message says why."""


def work(
    spec: WorkerSpec, leave: Callable[[Failure], None], follow: Callable[[Run], None] | None = None
) -> None:
    """Train as one of several workers.

    An error goes to the launcher through `leave`, and is raised. `follow` is called with the run
    before it begins.
    """
    rank = int(os.environ["RANK"])
    watchdog.is_wanted = True
    with ExitStack() as logs:
        try:
            _join_and_train(spec, follow, logs)
        except Exception as error:
            if not isinstance(error, UserError):
                log.exception("worker %d failed", rank)
            leave(Failure(rank, type(error).__name__, str(error), isinstance(error, UserError)))
            raise


def _join_and_train(
    spec: WorkerSpec, follow: Callable[[Run], None] | None, logs: ExitStack
) -> None:
    from palestra.core.errors import ConfigError
    from palestra.runs.run import ReadOnlyRun, Run

    folder, rank = Path(spec.folder), int(os.environ["RANK"])
    with world.join() as ranks:
        if not folder.is_dir():
            raise ConfigError(
                f"{folder}: worker {rank} on {os.uname().nodename} does not see this "
                "folder; it must be on shared storage"
            )
        run = (Run if ranks.is_first else ReadOnlyRun).open(folder, spec.overrides)
        # The launcher holds the folder's main lock. A lost worker may still hold this one while it
        # exits.
        run.lock_name, run.timeout_s = WRITERS_NAME, LEAVING_S
        if follow is not None:
            follow(run)
        run.interrupts.exit_message = lambda: f"worker {rank} did not leave in time and was ended"
        if ranks.size > 1:
            # A signal to one rank stops all of them, at the same point of the run.
            run.interrupts.together = lambda asked: max(
                map(int, ranks.all_gather_bytes(b"%d" % asked))
            )
        with run.interrupts.installed():
            name = "log.txt" if ranks.is_first else f"log-worker-{ranks.rank}.txt"
            logs.enter_context(logging_to(folder / name))
            _train(
                run, display=spec.display, rank=ranks.rank, env_urls=spec.env_urls, notes=spec.notes
            )


def train_here(
    run: Run, *, display: str = "auto", prepared: Prepared, notes: Sequence[str] = ()
) -> None:
    """Train in this process, in the environments that the checks have created."""
    run.interrupts.exit_message = lambda: f"stopped; {resume_hint(run)}"
    with run.interrupts.installed(), logging_to(run.folder / "log.txt"):
        try:
            _train(run, display=display, prepared=prepared, notes=notes)
        except Interrupted as interrupted:
            say_stopped(run, str(interrupted))
            raise


def _train(
    run: Run,
    *,
    display: str,
    rank: int = 0,
    env_urls: Mapping[str, Sequence[str]] | None = None,
    prepared: Prepared | None = None,
    notes: Sequence[str] = (),
) -> None:
    """Train, and print the run's progress and result if this is the first worker."""
    from palestra.runs.plot import plot_run
    from palestra.training.display import Display, NotebookDisplay, display_for
    from palestra.training.loop import run_training

    if rank > 0:
        run_training(run, Display(), env_urls=env_urls)
        return
    config = run.config
    episodes = config.rollout.tasks * config.rollout.group if config.algo.plays else None
    shown = display_for(display, config.steps, episodes)
    try:
        for line in (f"run folder: {run.folder}", *notes):
            shown.note(line)
        result = run_training(run, shown, env_urls=env_urls, prepared=prepared)
        curve = plot_run(run)
    except Exception:
        # With several workers, the launcher may restart the run; if not, it prints the hint.
        if world.current().size == 1 and not run.is_gone:
            shown.note(f"stopped; {resume_hint(run)}")
        raise
    finally:
        shown.close()
    if display == "json":
        print_json({"run": str(run.folder), "result": result})
    elif display != "none":
        print_result(result)
        if isinstance(shown, NotebookDisplay):
            return  # the next step there is a method of the run, and no command
        print(f"learning curve: {curve}")
        print(f"next: palestra view {run.folder}    (curves and episodes)")
        print(f"      palestra eval {run.folder}    (more tasks: --limit, --k)")


def say_stopped(run: Run, signal_name: str) -> None:
    when = " after the final evaluation" if is_over(run) else ""
    print(
        f"palestra: stopped by {signal_name}{when}; {resume_hint(run)}", file=sys.stderr, flush=True
    )


def resume_hint(run: Run) -> str:
    from palestra.learner.checkpoint import newest, step_of

    if is_over(run):
        return f"the run is over, and all of it is in {run.folder}"
    found = newest(run.checkpoints)
    if found is not None:
        what = f"saved up to step {step_of(found)}, resume"
    elif run.config.save.every:
        what = "nothing was saved yet, begin again"
    else:
        what = "nothing is saved (save.every = 0), begin again"
    return f"{what} with: palestra train --resume {run.folder}"


def is_over(run: Run) -> bool:
    """Whether this command has made the final evaluation, here or in the first worker."""
    if run.is_complete:
        return True
    # Written by a worker, it is newer than this command; one of an earlier command is older.
    finals = [path for path in (run.folder / "eval").glob("step-*-final.json") if path.is_file()]
    written = max((path.stat().st_mtime for path in finals), default=0.0)
    return written >= run.opened_at


def leave_failure(folder: Path, failure: Failure) -> None:
    """Tell the launcher why this worker failed.

    The first failure counts, since the others tend to follow from it, unless a later one is a
    `UserError`.
    """
    known = read_failure(folder)
    if folder.is_dir() and (known is None or (failure.is_users and not known.is_users)):
        draft = folder / f"{FAILURE}.{failure.rank}"
        draft.write_bytes(msgspec.json.encode(failure))
        draft.replace(folder / FAILURE)


def read_failure(folder: Path) -> Failure | None:
    try:
        return msgspec.convert(read_json(folder / FAILURE, most_bytes=MOST_BYTES), Failure)
    except (CannotRead, msgspec.ValidationError):
        return None


def forget_failure(folder: Path) -> None:
    delete(folder / FAILURE)


def say_restart(run: Run, reason: str, restart: int) -> None:
    from palestra.learner.checkpoint import newest

    found = newest(run.checkpoints)
    where = f"from {found.name}" if found else "from the beginning"
    print(
        f"{reason}; all workers continue {where} "
        f"(restart {restart} of {run.config.launch.restarts})",
        file=sys.stderr,
        flush=True,
    )


def _leave_with(parent: int) -> None:
    """Exit when the launcher was killed: no other process would stop this worker."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def main() -> None:
    """A worker of a local launch: its command line has its `WorkerSpec` and its launcher's pid."""
    spec, parent = msgspec.json.decode(sys.argv[1], type=WorkerSpec), int(sys.argv[2])
    threading.Thread(target=_leave_with, args=(parent,), daemon=True).start()
    code = 1
    try:
        work(spec, partial(leave_failure, Path(spec.folder)))
        code = 0
    except Interrupted as interrupted:
        sys.stdout.flush()
        os._exit(interrupted.exit_code)  # skips the cleanup of abandoned work
    except KeyboardInterrupt:
        code = 130
        raise SystemExit(code) from None
    # The error is in the log, and the launcher prints its message.
    except Exception as error:  # noqa: BLE001
        code = 2 if isinstance(error, UserError) else 1
        raise SystemExit(code) from None
    finally:
        end_in_time(code)
