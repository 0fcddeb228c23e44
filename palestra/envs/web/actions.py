"""What an agent can do in a browser: the grammar of WebArena (arXiv:2307.13854), and a few actions
more.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

# fmt: off
Kind = Literal[
    "click", "hover", "check", "uncheck", "type", "select", "press", "scroll", "new_tab",
    "tab_focus", "close_tab",
    "goto", "go_back", "go_forward", "accept", "dismiss", "wait", "stop",
]
# fmt: on

LONGEST_TEXT = 5000
"""The maximum number of characters in one action."""


class ActionError(Exception):
    """An action that cannot be carried out; the message is part of the next observation."""


@dataclass(frozen=True, slots=True)
class Action:
    kind: Kind
    element: int = 0
    """The number in front of an element in the tree."""
    text: str = ""
    """The text to type, choose, press or answer; a URL; a direction."""
    enter: bool = False
    """Press Enter after typing."""
    tab: int = 0


class _Form(NamedTuple):
    pattern: re.Pattern[str]
    usage: str
    meaning: str
    made: Callable[[re.Match[str]], Action]


def _form(usage: str, pattern: str, meaning: str, made: Callable[[re.Match[str]], Action]) -> _Form:
    return _Form(re.compile(pattern, re.DOTALL), usage, meaning, made)


def _of_element(kind: Kind, meaning: str) -> _Form:
    return _form(
        f"{kind} [id]",
        rf"{kind}\s*\[(\d{{1,6}})\]",
        meaning,
        lambda m: Action(kind, element=int(m[1])),
    )


def _alone(kind: Kind, meaning: str) -> _Form:
    return _form(kind, rf"{kind}(?:\s*\[\s*\])?", meaning, lambda m: Action(kind))


def _with_text(kind: Kind, what: str, meaning: str) -> _Form:
    return _form(
        f"{kind} [{what}]",
        rf"{kind}\s*\[(.*)\]",
        meaning,
        lambda m: Action(kind, text=m[1].strip()),
    )


FORMS: dict[str, _Form] = {
    "click": _of_element("click", "Clicks the element with this id."),
    "type": _form(
        "type [id] [text] [press_enter_after=0|1]",
        r"type\s*\[(\d{1,6})\]\s*\[(.*?)\](?:\s*\[(?:press_enter_after=)?([01])\])?",
        "Replaces what stands in the field by the text, and presses Enter unless the last "
        "argument is 0.",
        lambda m: Action(
            "type", element=int(m[1]), text=m[2].replace("\\n", "\n"), enter=m[3] != "0"
        ),
    ),
    "select": _form(
        "select [id] [option]",
        r"select\s*\[(\d{1,6})\]\s*\[(.*)\]",
        "Chooses the option with this name in a combobox or listbox.",
        lambda m: Action("select", element=int(m[1]), text=m[2].strip()),
    ),
    "check": _of_element("check", "Ticks a checkbox, radio button or switch."),
    "uncheck": _of_element("uncheck", "Takes the tick away."),
    "hover": _of_element("hover", "Moves the mouse over the element."),
    "press": _with_text(
        "press", "key_comb", "Presses keys, such as press [Enter] or press [Control+a]."
    ),
    "scroll": _form(
        "scroll [down|up]",
        r"scroll\s*\[(?:direction=)?(down|up)\]",
        "Scrolls the page by most of a screen.",
        lambda m: Action("scroll", text=m[1]),
    ),
    "new_tab": _alone("new_tab", "Opens an empty tab."),
    "tab_focus": _form(
        "tab_focus [tab_index]",
        r"tab_focus\s*\[(\d{1,3})\]",
        "Turns to the tab with this number.",
        lambda m: Action("tab_focus", tab=int(m[1])),
    ),
    "close_tab": _alone("close_tab", "Closes the tab."),
    "goto": _with_text("goto", "url", "Opens an address."),
    "go_back": _alone("go_back", "Goes back to the page before."),
    "go_forward": _alone("go_forward", "Goes forward again."),
    "accept": _form(
        "accept [text]",
        r"accept(?:\s*\[(.*)\])?",
        "Answers an open dialog with OK, and with the text where it asks for one.",
        lambda m: Action("accept", text=m[1] or ""),
    ),
    "dismiss": _alone("dismiss", "Answers an open dialog with Cancel."),
    "wait": _alone("wait", "Waits for a second."),
    "stop": _with_text(
        "stop",
        "answer",
        "Ends the task, with the answer where it asks for one: stop [3 items] or stop [].",
    ),
}

OTHER_NAMES = {
    "page_focus": "tab_focus",
    "page_close": "close_tab",
    "tab_close": "close_tab",
    "noop": "wait",
    "back": "go_back",
}
"""What some agents call them."""


def parse(text: str) -> Action:
    """Parse an action. A wrong one raises a one-line ActionError that says what was expected."""
    words = text.strip()
    if words.startswith("```") and words.endswith("```") and len(words) > 6:
        words = words[3:-3].strip()
    if len(words) > LONGEST_TEXT:
        raise ActionError(
            f"Expected an action of at most {LONGEST_TEXT} characters; there were {len(words)}."
        )
    found = re.match(r"[a-z_]+", words)
    name = OTHER_NAMES.get(found[0], found[0]) if found else ""
    if found is None or name not in FORMS:
        raise ActionError(
            f"Expected one of the actions {', '.join(FORMS)}, such as click [12]; there "
            f"was {words[:60]!r}."
        )
    form = FORMS[name]
    match = form.pattern.fullmatch(name + words[found.end() :])
    if match is None:
        raise ActionError(f"Expected {form.usage}; there was {words[:100]!r}.")
    return form.made(match)


def usage(*, without: tuple[str, ...] = ()) -> str:
    """A line for each action, for instructions."""
    return "\n".join(
        f"- {form.usage}: {form.meaning}" for name, form in FORMS.items() if name not in without
    )
