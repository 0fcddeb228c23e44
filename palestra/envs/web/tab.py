"""One browser tab: reading its page, and mouse and keyboard input."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from palestra.envs.web import scripts
from palestra.envs.web.actions import ActionError
from palestra.envs.web.tree import Element, Node, Numbers, elements

if TYPE_CHECKING:
    from playwright.async_api import CDPSession, Page, Request

Shown = Literal["auto", "page", "viewport"]
WAITED_FOR = ("document", "xhr", "fetch", "script")
"""Requests that a page is not settled without."""
FAILED_PAGE = "chrome-error://"
LONGEST_KEYED = 200
"""The longest text that is typed key by key. Longer text is inserted at once."""
KEYS = {
    "ctrl": "Control",
    "control": "Control",
    "cmd": "Control",
    "meta": "Control",
    "alt": "Alt",
    "shift": "Shift",
    "esc": "Escape",
}
REASONS = {
    "ERR_NAME_NOT_RESOLVED": "it is not one of the sites that can be reached",
    "ERR_TOO_MANY_REDIRECTS": "it redirects without end",
    "ERR_CONNECTION_REFUSED": "the site does not answer",
    "ERR_ABORTED": "it was not opened",
}


@dataclass(frozen=True, slots=True)
class Look:
    """How a page is observed, with time limits."""

    shown: Shown = "auto"
    """"page", "viewport", or "auto", which shows the whole page unless it is longer than
    `max_chars`.
    """
    max_chars: int = 8000
    number_all: bool = False
    """Give an id to every line, not only to interactive elements."""
    width: int = 1280
    height: int = 720
    quiet_ms: int = 40
    """A page is settled when nothing has changed for so long."""
    load_s: float = 8.0
    """After this time, a page is observed even if it has not settled."""
    hang_s: float = 15.0
    """A page that does not answer for so long is closed."""
    max_elements: int = 30_000
    """A page with more is not read at all."""
    probe: str = ""
    """An expression whose value in the page comes with every observation."""
    is_one_page: bool = False
    """Pages ask for nothing once they have loaded and open no others: neither is watched, which is
    half the work of a reset.
    """


class Tab:
    """A page with its numbers. All coroutines belong to the browser's thread."""

    def __init__(self, page: Page, cdp: CDPSession, look: Look) -> None:
        self.page, self.look = page, look
        self.numbers = Numbers()
        self.failure = ""
        """Why the last page could not be opened."""
        self.blocked = 0
        """The number of requests to hosts that cannot be reached."""
        self.is_loading = False
        """It was observed before it had loaded."""
        self.state: dict[str, Any] = {
            "ready": "",
            "title": "",
            "elements": 0,
            "probed": None,
            "top": 0,
            "height": look.height,
            "whole": look.height,
        }
        """The page's state when it last settled."""
        self._cdp = cdp
        self._waiting: set[Request] = set()
        if not look.is_one_page:
            page.on("request", self._asked)
            page.on("requestfinished", self._answered)
            page.on("requestfailed", self._refused)

    def _asked(self, request: Request) -> None:
        if request.resource_type in WAITED_FOR:
            self._waiting.add(request)
        if request.is_navigation_request() and request.frame == self.page.main_frame:
            self.failure = ""

    def _answered(self, request: Request) -> None:
        self._waiting.discard(request)

    def _refused(self, request: Request) -> None:
        self._waiting.discard(request)
        reason = request.failure or ""
        self.blocked += "ERR_NAME_NOT_RESOLVED" in reason
        if request.is_navigation_request() and request.frame == self.page.main_frame:
            why = next(
                (words for error, words in REASONS.items() if error in reason),
                reason.removeprefix("net::"),
            )
            self.failure = f"{request.url[:200]} could not be opened: {why}."

    @property
    def has_failed(self) -> bool:
        return self.page.url.startswith(FAILED_PAGE)

    async def goto(self, url: str) -> bool:
        """Open a URL. False if the current page navigates elsewhere at the same time."""
        from playwright.async_api import Error

        try:
            await self.page.goto(url, wait_until="commit", timeout=self.look.load_s * 1000)
        except Error as error:
            if "interrupted by another navigation" in str(error):
                return False
            if not self.failure:
                raise ActionError(
                    f"{url[:200]} could not be opened: {str(error).splitlines()[0][:200]}"
                ) from None
        return True

    async def settle(self) -> None:
        """Wait until the page has loaded and nothing changes any more, up to a limit."""
        from playwright.async_api import Error

        until = time.monotonic() + self.look.load_s
        while time.monotonic() < until:
            try:
                self.state = await self.evaluate(
                    scripts.SETTLED % (self.look.quiet_ms, 1000, self.look.probe or "null")
                )
            except Error:  # the page went away under it: there is another one to wait for
                if self.page.is_closed():
                    return
                await asyncio.sleep(0.02)
                continue
            if self.state["ready"] == "complete" and not self._waiting:
                self.is_loading = False
                return
        self.is_loading = True

    async def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page, waited for: less work than Playwright's own way,
        and there is one at every step.
        """
        from playwright.async_api import Error

        call = {"expression": expression, "awaitPromise": True, "returnByValue": True}
        answer = await self._cdp.send("Runtime.evaluate", call)
        if "exceptionDetails" in answer:
            raise Error(str(answer["exceptionDetails"].get("text", "")))
        return answer["result"].get("value")

    async def elements(self) -> list[Element]:
        """All that is worth a line."""
        nodes = await self._nodes()
        if nodes:
            self.numbers.begin(nodes[0].get("backendDOMNodeId", 0))
        return elements(nodes, number_all=self.look.number_all)

    async def _nodes(self) -> list[Node]:
        """The accessibility nodes of the page and of the frames in it."""
        nodes: list[Node] = (await self._cdp.send("Accessibility.getFullAXTree"))["nodes"]
        owners = {
            node["backendDOMNodeId"]: node
            for node in nodes
            if node.get("role", {}).get("value") == "Iframe"
        }
        if not owners:
            return nodes
        tree = (await self._cdp.send("Page.getFrameTree"))["frameTree"]
        for child in tree.get("childFrames", ()):
            frame = {"frameId": child["frame"]["id"]}
            found = await self._cdp.send("DOM.getFrameOwner", frame)
            owner = owners.get(found["backendNodeId"])
            if owner is not None:
                inner = await self._cdp.send("Accessibility.getFullAXTree", frame)
                nodes += _grafted(owner, frame["frameId"], inner["nodes"])
        return nodes

    async def in_viewport(self, shown: Sequence[Element], top: int) -> list[Element]:
        """The elements in the viewport. `top`: the scroll position."""
        snapshot = await self._cdp.send(
            "DOMSnapshot.captureSnapshot", {"computedStyles": [], "includeDOMRects": True}
        )
        seen: set[int] = set()
        for number, document in enumerate(snapshot["documents"]):
            backend, layout = document["nodes"]["backendNodeId"], document["layout"]
            for index, (x, y, width, height) in zip(
                layout["nodeIndex"], layout["bounds"], strict=True
            ):
                # Document 0 is the page itself; those of its frames always count as seen.
                below = y - top
                is_in_height = below < self.look.height and below + height > 0
                is_in_width = x < self.look.width and x + width > 0
                if number or (is_in_height and is_in_width):
                    seen.add(backend[index])
        return [element for element in shown if element.node in seen]

    async def _on(self, node: int, function: str, *arguments: Any) -> Any:
        """Call a function of `scripts` on an element."""
        from playwright.async_api import Error

        try:
            found = await self._cdp.send("DOM.resolveNode", {"backendNodeId": node})
        except Error as error:
            raise ActionError("That element is no longer on the page.") from error
        call = {
            "functionDeclaration": function,
            "objectId": found["object"]["objectId"],
            "arguments": [{"value": argument} for argument in arguments],
            "returnByValue": True,
            "userGesture": True,
        }
        answer = await self._cdp.send("Runtime.callFunctionOn", call)
        return answer["result"].get("value")

    async def click(self, node: int) -> None:
        await self._click(node, await self._on(node, scripts.AIM))

    async def _click(self, node: int, aim: dict[str, Any]) -> None:
        match aim["how"]:
            case "mouse":
                await self._mouse(aim, "mouseMoved", "mousePressed", "mouseReleased")
            case "option":
                await self._on(node, scripts.SELECT, None)
            case "disabled":
                raise ActionError("That element is disabled.")
            case "gone":
                raise ActionError("That element is no longer on the page.")
            case _:
                await self._on(node, scripts.CLICK)

    async def hover(self, node: int) -> None:
        aim = await self._on(node, scripts.AIM)
        if "x" not in aim:
            raise ActionError("That element cannot be pointed at.")
        await self._mouse(aim, "mouseMoved")

    async def _mouse(self, aim: dict[str, Any], *kinds: str) -> None:
        """Send mouse events together. The browser keeps their order, and awaiting each one would
        take the time of a frame.
        """
        at = {"x": aim["x"], "y": aim["y"]}
        pressed = {"button": "left", "clickCount": 1}
        events = [
            {"type": kind, **at, **(pressed if kind != "mouseMoved" else {})} for kind in kinds
        ]
        await asyncio.gather(
            *(self._cdp.send("Input.dispatchMouseEvent", event) for event in events)
        )

    async def type(self, node: int, text: str, *, enter: bool) -> None:
        match await self._on(node, scripts.PREPARE):
            case "readonly":
                raise ActionError("That field cannot be written to.")
            case "no field":
                raise ActionError("That element is not a field for text.")
            case "set":
                written = await self._on(node, scripts.SET, text)
                if written != text:
                    raise ActionError(
                        f"That field does not take {text[:60]!r}; it has {written!r}. A "
                        "date is written as 2026-03-01."
                    )
            case before:
                if not text and before == "filled":
                    await self.page.keyboard.press("Delete")
                elif len(text) <= LONGEST_KEYED:
                    await self.page.keyboard.type(text)
                else:
                    await self.page.keyboard.insert_text(text)
        if enter:
            await self.page.keyboard.press("Enter")

    async def press(self, keys: str) -> None:
        from playwright.async_api import Error

        parts: list[str] = []
        for part in ["+"] if keys == "+" else keys.split("+"):
            name = KEYS.get(part.strip().lower(), part.strip())
            is_lower = len(name) > 1 and name.islower()
            parts.append(name.capitalize() if is_lower else name)
        named = "+".join(parts)
        try:
            await self.page.keyboard.press(named)
        except Error as error:
            raise ActionError(
                f"Expected keys such as Enter, ArrowDown or Control+a; there was {keys[:60]!r}."
            ) from error

    async def select(self, node: int, option: str) -> None:
        answer = await self._on(node, scripts.SELECT, option)
        match answer.get("error"):
            case "no list":
                raise ActionError("That element is not a list of options; click it instead.")
            case "no option":
                raise ActionError(
                    f"There is no option {option[:60]!r}; there are: {', '.join(answer['names'])}."
                )
            case "disabled":
                raise ActionError("That option is disabled.")

    async def check(self, node: int, wanted: bool) -> None:
        aim = await self._on(node, scripts.AIM)
        if aim["ticked"] is None:
            raise ActionError("That element cannot be ticked; click it instead.")
        if aim["ticked"] != wanted:
            await self._click(node, aim)

    async def scroll(self, direction: str) -> None:
        await self.page.evaluate(scripts.SCROLL, 1 if direction == "down" else -1)

    async def screenshot(self) -> bytes:
        return await self.page.screenshot(
            type="jpeg", quality=45, scale="css", caret="hide", animations="disabled", timeout=5000
        )


def _grafted(owner: Any, frame: str, nodes: list[Any]) -> list[Node]:
    """The nodes of a frame, as children of the node that holds it.

    Each frame counts its nodes from 1.
    """
    for node in nodes:
        node["nodeId"] = f"{frame}/{node['nodeId']}"
        node["childIds"] = [f"{frame}/{child}" for child in node.get("childIds", ())]
        node["parentId"] = (
            f"{frame}/{node['parentId']}" if node.get("parentId") else owner["nodeId"]
        )
    if nodes:
        owner["childIds"] = [nodes[0]["nodeId"]]
    return nodes
