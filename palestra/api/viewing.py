"""The viewer from Python: in a thread, so that a notebook stays usable."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
import webbrowser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from palestra.core.errors import UserError
from palestra.training.display import is_notebook

START_S = 30.0


class Viewer:
    """A running viewer, in a thread of this process. `Run.view` returns one."""

    def __init__(self, runs: Sequence[Path], port: int) -> None:
        self._runs, self._port = list(runs), port
        self._is_ready = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._serve, name="viewer", daemon=True)
        self._thread.start()
        if not self._is_ready.wait(START_S):
            raise UserError(f"the viewer did not start within {START_S:g} s")
        if self._error is not None:
            raise UserError(f"port {port}: {self._error}")

    @property
    def url(self) -> str:
        """The address to open in a browser."""
        return f"http://127.0.0.1:{self._port}/"

    def __repr__(self) -> str:
        return f"Viewer({self.url})"

    def _repr_html_(self) -> str:
        return f'<a href="{self.url}" target="_blank">{self.url}</a>'

    def wait(self) -> None:
        """Until Ctrl-C, or `close()` in another thread."""
        with suppress(KeyboardInterrupt), _ctrl_c_raises():
            while self._thread.is_alive():
                self._thread.join(0.5)
        self.close()

    def close(self) -> None:
        """Stop the viewer."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._task.cancel)
            self._thread.join(START_S)

    def _serve(self) -> None:
        try:
            asyncio.run(self._run())
        except asyncio.CancelledError:
            pass
        except (OSError, OverflowError) as error:
            self._error = error
        finally:
            self._is_ready.set()

    async def _run(self) -> None:
        from palestra.view.answers import Answers
        from palestra.view.server import make_app, serve

        self._loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None
        self._task = task

        def ready(port: int) -> None:
            self._port = port
            self._is_ready.set()

        app = make_app(Answers(self._runs), tokens=(), hosts=("127.0.0.1",))
        await serve(app, "127.0.0.1", self._port, ready)


@contextmanager
def _ctrl_c_raises() -> Iterator[None]:
    """In a program under `asyncio.run`, the first Ctrl-C only cancels its main task, which would
    wait here for ever.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before is None:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def view(runs: Sequence[Path], *, port: int, open_browser: bool) -> Viewer:
    viewer = Viewer(runs, port)
    print(f"viewer at {viewer.url}", flush=True)  # noqa: T201  a person asked for it
    if open_browser:
        # In a thread: some browsers keep the caller waiting.
        threading.Thread(target=webbrowser.open, args=(viewer.url,), daemon=True).start()
    if not is_interactive():
        viewer.wait()
    return viewer


def is_interactive() -> bool:
    """Whether a person types the next statement: a notebook, IPython or the REPL."""
    return is_notebook() or hasattr(sys, "ps1") or bool(sys.flags.interactive)
