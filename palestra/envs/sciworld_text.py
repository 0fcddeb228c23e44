"""What an agent is told about SciWorld before it plays."""

from __future__ import annotations

from collections.abc import Container

from palestra.types import Example

LONGEST_ACTION = 500

DOORS = {
    "hallway": ("art studio", "bedroom", "greenhouse", "kitchen", "living room", "workshop"),
    "kitchen": ("bathroom", "outside"),
    "outside": ("foundry", "greenhouse"),
}
"""The house is the same in all tasks. Each door is named once."""
INTRODUCTION = f"""\
You are in a small world of rooms, things and living beings that follow the laws of science: what is heated melts and boils, \
what is wired to a battery carries a current, what is planted in soil and watered grows. You are given a task to do there, \
and you score points on the way to it. The house is always the same. \
{" ".join(f"Doors of the {room}: {', '.join(others)}." for room, others in DOORS.items())}

Each turn you take one action. OBJ stands for something that you see here or hold, by its name: "thermometer", or \
"thermometer in inventory" to say which one.
- look around: describes the room. look at OBJ, look in OBJ: describes one thing, or what is inside it.
- inventory: lists what you hold. task: repeats the task.
- go to OBJ: walks to the next room through an open door. open OBJ, close OBJ: of doors and containers."""
TELEPORT = "- teleport to ROOM: goes straight to any room, by its name."
DOING = """\
- pick up OBJ, put down OBJ, move OBJ to OBJ, pour OBJ into OBJ, dunk OBJ into OBJ, mix OBJ: "mix" is for a container, and lets \
its contents react.
- activate OBJ, deactivate OBJ: switches a device, such as a stove or a sink, on or off.
- use OBJ on OBJ: of tools and instruments, such as a thermometer. read OBJ, eat OBJ, flush OBJ."""
WIRING = """\
- connect OBJ to OBJ, disconnect OBJ: of electrical parts. Name the ends, such as "red wire terminal 1" or "battery anode"."""
ENDING = """\
- wait: lets ten moments pass. wait1: lets one pass.
- focus on OBJ: says that this thing is the one the task is about. Do it only where the task asks for it, and only with the \
right thing: focusing on a wrong one fails the task at once.

Where a name fits several things, you are asked which one you mean: answer with the number alone."""


def instructions(simplifications: Container[str]) -> str:
    """The actions that there are."""
    teleport = [TELEPORT] if "easy" in simplifications or "teleportAction" in simplifications else []
    wiring = [] if "noElectricalAction" in simplifications else [WIRING]
    return "\n".join([INTRODUCTION, *teleport, DOING, *wiring, ENDING])


def normal(action: str) -> str:
    """An action as the simulator is given it: one line of bounded length that can be encoded."""
    words = " ".join(action.encode(errors="replace").decode().lower().split())
    return words[:LONGEST_ACTION].strip(" .`'\"")


EXAMPLE_TASK = "find-non-living-thing/1"
EXAMPLE = (
    Example(
        observation="""\
Your task is to find a(n) non-living thing. First, focus on the thing. Then, move it to the green box in the kitchen.

This room is called the art studio. In it, you see:
\tthe agent
\ta substance called air
\ta large cupboard. The large cupboard door is closed.
\ta table. On the table is: a bowl (containing nothing).
\ta wood cup (containing red paint)
\ta wood cup (containing blue paint)
\ta wood cup (containing yellow paint)
You also see:
\tA door to the hallway (that is closed)""",
        thought="The box is in the kitchen. I am in the art studio, and its only door is closed.",
        action="open door to hallway",
    ),
    Example(
        observation="The door is now open.",
        thought="Now I can walk through.",
        action="go to hallway",
    ),
    Example(
        observation="You move to the hallway.",
        thought="The kitchen should be next to the hallway.",
        action="open door to kitchen",
    ),
    Example(
        observation="The door is now open.",
        thought="The door is open.",
        action="go to kitchen",
    ),
    Example(
        observation="You move to the kitchen.",
        thought="I need to see what is here.",
        action="look around",
    ),
    Example(
        observation="""\
This room is called the kitchen. In it, you see:
\tthe agent
\ta substance called air
\ta chair. On the chair is: nothing.
\ta counter. On the counter is: a bowl (containing a red apple, a banana, an orange, a potato), a drawer.
\ta cupboard. The cupboard door is closed.
\ta freezer. The freezer door is closed.
\ta fridge. The fridge door is closed.
\ta glass jar (containing a substance called sodium chloride)
\ta green box (containing nothing)
\ta lighter
\ta oven, which is turned off. The oven door is closed.
\ta painting
\ta sink, which is turned off. In the sink is: nothing.
\ta substance called soap
\ta stopwatch, which is deactivated.
\ta stove, which is turned off. On the stove is: nothing.
\ta table. On the table is: a glass cup (containing nothing).
\ta thermometer, currently reading a temperature of 10 degrees celsius
You also see:
\tA door to the bathroom (that is closed)
\tA door to the hallway (that is open)
\tA door to the outside (that is closed)""",
        thought="A stopwatch is not alive and never was. I say that it is the thing.",
        action="focus on stopwatch",
    ),
    Example(
        observation="You focus on the stopwatch.",
        thought="What is left is to put it into the green box.",
        action="move stopwatch to green box",
    ),
)
"""A training task."""
