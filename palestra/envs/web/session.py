"""One episode's browser context, with its tabs and dialogs, observations and actions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from palestra.envs.web.actions import Action, ActionError
from palestra.envs.web.browser import Beginning, Browser, BrowserGone
from palestra.envs.web.tab import Look, Tab
from palestra.envs.web.tree import Element, numbered, written

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Dialog, Download, Page

T = TypeVar("T")

MOST_TABS = 8
BLANK = "about:blank"
CLOSE_PAGE_S = 2.0
OPENING_S = 2.0
"""The time limit for a new tab to become readable."""
ANNOUNCED_S = 1.0
"""The time limit for an announced tab, which the browser may block."""
READ_UNSETTLED_S = 3.0
"""The time limit for reading a page that keeps changing."""


@dataclass(frozen=True, slots=True)
class Observation:
    """A page as an agent sees it."""

    url: str
    title: str
    text: str
    """All of it, as the agent reads it."""
    body: str = ""
    """The text without the URL."""
    elements: tuple[Element, ...] = ()
    """The lines that are shown."""
    marks: tuple[str, ...] = ()
    """What was out of order: cut, loading, failed, hung, blocked, download, popups, dialog."""
    probed: Any = None
    """What `Look.probe` gave."""


class _Hung(Exception):
    pass


class Session:
    """All coroutines belong to the browser's thread."""

    def __init__(self, browser: Browser, look: Look, beginning: Beginning) -> None:
        self.look = look
        self._browser, self._beginning = browser, beginning
        self._context: BrowserContext | None = None
        self._launch = 0
        self._tabs: list[Tab] = []
        self._at = 0
        self._dialog: Dialog | None = None
        self._dialog_opened = asyncio.Event()
        self._held: set[asyncio.Future[Any]] = set()
        """What a dialog has stopped in the middle."""
        self._announced: list[asyncio.Future[None]] = []
        """Tabs that pages are about to open: they come some time after the click that they are due
        to.
        """
        self._opening: set[asyncio.Future[Any]] = set()
        """Tabs opened by pages that are not readable yet."""
        self._notes: list[tuple[str, str]] = []
        """A mark and a line for the next observation."""
        self._crashed = False
        self._watching = True
        """Pages that open are tabs."""

    @property
    def tab(self) -> Tab:
        if self._crashed:
            raise BrowserGone("a page crashed")
        if self._launch != self._browser.launches or not self._tabs:
            raise BrowserGone("the browser ended during the episode")
        return self._tabs[self._at]

    async def open(self) -> Observation:
        chromium = await self._browser.chromium()
        self._launch = self._browser.launches
        self._context = await chromium.new_context(
            viewport={"width": self.look.width, "height": self.look.height},
            extra_http_headers=dict(self._beginning.headers) or None,
            storage_state=self._beginning.storage_state or None,
            accept_downloads=False,
            locale="en-US",
            timezone_id="UTC",
            reduced_motion="reduce",
            service_workers="block",
        )
        if self._beginning.every_page:
            await self._context.add_init_script(self._beginning.every_page)
        self._context.on("dialog", self._on_dialog)
        self._context.on("page", self._on_page)
        if self._beginning.cookies:
            await self._context.add_cookies(list(self._beginning.cookies))
        await self._new_tab()
        await self._guarded(self._begin())
        return await self.observe()

    async def again(self, beginning: Beginning) -> Observation:
        """Start an episode in the same context, for pages without stored state. Saves a tenth of a
        second compared with a new context.
        """
        self._beginning = beginning
        self._notes.clear()
        await self._guarded(self._begin())
        return await self.observe()

    @property
    def _is_connected(self) -> bool:
        context = self._context
        if context is None or self._launch != self._browser.launches:
            return False
        return context.browser is not None and context.browser.is_connected()

    @property
    def is_usable(self) -> bool:
        """Whether `again` can start another episode."""
        is_clean = not self._crashed and self._dialog is None and len(self._tabs) == 1
        return self._is_connected and is_clean

    async def _begin(self) -> None:
        first, *others = self._beginning.url.split(" |AND| ")
        await self.tab.goto(first)
        for url in others:
            await self._new_tab()
            await self.tab.goto(url)
        self._at = 0 if others else self._at
        if self._beginning.script:
            await self.tab.page.wait_for_load_state("load", timeout=self.look.load_s * 1000)
            await self.tab.evaluate(f"({self._beginning.script})()")

    async def close(self) -> None:
        """May be called twice."""
        context, self._context = self._context, None
        for held in (*self._held, *self._opening):
            held.cancel()
        if context is not None and self._launch == self._browser.launches:
            await context.close()

    # Observing.

    async def observe(self) -> Observation:
        """Settles first.

        A page with an open dialog answers nothing: then the dialog is all there is.
        """
        try:
            await self._within(self._settle())
            seen = await self._within(self._read())
        except _Hung:
            await self._replace_hung()
            seen = await self._within(self._read())
        if self._dialog is not None or seen is None:
            seen = self._dialog_seen()
        self._notes.clear()
        return seen

    async def _settle(self) -> None:
        """The tab that is in front, and the one that comes in front of it meanwhile."""
        settled = None
        while settled is not self.tab:
            settled = self.tab
            await settled.settle()
            if announced := set(self._announced):
                await asyncio.wait(announced, timeout=ANNOUNCED_S)
                self._announced = [one for one in self._announced if one not in announced]
            if self._opening:
                await asyncio.wait(self._opening, timeout=OPENING_S)

    async def _read(self) -> Observation:
        from playwright.async_api import Error

        for _ in range(3):
            try:
                async with asyncio.timeout(READ_UNSETTLED_S if self.tab.is_loading else None):
                    return await self._read_once(self.tab)
            except TimeoutError:
                break
            except Error:  # the page was left while it was read
                if not self._is_connected:
                    raise
                await self._settle()
        self._note("loading", "The page changes faster than it can be read.")
        return self._observation(self.tab, "", "", (), "")

    async def _read_once(self, tab: Tab) -> Observation:
        if tab.has_failed:
            self._note("failed", tab.failure or "The page could not be opened.")
            return self._observation(tab, "", "", (), "")
        state = tab.state
        if tab.is_loading:
            self._note("loading", "The page is still loading.")
        if state["elements"] > self.look.max_elements:
            self._note(
                "cut",
                f"The page is not shown: it has {state['elements']} elements, more than "
                f"{self.look.max_elements}.",
            )
            return self._observation(tab, state["title"], "", (), "")
        shown = await tab.elements()
        scrolled, left_out = "", written(shown, self.look.max_chars)[1]
        if self.look.shown == "viewport" or (self.look.shown == "auto" and left_out):
            shown = await tab.in_viewport(shown, state["top"])
            scrolled = (
                f"Scrolled: {state['top']} to {state['top'] + state['height']} of {state['whole']}"
            )
        shown = numbered(shown, tab.numbers)
        text, left_out = written(shown, self.look.max_chars)
        if left_out:
            self._note("cut", f"{left_out} more lines are not shown.")
        return self._observation(
            tab, state["title"], text, shown[: len(shown) - left_out], scrolled
        )

    def _observation(
        self, tab: Tab, title: str, tree: str, shown: Sequence[Element], scrolled: str
    ) -> Observation:
        if tab.blocked:
            self._note("blocked", f"{tab.blocked} requests to other sites were blocked.")
            tab.blocked = 0
        url = BLANK if tab.has_failed else tab.page.url
        head = [
            f"URL: {url[:500]}",
            f"Title: {title[:200]}" if title else "",
            self._tab_line(),
            scrolled,
        ]
        body = "\n".join([*(line for _, line in self._notes), tree]).rstrip()
        lines = [*(line for line in head if line), body]
        marks = tuple(dict.fromkeys(mark for mark, _ in self._notes if mark))
        return Observation(
            url, title, "\n".join(lines).rstrip(), body, tuple(shown), marks, tab.state["probed"]
        )

    def _tab_line(self) -> str:
        if len(self._tabs) < 2:
            return ""
        names = [
            f"{n}: {tab.page.url[:100]}{' (this one)' if n == self._at else ''}"
            for n, tab in enumerate(self._tabs)
        ]
        return f"Tabs: {', '.join(names)}"

    def _dialog_seen(self) -> Observation:
        assert self._dialog is not None
        asked = (
            f'Dialog: {self._dialog.type} "{self._dialog.message[:500]}" is open: accept or '
            "dismiss it."
        )
        body = "\n".join([*(line for _, line in self._notes), asked])
        return Observation(
            self.tab.page.url,
            "",
            f"URL: {self.tab.page.url[:500]}\n{body}",
            body,
            marks=("dialog",),
        )

    async def screenshot(self) -> bytes:
        """Empty while a dialog is open, or if the page cannot be drawn."""
        from playwright.async_api import Error

        try:
            return b"" if self._dialog is not None else await self.tab.screenshot()
        except Error:
            return b""

    async def evaluate(self, script: str) -> Any:
        """The value of JavaScript in the page; None while a dialog is open."""
        return None if self._dialog is not None else await self._within(self.tab.evaluate(script))

    async def text(self, url: str, locator: str) -> str:
        """What the script `locator` gives on a page, or all of its text."""
        async with self.page_at(url) as page:
            return str(
                await page.evaluate(locator or "document.body ? document.body.innerText : ''") or ""
            )

    @asynccontextmanager
    async def page_at(self, url: str, load_s: float = 0.0) -> AsyncIterator[Page]:
        """The current page for "last"; otherwise a new page, which does not count as a tab."""
        if url == "last":
            yield self.tab.page
            return
        assert self._context is not None
        self._watching = False
        page = await self._context.new_page()
        try:
            await page.goto(url, wait_until="load", timeout=(load_s or self.look.load_s) * 1000)
            yield page
        finally:
            self._watching = True
            await page.close()

    def _note(self, mark: str, line: str) -> None:
        if (mark, line) not in self._notes:
            self._notes.append((mark, line))

    # Acting.

    async def act(self, action: Action) -> Observation:
        """Take an action and observe. An impossible one raises ActionError and has no effect."""
        if self._dialog is not None and action.kind not in ("accept", "dismiss", "wait"):
            raise ActionError("A dialog is open; expected accept or dismiss.")
        await self._guarded(self._do(action))
        return await self.observe()

    async def _do(self, action: Action) -> None:
        tab = self.tab
        match action.kind:
            case "click":
                await tab.click(self._node(action))
            case "hover":
                await tab.hover(self._node(action))
            case "type":
                await tab.type(self._node(action), action.text, enter=action.enter)
            case "select":
                await tab.select(self._node(action), action.text)
            case "check" | "uncheck":
                await tab.check(self._node(action), action.kind == "check")
            case "press":
                await tab.press(action.text)
            case "scroll":
                await tab.scroll(action.text)
            case "goto":
                await self._goto(action.text)
            case "go_back" | "go_forward":
                await self._history(-1 if action.kind == "go_back" else 1)
            case "wait":
                await asyncio.sleep(1.0)
            case "accept" | "dismiss":
                await self._answer(action)
            case _:
                await self._tabs_action(action)

    def _node(self, action: Action) -> int:
        node = self.tab.numbers.node(action.element)
        if node is None:
            raise ActionError(f"There is no element [{action.element}] on the page.")
        return node

    async def _goto(self, url: str) -> None:
        if url != BLANK:
            url = url if "://" in url else f"http://{url}"
            parts = urlsplit(url)
            if (
                parts.scheme not in ("http", "https")
                or parts.netloc.lower() not in self._beginning.sites
            ):
                there = ", ".join(self._beginning.sites) or "none"
                raise ActionError(
                    f"{url[:200]} cannot be gone to; the sites that can be reached are: {there}."
                )
        if not await self.tab.goto(url):
            await self._replace_page()
            await self.tab.goto(url)

    async def _history(self, by: int) -> None:
        from playwright.async_api import Error

        page = self.tab.page
        move = page.go_back if by < 0 else page.go_forward
        before = page.url
        try:
            await move(wait_until="commit", timeout=self.look.load_s * 1000)
        except Error as error:
            raise ActionError("The page could not be gone back to.") from error
        if page.url == BLANK != before:  # where every tab begins, and nothing to go back to
            await page.go_forward(wait_until="commit", timeout=self.look.load_s * 1000)
            raise ActionError("There is no page before this one.")

    async def _answer(self, action: Action) -> None:
        dialog, self._dialog = self._dialog, None
        if dialog is None:
            raise ActionError("No dialog is open.")
        self._dialog_opened.clear()
        await (dialog.accept(action.text) if action.kind == "accept" else dialog.dismiss())
        held, self._held = self._held, set()
        if held:
            await asyncio.wait(held, timeout=self.look.hang_s)

    async def _tabs_action(self, action: Action) -> None:
        tab = self.tab
        match action.kind:
            case "new_tab":
                await self._new_tab()
            case "tab_focus":
                if action.tab >= len(self._tabs):
                    raise ActionError(
                        f"There is no tab {action.tab}; the last one is {len(self._tabs) - 1}."
                    )
                self._at = action.tab
                await self.tab.page.bring_to_front()
            case "close_tab":
                await tab.page.close()
                self._forget(tab.page)
                if not self._tabs:
                    await self._new_tab()
            case _:
                raise ActionError(f"{action.kind} is not done here.")

    # Tabs and what pages do by themselves.

    async def _new_tab(self) -> None:
        if len(self._tabs) >= MOST_TABS:
            raise ActionError(f"There are {MOST_TABS} tabs already; close one first.")
        assert self._context is not None
        await self._adopt(await self._context.new_page())

    async def _adopt(self, page: Page) -> None:
        """A page that we have opened, or one of its own."""
        if any(tab.page is page for tab in self._tabs):
            return
        assert self._context is not None
        cdp = await self._context.new_cdp_session(page)
        if not self.look.is_one_page:
            cdp.on(
                "Page.windowOpen",
                lambda _: self._announced.append(asyncio.get_running_loop().create_future()),
            )
            await cdp.send("Page.enable")
        tab = Tab(page, cdp, self.look)
        page.on("crash", self._on_crash)
        page.on("download", self._on_download)
        page.on("close", self._forget)
        if not any(other.page is page for other in self._tabs):
            self._tabs.append(tab)
            self._at = len(self._tabs) - 1

    def _on_page(self, page: Page) -> None:
        """A pop-up, or a tab that we opened. Tabs beyond the limit are closed."""
        if not self._watching:
            return
        awaited = next((one for one in self._announced if not one.done()), None)
        if awaited is not None:
            awaited.set_result(None)
        if len(self._tabs) + len(self._opening) >= MOST_TABS:
            self._note("popups", "The page opened more tabs than there may be; they were closed.")
            self._keep(page.close())
        else:
            self._keep(self._adopt(page))

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._opening.add(task)
        task.add_done_callback(_quietly)
        task.add_done_callback(self._opening.discard)

    def _forget(self, page: Page) -> None:
        focused = self._tabs[self._at] if self._tabs else None
        self._tabs = [tab for tab in self._tabs if tab.page is not page]
        kept = [n for n, tab in enumerate(self._tabs) if tab is focused]
        self._at = kept[0] if kept else max(0, len(self._tabs) - 1)

    def _on_crash(self, page: Page) -> None:
        self._crashed = True

    def _on_download(self, download: Download) -> None:
        self._note("download", f"A download of {download.suggested_filename[:100]!r} was not kept.")

    def _on_dialog(self, dialog: Dialog) -> None:
        """Messages are noted and closed; questions are the agent's to answer, unless one is open
        already.
        """
        if dialog.type == "alert":
            self._note("dialog", f'Dialog: alert "{dialog.message[:500]}" was closed.')
        if dialog.type in ("alert", "beforeunload") or self._dialog is not None:
            self._keep(dialog.accept())
            return
        self._dialog = dialog
        self._dialog_opened.set()

    # Pages that do not answer.

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await self._within(work)
        except _Hung:
            await self._replace_hung()

    async def _within(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Wait for `work` until the time limit.

        None if a dialog opens first: the page is blocked then, and `work` continues when the dialog
        is answered.
        """
        task = asyncio.ensure_future(work)
        dialog = asyncio.ensure_future(self._dialog_opened.wait())
        try:
            await asyncio.wait(
                {task, dialog}, timeout=self.look.hang_s, return_when=asyncio.FIRST_COMPLETED
            )
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            dialog.cancel()
        if task.done():
            return task.result()
        task.add_done_callback(_quietly)
        if not self._dialog_opened.is_set():
            task.cancel()
            raise _Hung
        self._held.add(task)
        return None

    async def _replace_hung(self) -> None:
        """Close a page that does not answer, and open the episode's first page in its tab."""
        self._note("hung", f"The page did not answer for {self.look.hang_s:g} s and was closed.")
        await self._replace_page()
        await self._begin()
        await self.tab.settle()

    async def _replace_page(self) -> None:
        """Open a new page in place of the current one.

        The old page is closed with a time limit, because it may not react to that either.
        """
        left = self.tab.page
        self._forget(left)
        closing = asyncio.ensure_future(left.close())
        closing.add_done_callback(_quietly)
        await asyncio.wait({closing}, timeout=CLOSE_PAGE_S)
        await self._new_tab()


def _quietly(task: asyncio.Future[Any]) -> None:
    """Retrieve the exception of a task that nothing awaits any more."""
    if not task.cancelled():
        task.exception()
