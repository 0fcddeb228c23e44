"""Scripted solutions: generators that find elements in the current page by role and name, and yield
actions on them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from palestra.envs.web.session import Observation
from palestra.envs.web.tree import Element

Solution = Iterator[str]
Name = str | re.Pattern[str]


class View:
    """The current page.

    Its methods return actions to yield, such as `yield page.click("button", "Log In")`.
    """

    def __init__(self, observation: Observation) -> None:
        self.observation = observation

    @property
    def url(self) -> str:
        return self.observation.url

    @property
    def text(self) -> str:
        return self.observation.text

    def all(self, role: str, name: Name = re.compile(""), *, after: str = "") -> list[Element]:
        """Those with this role and name, in the order of the page, and after the first line that
        has the text `after`.
        """
        lines = self.observation.elements
        if after:
            matches = (
                n for n, line in enumerate(lines) if after in line.name or after in line.value
            )
            lines = lines[next(matches, len(lines)) :]
        return [line for line in lines if line.role == role and _fits(line.name, name)]

    def has(self, role: str, name: Name = re.compile(""), *, after: str = "") -> bool:
        return bool(self.all(role, name, after=after))

    def find(
        self, role: str, name: Name = re.compile(""), *, after: str = "", nth: int = 0
    ) -> Element:
        found = self.all(role, name, after=after)
        if len(found) <= nth:
            there = ", ".join(
                f'"{line.name}"' for line in self.observation.elements if line.role == role
            )
            raise LookupError(
                f"{self.url}: no {role} {name!r} after {after!r}; there are: {there or 'none'}"
            )
        return found[nth]

    def click(self, role: str, name: Name, *, after: str = "", nth: int = 0) -> str:
        return f"click [{self.find(role, name, after=after, nth=nth).id}]"

    def check(self, role: str, name: Name, *, after: str = "", nth: int = 0) -> str:
        return f"check [{self.find(role, name, after=after, nth=nth).id}]"

    def type(
        self,
        role: str,
        name: Name,
        text: str,
        *,
        enter: bool = False,
        after: str = "",
        nth: int = 0,
    ) -> str:
        written = text.replace("\n", "\\n")
        return f"type [{self.find(role, name, after=after, nth=nth).id}] [{written}] [{int(enter)}]"

    def select(self, role: str, name: Name, option: str, *, after: str = "", nth: int = 0) -> str:
        return f"select [{self.find(role, name, after=after, nth=nth).id}] [{option}]"

    def reach(self, role: str, name: Name, *, after: str = "", most: int = 15) -> Solution:
        """`yield from page.reach(...)`: scroll down until it is shown.

        A long page is shown by the screenful.
        """
        for _ in range(most):
            if self.has(role, name, after=after):
                return
            yield "scroll [down]"


def _fits(name: str, wanted: Name) -> bool:
    return name == wanted if isinstance(wanted, str) else wanted.search(name) is not None


def goto(url: str) -> str:
    return f"goto [{url}]"


def stop(answer: str = "") -> str:
    return f"stop [{answer}]"


class Expert:
    """Follows a solution.

    Gives up for good when another action is taken, or when an element is not found.
    """

    def __init__(self, solve: Callable[[View], Solution], observation: Observation) -> None:
        self._view = View(observation)
        self._solution: Solution | None = solve(self._view)
        self._next: str | None = None
        self.lost = ""
        """Why it has no answer any more."""

    def action(self) -> str | None:
        """The next action. Does not change until the action is taken."""
        if self._next is None and self._solution is not None:
            try:
                self._next = next(self._solution)
            except StopIteration:
                self._give_up("the solution is at its end")
            except LookupError as error:
                self._give_up(str(error))
        return self._next

    def done(self, action: str, observation: Observation) -> None:
        """Record the action that was taken, and the resulting observation."""
        self._view.observation = observation
        if action == self.action_asked_for:
            self._next = None
        else:
            self._give_up(f"{action!r} was done instead")

    @property
    def action_asked_for(self) -> str | None:
        return self._next

    def _give_up(self, why: str) -> None:
        self._solution, self._next, self.lost = None, None, self.lost or why
