"""The instructions for SciWorld."""

from __future__ import annotations

from collections.abc import Container

LONGEST_ACTION = 500

DOORS = {
    "hallway": ("art studio", "bedroom", "greenhouse", "kitchen", "living room", "workshop"),
    "kitchen": ("bathroom", "outside"),
    "outside": ("foundry", "greenhouse"),
}
"""The house is the same in all tasks. Each door is named once."""
INTRODUCTION = f"""\
You are in a small world of rooms, things and living beings that follow the laws of science: what \
is heated melts and boils, \
what is wired to a battery carries a current, what is planted in soil and watered grows. You are \
given a task to do there, \
and you score points on the way to it. The house is always the same. \
{" ".join(f"Doors of the {room}: {', '.join(others)}." for room, others in DOORS.items())}

Each turn you take one action. OBJ stands for something that you see here or hold, by its name: \
"thermometer", or \
"thermometer in inventory" to say which one.
- look around: describes the room. look at OBJ, look in OBJ: describes one thing, or what is \
inside it.
- inventory: lists what you hold. task: repeats the task.
- go to OBJ: walks to the next room through an open door. open OBJ, close OBJ: of doors and \
containers."""
TELEPORT = "- teleport to ROOM: goes straight to any room, by its name."
DOING = """\
- pick up OBJ, put down OBJ, move OBJ to OBJ, pour OBJ into OBJ, dunk OBJ into OBJ, mix OBJ: "mix" \
is for a container, and lets \
its contents react.
- activate OBJ, deactivate OBJ: switches a device, such as a stove or a sink, on or off.
- use OBJ on OBJ: of tools and instruments, such as a thermometer. read OBJ, eat OBJ, flush OBJ."""
WIRING = """\
- connect OBJ to OBJ, disconnect OBJ: of electrical parts. Name the ends, such as "red wire \
terminal 1" or "battery anode"."""
ENDING = """\
- wait: lets ten moments pass. wait1: lets one pass.
- focus on OBJ: says that this is the thing the task is about. The task tells what to focus on, \
and in which order; do it as \
soon as you see the thing: it brings a third to a half of all points. Focusing on anything else \
fails the task at once.

Where a name fits several things, you are asked which one you mean: answer with the number alone."""


def instructions(simplifications: Container[str]) -> str:
    """The actions that there are."""
    teleport = (
        [TELEPORT] if "easy" in simplifications or "teleportAction" in simplifications else []
    )
    wiring = [] if "noElectricalAction" in simplifications else [WIRING]
    return "\n".join([INTRODUCTION, *teleport, DOING, *wiring, ENDING])


def normal(action: str) -> str:
    """An action normalized for the simulator: one line of bounded length that can be encoded."""
    words = " ".join(action.encode(errors="replace").decode().lower().split())
    return words[:LONGEST_ACTION].strip(" .`'\"")
