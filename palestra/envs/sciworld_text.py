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
- focus on OBJ: says that this is the thing the task is about. The task tells what to focus on, and in which order; it brings \
points as soon as you see the thing. Focusing on anything else fails the task at once.

Where a name fits several things, you are asked which one you mean: answer with the number alone."""


def instructions(simplifications: Container[str]) -> str:
    """The actions that there are."""
    teleport = [TELEPORT] if "easy" in simplifications or "teleportAction" in simplifications else []
    wiring = [] if "noElectricalAction" in simplifications else [WIRING]
    return "\n".join([INTRODUCTION, *teleport, DOING, *wiring, ENDING])


def worked_examples(simplifications: Container[str]) -> tuple[Example, ...]:
    """Games from beginning to end, one after the other."""
    games = [ANIMAL, THERMOMETER] if "noElectricalAction" in simplifications else EXAMPLES.values()
    return tuple(turn for game in games for turn in game)


def normal(action: str) -> str:
    """An action as the simulator is given it: one line of bounded length that can be encoded."""
    words = " ".join(action.encode(errors="replace").decode().lower().split())
    return words[:LONGEST_ACTION].strip(" .`'\"")


ANIMAL = (
    Example(
        observation="""\
Your task is to find a(n) animal. First, focus on the thing. Then, move it to the red box in the kitchen.

This room is called the hallway. In it, you see:
\tthe agent
\ta substance called air
\ta picture
You also see:
\tA door to the art studio (that is closed)
\tA door to the bedroom (that is closed)
\tA door to the greenhouse (that is closed)
\tA door to the kitchen (that is closed)
\tA door to the living room (that is closed)
\tA door to the workshop (that is closed)""",
        thought="I have to focus on an animal first. Animals live outside. I am in the hallway: the way is through the kitchen.",
        action="open door to kitchen",
    ),
    Example(
        observation="The door is now open.",
        thought="Now I can walk through.",
        action="go to kitchen",
    ),
    Example(
        observation="You move to the kitchen.",
        thought="From the kitchen I go on to the outside.",
        action="open door to outside",
    ),
    Example(
        observation="The door is now open.",
        thought="Now I can walk through.",
        action="go to outside",
    ),
    Example(
        observation="You move to the outside.",
        thought="I am where animals live. What is here?",
        action="look around",
    ),
    Example(
        observation="""\
This outside location is called the outside. Here you see:
\tthe agent
\ta substance called air
\tan axe
\ta blue jay egg
\ta butterfly egg
\ta dove egg
\ta fire pit (containing nothing)
\ta fountain (containing a substance called water)
\tthe ground
\ta substance called wood
You also see:
\tA door to the foundry (that is closed)
\tA door to the greenhouse (that is closed)
\tA door to the kitchen (that is open)""",
        thought="A blue jay egg is an animal that is not born yet, so it is one of the things to focus on.",
        action="focus on blue jay egg",
    ),
    Example(
        observation="You focus on the blue jay egg.",
        thought="Next it has to go into the red box in the kitchen, so I take it along.",
        action="pick up blue jay egg",
    ),
    Example(
        observation="You move the blue jay to the inventory.",
        thought="The door to the kitchen is open.",
        action="go to kitchen",
    ),
    Example(
        observation="You move to the kitchen.",
        thought="The red box is here. What is left is to put the egg into it.",
        action="move blue jay egg to red box",
    ),
)
THERMOMETER = (
    Example(
        observation="""\
Your task is to measure the temperature of unknown substance B, which is located around the living room. First, focus on the \
thermometer. Next, focus on the unknown substance B. If the unknown substance B temperature is above -50.0 degrees celsius, place \
it in the yellow box. If the unknown substance B temperature is below -50.0 degrees celsius, place it in the purple box. The \
boxes are located around the living room.

This room is called the hallway. In it, you see:
\tthe agent
\ta substance called air
\ta drawing
You also see:
\tA door to the art studio (that is closed)
\tA door to the bedroom (that is closed)
\tA door to the greenhouse (that is closed)
\tA door to the kitchen (that is closed)
\tA door to the living room (that is closed)
\tA door to the workshop (that is closed)""",
        thought="I have to focus on the thermometer first. It is in the kitchen. I am in the hallway: the kitchen is next to it.",
        action="open door to kitchen",
    ),
    Example(
        observation="The door is now open.",
        thought="Now I can walk through.",
        action="go to kitchen",
    ),
    Example(
        observation="You move to the kitchen.",
        thought="The thermometer should be here.",
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
        thought="I see the thermometer, so I focus on it.",
        action="focus on thermometer",
    ),
    Example(
        observation="You focus on the thermometer.",
        thought="I will need it in the living room, so I take it along.",
        action="pick up thermometer",
    ),
    Example(
        observation="You move the thermometer to the inventory.",
        thought="Next is the unknown substance B. It is in the living room: the way is through the hallway.",
        action="go to hallway",
    ),
    Example(
        observation="You move to the hallway.",
        thought="The door of the living room is closed.",
        action="open door to living room",
    ),
    Example(
        observation="The door is now open.",
        thought="Now I can walk through.",
        action="go to living room",
    ),
    Example(
        observation="You move to the living room.",
        thought="The unknown substance B should be here.",
        action="look around",
    ),
    Example(
        observation="""\
