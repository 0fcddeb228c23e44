"""Scripted solutions of simple tasks of MiniWoB++, as demonstrations to begin from."""

from __future__ import annotations

import re
from collections.abc import Callable

from palestra.envs.web.solutions import Solution, View

ORDINALS = re.compile(r"(\d+)(?:st|nd|rd|th)")
QUOTED = re.compile(r'"([^"]*)"')
LISTED = re.compile(r"^Select (.*?)(?: from the .*)? and click Submit\.$")


def _quoted(goal: str) -> list[str]:
    return QUOTED.findall(goal)


def _listed(goal: str) -> list[str]:
    found = LISTED.search(goal)
    names = found[1] if found else ""
    return [] if names == "nothing" else names.split(", ")


def _click_the_button(page: View, goal: str) -> Solution:
    yield page.click("button", "Click Me!")


def _click_said_button(page: View, goal: str) -> Solution:
    yield page.click("button", goal.removeprefix("Click button ").removesuffix("."))


def _click_one_and_two(page: View, goal: str) -> Solution:
    yield page.click("button", "ONE")
    yield page.click("button", "TWO")


def _click_named_button(page: View, goal: str) -> Solution:
    yield page.click("button", _quoted(goal)[0])


def _click_named_link(page: View, goal: str) -> Solution:
    yield page.click("text", _quoted(goal)[0])


def _focus(page: View, goal: str) -> Solution:
    ordinal = ORDINALS.search(goal)
    yield page.click("textbox", re.compile(""), nth=int(ordinal[1]) - 1 if ordinal else 0)


def _enter_text(page: View, goal: str) -> Solution:
    text = _quoted(goal)[0]
    if "upper case" in goal:
        text = text.upper()
    elif "lower case" in goal:
        text = text.lower()
    yield page.type("textbox", re.compile(""), text)
    yield page.click("button", "Submit")


def _enter_password(page: View, goal: str) -> Solution:
    for field in range(2):
        yield page.type("textbox", re.compile(""), _quoted(goal)[0], nth=field)
    yield page.click("button", "Submit")


def _log_in(page: View, goal: str) -> Solution:
    for field, text in enumerate(_quoted(goal)):
        yield page.type("textbox", re.compile(""), text, nth=field)
    yield page.click("button", "Login")


def _tick(page: View, goal: str) -> Solution:
    for name in _listed(goal):
        yield page.check("checkbox", name)
    yield page.click("button", "Submit")


def _choose(page: View, goal: str) -> Solution:
    yield page.click("radio", _listed(goal)[0])
    yield page.click("button", "Submit")


def _choose_from_list(page: View, goal: str) -> Solution:
    yield page.select("combobox", re.compile(""), _listed(goal)[0])
    yield page.click("button", "Submit")


def _choose_several(page: View, goal: str) -> Solution:
    for name in _listed(goal):
        yield page.click("option", name)
    yield page.click("button", "Submit")


def _click_tab(page: View, goal: str) -> Solution:
    yield page.click("tab", goal.removeprefix("Click on ").removesuffix("."))


def _close_dialog(page: View, goal: str) -> Solution:
    name = _quoted(goal)[0]
    yield page.click("button", "Close" if name == "x" else name)


def _open_section(page: View, goal: str) -> Solution:
    yield page.click("tab", re.compile("^Section"))
    yield page.click("tab", "Submit")


def _multiply(page: View, goal: str) -> Solution:
    problem = page.find("text", re.compile(r"^-?\d+ [-+x] -?\d+ =$")).name.split()
    left, right = int(problem[0]), int(problem[2])
    yield page.type(
        "textbox",
        re.compile(""),
        str({"+": left + right, "-": left - right, "x": left * right}[problem[1]]),
    )
    yield page.click("button", "Submit")


def _read_table(page: View, goal: str) -> Solution:
    label = goal.removeprefix("Enter the value of ").removesuffix(
        " into the text field and press Submit."
    )
    yield page.type("textbox", re.compile(""), page.find("cell", after=label, nth=1).name)
    yield page.click("button", "Submit")


SOLUTIONS: dict[str, Callable[[View, str], Solution]] = {
    "click-test": _click_the_button,
    "click-test-2": _click_said_button,
    "click-test-transfer": _click_said_button,
    "click-button-sequence": _click_one_and_two,
    "click-button": _click_named_button,
    "click-link": _click_named_link,
    "focus-text": _focus,
    "focus-text-2": _focus,
    "enter-text": _enter_text,
    "enter-text-2": _enter_text,
    "enter-text-dynamic": _enter_text,
    "enter-password": _enter_password,
    "login-user": _log_in,
    "click-checkboxes": _tick,
    "click-checkboxes-large": _tick,
    "click-checkboxes-transfer": _tick,
    "click-option": _choose,
    "choose-list": _choose_from_list,
    "click-scroll-list": _choose_several,
    "click-tab": _click_tab,
    "click-dialog": _close_dialog,
    "click-dialog-2": _close_dialog,
    "click-collapsible": _open_section,
    "click-collapsible-nodelay": _open_section,
    "simple-arithmetic": _multiply,
    "read-table": _read_table,
}
"""By task. Given the page and the task's words."""
