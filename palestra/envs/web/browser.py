"""One Chromium for all environments of a process, driven by an event loop on a thread of its own,
behind a synchronous face.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import ctypes
import logging
import os
import sys
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import psutil

if TYPE_CHECKING:
    from playwright.async_api import Browser as PlaywrightBrowser
    from playwright.async_api import Playwright

T = TypeVar("T")

log = logging.getLogger(__name__)

CHROMIUMS = ("/usr/lib/chromium/chromium-headless-shell", "/usr/bin/chromium")
"""Debian's paths, the lighter one first (the program itself: /usr/bin has a script that stays as a
parent process). The variable CHROMIUM overrides them.
"""
FLAGS = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-proxy-server",
    "--disable-extensions",
    "--disable-domain-reliability",
    "--disable-breakpad",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--mute-audio",
    "--disable-speech-api",
    "--renderer-process-limit=64",
)
LAUNCH_S = 30.0
CLOSE_S = 5.0
LET_GO_S = 1.0
"""The time limit for the driver of a browser that has ended."""
LOOK_EVERY_S = 0.1
PR_SET_CHILD_SUBREAPER = 36


class BrowserGone(RuntimeError):
    """Chromium ended or crashed during an episode. A fault of ours; the next episode starts another
    one.
    """


@dataclass(frozen=True, slots=True)
class Reach:
    """What the browser can reach. All other names and addresses do not exist for it."""

    sites: tuple[tuple[str, str], ...] = ()
    """(host in a page's URL, real address), such as ("shop.test", "127.0.0.1:9101")."""

    @property
    def flag(self) -> str:
        """The first rule that fits counts, and a rule with a port fits that port alone."""
        rules = [f"MAP {_with_port(name)} {address}" for name, address in self.sites]
        return f"--host-resolver-rules={', '.join([*rules, 'MAP * ~NOTFOUND'])}"


def _with_port(name: str) -> str:
    return name if ":" in name else f"{name}:80"


def find_chromium() -> Path:
    """Where Chromium is, or one line that says how to get it."""
    if find_spec("playwright") is None:
        raise RuntimeError("needs Playwright; pip install 'palestra[web]'")
    named = os.environ.get("CHROMIUM")
    found = next(
        (Path(path) for path in ([named] if named else CHROMIUMS) if Path(path).exists()), None
    )
    if found is None:
        raise RuntimeError(
            f"there is no {named or CHROMIUMS[0]}; apt-get install "
            "chromium-headless-shell, or set CHROMIUM to another"
        )
    return found


@dataclass(frozen=True, slots=True)
class Beginning:
    """How an episode's context is set up."""

    url: str
    """Several, each in a tab of its own, are joined by " |AND| "."""
    sites: tuple[str, ...]
    """The hosts that may be opened, with a port unless it is 80."""
    headers: tuple[tuple[str, str], ...] = ()
    """Sent with every request."""
    cookies: tuple[Any, ...] = ()
    """In Playwright's format."""
    storage_state: str = ""
    """A file of Playwright's with cookies and local storage, or nothing."""
    script: str = ""
    """A function in JavaScript that is called in the first page when it has loaded."""
    every_page: str = ""
    """JavaScript that runs in every page before its own."""


class Browser:
    """A Chromium that is started when it is first needed, and again after a crash."""

    def __init__(self, reach: Reach) -> None:
        self.reach = reach
        self.launches = 0
        """The number of starts. Objects of an earlier start are useless."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="browser", daemon=True)
        self._thread.start()
        self._starting: asyncio.Lock | None = None
        self._playwright: Playwright | None = None
        self._chromium: PlaywrightBrowser | None = None
        self._gone = asyncio.Event()
        """Set when there is no browser, or when it has ended. Each one has its own."""
        self._gone.set()
        _adopt_orphans()

    def run(self, work: Coroutine[Any, Any, T], within_s: float) -> T:
        """Wait for `work` on the browser's thread.

        It is cancelled when it takes too long, or when the wait is interrupted.
        """
        future = asyncio.run_coroutine_threadsafe(
            asyncio.wait_for(self._watched(work), within_s), self._loop
        )
        try:
            return future.result()
        except CancelledError:
            raise BrowserGone("the browser was closed") from None
        except BaseException as error:
            future.cancel()
            self._explain(error)
            raise

    async def _watched(self, work: Coroutine[Any, Any, T]) -> T:
        """Cancel pending calls: a browser that is killed does not always end them."""
        task = asyncio.ensure_future(work)
        try:
            while not task.done():
                gone, was_there = self._gone, not self._gone.is_set()
                ending = asyncio.ensure_future(
                    gone.wait() if was_there else asyncio.sleep(LOOK_EVERY_S)
                )
                await asyncio.wait({task, ending}, return_when=asyncio.FIRST_COMPLETED)
                ending.cancel()
                if was_there and gone.is_set() and not task.done():
                    raise BrowserGone("the browser ended during the episode")
            return task.result()
        finally:
            task.cancel()

    def later(self, work: Coroutine[Any, Any, object]) -> None:
        """Schedule `work` and ignore its result. May be called from a finalizer."""
        if self._loop.is_closed():
            work.close()
        else:
            asyncio.run_coroutine_threadsafe(_tried(work), self._loop)

    async def chromium(self) -> PlaywrightBrowser:
        """The running browser, started again if it ended."""
        self._starting = self._starting or asyncio.Lock()
        async with self._starting:
            if self._chromium is None or not self._chromium.is_connected():
                await self._launch()
            assert self._chromium is not None
            return self._chromium

    async def _launch(self) -> None:
        from playwright.async_api import Error, async_playwright

        path = find_chromium()
        await self._end()
        _reap()
        try:
            self._playwright = await async_playwright().start()
            self._chromium = await self._playwright.chromium.launch(
                executable_path=path,
                args=[*FLAGS, self.reach.flag],
                timeout=LAUNCH_S * 1000,
                chromium_sandbox=False,
            )
        except Error as error:
            await self._end()
            raise BrowserGone(f"{path} cannot be started: {str(error).splitlines()[0]}") from error
        gone = self._gone = asyncio.Event()
        self._chromium.on("disconnected", lambda _: gone.set())
        if not self._chromium.is_connected():
            gone.set()
        self.launches += 1
        if self.launches > 1:
            log.warning("the browser was started again")

    async def _end(self) -> None:
        """Stop the driver too: it may have died with the browser, and calls would never return."""
        self._gone.set()
        chromium, self._chromium = self._chromium, None
        playwright, self._playwright = self._playwright, None
        is_alive = chromium is not None and chromium.is_connected()
        if chromium is not None and is_alive:
            await _tried(asyncio.wait_for(chromium.close(), CLOSE_S))
        if playwright is not None:
            await _tried(asyncio.wait_for(playwright.stop(), CLOSE_S if is_alive else LET_GO_S))

    def _explain(self, error: BaseException) -> None:
        """What Playwright says when its browser has gone is said in other words each time."""
        if self._chromium is not None and not self._chromium.is_connected():
            raise BrowserGone("the browser ended during the episode") from error

    @property
    def is_closed(self) -> bool:
        return self._loop.is_closed()

    def close(self) -> None:
        """May be called twice."""
        if self.is_closed:
            return
        with contextlib.suppress(Exception):
            asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(3 * CLOSE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        _reap()


async def _tried(work: Coroutine[Any, Any, object]) -> None:
    try:
        await work
    except Exception as error:  # noqa: BLE001  closing what is broken may fail in any way
        log.debug("closing: %s: %s", type(error).__name__, error)


_browsers: dict[Reach, Browser] = {}


def shared_browser(reach: Reach) -> Browser:
    """This process's browser for exactly these sites. A closed one is replaced."""
    if reach not in _browsers or _browsers[reach].is_closed:
        if not _browsers:
            atexit.register(close_browsers)
        _browsers[reach] = Browser(reach)
    return _browsers[reach]


def close_browsers() -> None:
    while _browsers:
        _browsers.popitem()[1].close()


def _adopt_orphans() -> None:
    """A Chromium that is killed leaves children behind.

    They become ours, so that they can be buried.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _reap() -> None:
    """Bury the dead processes of Chromium that were left to us.

    Others' children are not touched.
    """
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error, ChildProcessError):
            is_dead = child.status() == psutil.STATUS_ZOMBIE
            if is_dead and child.name().startswith(("chrom", "headless_shell")):
                os.waitpid(child.pid, os.WNOHANG)
