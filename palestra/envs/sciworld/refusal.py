"""Explains what is wrong with an action that SciWorld's simulator does not understand."""

from __future__ import annotations

import re

NOT_UNDERSTOOD = "No known action matches that input."
"""The simulator's own answer."""

ALONE = ("look around", "inventory", "task", "wait", "wait1")
OF_ONE_THING = (
    "look at",
    "look in",
    "go to",
    "open",
    "close",
    "pick up",
    "put down",
    "activate",
    "deactivate",
    "focus on",
    "read",
    "eat",
    "flush",
    "mix",
    "disconnect",
)
OF_TWO_THINGS = {"move": "to", "pour": "into", "dunk": "into", "use": "on", "connect": "to"}
"""And the word between them."""
BY_OPTION = ("teleport to",)
"""Recognized, but not listed, because not every agent has these actions."""
LONGEST_NAME = 60
_LITTLE_WORDS = {
    "a",
    "an",
    "the",
    "to",
    "in",
    "on",
    "of",
    "containing",
    "inventory",
    "door",
    "terminal",
    "1",
    "2",
}
"""Words that occur in names but do not identify an object."""
_ROOM = re.compile(r"called the (.+?)\.")
_DOOR = re.compile(r"A door to the (.+?) \(that is (open|closed)\)")
_WORD = re.compile(r"[a-z0-9]+")


def explained(action: str, look: str, inventory: str) -> str:
    """`look`, `inventory`: the simulator's descriptions of the room and of the inventory."""
    around = set(_WORD.findall(f"{look} {inventory}".lower()))
    things = _things(action)
    if things is None:
        reason = (
            f"{_shortened(action)!r} is no action: it must begin with "
            f"{', '.join((*ALONE, *OF_ONE_THING, *OF_TWO_THINGS))}."
        )
    elif missing := [
        thing for thing in things if not set(_WORD.findall(thing)) - _LITTLE_WORDS <= around
    ]:
        reason = f"There is no {_shortened(missing[0])} here."
    elif "(" in action:
        reason = f"{NOT_UNDERSTOOD} Name things without what stands in brackets."
    else:
        reason = NOT_UNDERSTOOD
    return " ".join([reason, *_where(look)])


def _things(action: str) -> list[str] | None:
    """The objects that an action names; None if it begins like no known action."""
    if action in ALONE:
        return []
    for beginning in (*OF_ONE_THING, *BY_OPTION):
        if action.startswith(f"{beginning} "):
            return [action.removeprefix(f"{beginning} ")]
    for beginning, between in OF_TWO_THINGS.items():
        if action.startswith(f"{beginning} "):
            return action.removeprefix(f"{beginning} ").split(f" {between} ", 1)
    return None


def _where(look: str) -> list[str]:
    """The room and its doors."""
    rooms = [f"You are in the {name}." for name in _ROOM.findall(look)[:1]]
    doors = [f"{name} ({state})" for name, state in _DOOR.findall(look)]
    return [*rooms, *([f"Doors: {', '.join(doors)}."] if doors else [])]


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST_NAME else f"{text[:LONGEST_NAME]} ..."
