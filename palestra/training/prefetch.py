"""Prefetching: the episodes of the next step are played in a thread while the learner updates.

The episodes depend on weight versions and never on timing: there is a barrier after every step, and
weights are synced only there.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec
import torch

from palestra.core.event_loop import GRACE_S, EventLoop
from palestra.core.files import read_regular
from palestra.learner.checkpoint import BadCheckpoint
from palestra.rollout.groups import RolloutBatch
from palestra.runs.run import Run
from palestra.runs.state import State
from palestra.training.data_sources import DataSource, OnDone, StepData, played
from palestra.training.setup import Components

log = logging.getLogger(__name__)

FILE = "prefetch.json"
"""In a checkpoint: the episodes of the next step, whose weights no longer exist."""
STARTING_S = 0.05
"""More than enough time for a thread to start."""


@dataclass(frozen=True, slots=True)
class _Played:
    """The episodes of a step that was not trained on yet, as a checkpoint stores them."""

    rollouts: RolloutBatch
    state: State


class PrefetchSource(DataSource):
    """Collects the next step while the learner updates on this one."""

    def __init__(self, run: Run, components: Components, source: DataSource, state: State) -> None:
        self.run, self.components, self.source = run, components, source
        self._next = self._stored(state)
        is_cuda = components.learner.model.device.type == "cuda"
        self._stream = torch.cuda.Stream() if is_cuda else None

    def next_batch(self, state: State, on_done: OnDone) -> StepData:
        return self.source.next_batch(state, on_done) if self._next is None else self._next

    @contextmanager
    def overlap(self, state: State, on_done: OnDone) -> Iterator[None]:
        if state.step == self.run.config.steps:
            self._next = None
            yield
            return
        if self._stream is not None:
            # The weights were synced on the current stream.
            self._stream.wait_stream(torch.cuda.current_stream())
        playing = _Playing(lambda: self._play(state, on_done), self.components.loop)
        try:
            playing.begin()
            yield
            learned = time.monotonic()
            with self.run.timed("collect"):
                self._next = playing.outcome.result()
        except BaseException:
            playing.stop()
            raise
        self.run.seconds["collect_hidden"] = min(learned, playing.ended) - playing.began

    def files(self) -> dict[str, bytes]:
        if self._next is None or self._next.rollouts is None:
            return {}
        return {FILE: msgspec.json.encode(_Played(self._next.rollouts, self._next.state))}

    def _play(self, state: State, on_done: OnDone) -> StepData:
        """Runs in the thread, and on a CUDA stream of its own, so that it does not wait for the
        learner's kernels.
        """
        if self._stream is None:
            return self.source.next_batch(state, on_done)
        with torch.cuda.stream(self._stream):
            data = self.source.next_batch(state, on_done)
            self._stream.synchronize()  # the barrier after the step must cover the GPU's work, too
        return data

    def _stored(self, state: State) -> StepData | None:
        path = self.run.checkpoint(state.step) / FILE
        if not path.is_file():
            return None
        try:
            found = msgspec.json.decode(read_regular(path), type=_Played)
        except (OSError, ValueError, RecursionError) as error:
            raise BadCheckpoint(f"{path} is damaged: {error}") from error
        return played(self.run.config, found.rollouts, found.state)


class _Playing:
    """One step's episodes, in a thread that owns the event loop until they are over."""

    def __init__(self, play: Callable[[], StepData], loop: EventLoop) -> None:
        self.outcome: Future[StepData] = Future()
        self.began = self.ended = time.monotonic()
        self._play, self._loop = play, loop
        self._thread = threading.Thread(target=self._run, name="collecting", daemon=True)

    def begin(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        try:
            data = self._play()
        except BaseException as error:  # noqa: BLE001  the main thread raises it
            self.ended = time.monotonic()
            self.outcome.set_exception(error)
        else:
            self.ended = time.monotonic()
            self.outcome.set_result(data)

    def stop(self) -> None:
        """End all episodes, and with them the thread."""
        # The interrupt may have come while the thread was starting: `ident` is None until then.
        time.sleep(STARTING_S)
        if self._thread.ident is None:
            return
        self._loop.get_loop().call_soon_threadsafe(self._cancel)
        wait([self.outcome], GRACE_S)
        if not self.outcome.done():
            log.error(
                "an environment has not answered for %g s; the thread in which it is "
                "played is left behind",
                GRACE_S,
            )

    def _cancel(self) -> None:
        # In another thread, the step was over before this call, and the loop's tasks are others.
        if threading.current_thread() is self._thread:
            for task in asyncio.all_tasks():
                task.cancel()
