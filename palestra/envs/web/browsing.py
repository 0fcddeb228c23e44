"""What all environments in a browser have in common: an episode's session, its observations, faults
and scenes.
"""

from __future__ import annotations

import base64
import weakref
from typing import Any

from palestra.envs.web.actions import Action
from palestra.envs.web.browser import Beginning, Browser, Reach, shared_browser
from palestra.envs.web.session import Observation, Session
from palestra.envs.web.tab import Look

OPEN_S = 60.0
"""The time limit for starting the browser and loading the first page, and for an action."""

MOST_REUSED = 100
"""Episodes in one context."""


class Browsing:
    """A synchronous interface to an episode in this process's browser. One at a time."""

    def __init__(self, look: Look) -> None:
        self.look = look
        self._browser: Browser | None = None
        self._session: Session | None = None
        self._observation: Observation | None = None
        self._finalizer: weakref.finalize[Any, Any] | None = None
        self._scene: dict[str, Any] | None = None
        self._reused = 0

    @property
    def observation(self) -> Observation:
        assert self._observation is not None
        return self._observation

    @property
    def session(self) -> Session:
        if self._session is None:
            raise RuntimeError("call reset(task) before this")
        return self._session

    def begin(self, reach: Reach, beginning: Beginning, *, is_fresh: bool = True) -> Observation:
        """A fresh context; the one before is closed meanwhile.

        Otherwise the one before, some of the time.
        """
        session = self._session
        may_reuse = not is_fresh and self._reused < MOST_REUSED
        if session is not None and may_reuse and session.is_usable:
            self._reused += 1
            assert self._browser is not None
            return self._seen(self._browser.run(session.again(beginning), OPEN_S))
        self.end()
        self._reused = 0
        browser = self._browser = shared_browser(reach)
        session = self._session = Session(browser, self.look, beginning)
        # Closes the session if the environment is garbage-collected without `close()`.
        self._finalizer = weakref.finalize(self, _drop, browser, session)
        return self._seen(browser.run(session.open(), OPEN_S))

    def act(self, action: Action) -> Observation:
        """Take an action. Raises ActionError if it is impossible."""
        session = self.session
        assert self._browser is not None
        return self._seen(self._browser.run(session.act(action), OPEN_S))

    def run(self, work: Any) -> Any:
        """Something else on the session."""
        assert self._browser is not None
        return self._browser.run(work, OPEN_S)

    def _seen(self, observation: Observation) -> Observation:
        self._observation, self._scene = observation, None
        return observation

    def scene(self) -> dict[str, Any]:
        """A screenshot, taken on the first request after a step."""
        if self._scene is None:
            shot = self.run(self.session.screenshot())
            self._scene = {
                "kind": "page",
                "url": self.observation.url,
                "title": self.observation.title,
                "marks": list(self.observation.marks),
                "image": base64.b64encode(shot).decode() if shot else "",
                "width": self.look.width,
                "height": self.look.height,
            }
        return self._scene

    def end(self) -> None:
        """May be called twice."""
        session, self._session = self._session, None
        if session is not None and self._finalizer is not None:
            self._finalizer()


def _drop(browser: Browser, session: Session) -> None:
    browser.later(session.close())


def offered(seen: Observation) -> list[str]:
    """The possible clicks and choices. Texts to type and answers cannot be listed."""
    if "dialog" in seen.marks and not seen.elements:
        return ["accept", "dismiss"]
    enabled = [
        element for element in seen.elements if element.id and "disabled" not in element.states
    ]
    clicks = [f"click [{element.id}]" for element in enabled]
    choices: list[str] = []
    for element in enabled:
        choices += [f"select [{element.id}] [{option}]" for option in element.options if option]
    return [*clicks, *choices, "scroll [down]", "scroll [up]"]