This room is called the living room. In it, you see:
\tthe agent
\ta substance called air
\ta chair. On the chair is: nothing.
\ta couch. On the couch is: a white pillow.
\ta desk. On the desk is: a drawer.
\ta painting
\ta purple box (containing nothing)
\tunknown substance B
\ta yellow box (containing nothing)
You also see:
\tA door to the hallway (that is open)""",
        thought="I see the unknown substance B, so I focus on it.",
        action="focus on unknown substance B",
    ),
    Example(
        observation="You focus on the unknown substance B.",
        thought="Now I measure it with the thermometer that I hold.",
        action="use thermometer on unknown substance B",
    ),
    Example(
        observation="the thermometer measures a temperature of 118 degrees celsius",
        thought="118 is above -50, so it goes into the yellow box.",
        action="move unknown substance B to yellow box",
    ),
)
CONDUCTIVITY = (
    Example(
        observation="""\
Your task is to determine if aluminum foil is electrically conductive. The aluminum foil is located around the workshop. First, \
focus on the aluminum foil. If it is electrically conductive, place it in the green box. If it is electrically nonconductive, \
place it in the blue box.

This room is called the greenhouse. In it, you see:
\tthe agent
\ta substance called air
\ta bee hive. The bee hive door is closed.
\ta jug (containing nothing)
\ta shovel
\ta sink, which is turned off. In the sink is: nothing.
You also see:
\tA door to the hallway (that is closed)
\tA door to the outside (that is closed)""",
        thought="I have to focus on the aluminum foil first. It is in the workshop, and I am in the greenhouse: I go through the hallway.",
        action="open door to hallway",
    ),
    Example(
        observation="The door is now open.",
        thought="Now I can walk through.",
        action="go to hallway",
    ),
    Example(
        observation="You move to the hallway.",
        thought="From the hallway I go on to the workshop.",
        action="open door to workshop",
    ),
    Example(
        observation="The door is now open.",
        thought="Now I can walk through.",
        action="go to workshop",
    ),
    Example(
        observation="You move to the workshop.",
        thought="The aluminum foil should be here.",
        action="look around",
    ),
    Example(
        observation="""\
This room is called the workshop. In it, you see:
\tthe agent
\ta substance called air
\tA aluminum foil
\ta blue box (containing nothing)
\ta green box (containing nothing)
\ta table. On the table is: a battery, a blue light bulb, which is off, a green light bulb, which is off, a green wire, a orange \
wire, a red wire, a switch, which is off, a violet light bulb, which is off.
\ta ultra low temperature freezer. The ultra low temperature freezer door is closed.
You also see:
\tA door to the hallway (that is open)""",
        thought="I see the aluminum foil, so I focus on it.",
        action="focus on aluminum foil",
    ),
    Example(
        observation="You focus on the aluminum foil.",
        thought="To test it I need a circuit: battery, wire, light bulb, wire, foil, wire, and back to the battery.",
        action="connect battery anode to green wire terminal 1",
    ),
    Example(
        observation="anode on battery is now connected to terminal 1 on green wire",
        thought="The other end of this wire goes to the light bulb.",
        action="connect green wire terminal 2 to blue light bulb cathode",
    ),
    Example(
        observation="terminal 2 on green wire is now connected to cathode on blue light bulb",
        thought="From the light bulb a second wire goes on.",
        action="connect blue light bulb anode to orange wire terminal 1",
    ),
    Example(
        observation="anode on blue light bulb is now connected to terminal 1 on orange wire",
        thought="It leads to the foil.",
        action="connect orange wire terminal 2 to aluminum foil terminal 1",
    ),
    Example(
        observation="terminal 2 on orange wire is now connected to terminal 1 on aluminum foil",
        thought="From the foil the third wire goes back.",
        action="connect aluminum foil terminal 2 to red wire terminal 1",
    ),
    Example(
        observation="terminal 2 on aluminum foil is now connected to terminal 1 on red wire",
        thought="Its other end closes the circuit at the battery.",
        action="connect red wire terminal 2 to battery cathode",
    ),
    Example(
        observation="terminal 2 on red wire is now connected to cathode on battery",
        thought="Is there light?",
        action="look at blue light bulb",
    ),
    Example(
        observation="""\
a blue light bulb, which is off. its anode is connected to: a terminal 1 on orange wire. its cathode is connected to: a terminal \
2 on green wire.""",
        thought="The light bulb is on, so the foil conducts. It goes into the green box.",
        action="move aluminum foil to green box",
    ),
)
EXAMPLES = {"find-animal/0": ANIMAL, "use-thermometer/39": THERMOMETER, "test-conductivity/6": CONDUCTIVITY}
"""Training tasks of three kinds, each begun in another room than its things are in: a model does in every task what it was shown."""
