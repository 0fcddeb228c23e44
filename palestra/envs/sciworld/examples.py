"""Games of SciWorld from beginning to end, to be shown before an agent plays."""

from __future__ import annotations

from collections.abc import Container
from itertools import chain

from palestra.core.types import Example


def worked_examples(simplifications: Container[str]) -> tuple[Example, ...]:
    """The example games in order, without electrical ones if electrical actions are disabled."""
    games = [ANIMAL, THERMOMETER] if "noElectricalAction" in simplifications else EXAMPLES.values()
    return tuple(chain.from_iterable(games))


def _to(room: str, observation: str, thought: str) -> tuple[Example, Example]:
    """Two turns: through a door that is closed."""
    return Example(observation, thought, f"open door to {room}"), Example(
        "The door is now open.", "Now I can walk through.", f"go to {room}"
    )


ANIMAL = (
    *_to(
        "kitchen",
        """\
Your task is to find a(n) animal. First, focus on the thing. Then, move it to the red box in the \
kitchen.

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
        "I have to focus on an animal first. Animals live outside. I am in the hallway: "
        "the way is through the kitchen.",
    ),
    *_to(
        "outside",
        "You move to the kitchen.",
        "From the kitchen I go on to the outside.",
    ),
    Example(
        "You move to the outside.",
        "I am where animals live. What is here?",
        "look around",
    ),
    Example(
        """\
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
        "A blue jay egg is an animal that is not born yet, so it is one of the things to focus on.",
        "focus on blue jay egg",
    ),
    Example(
        "You focus on the blue jay egg.",
        "Next it has to go into the red box in the kitchen, so I take it along.",
        "pick up blue jay egg",
    ),
    Example(
        "You move the blue jay to the inventory.",
        "The door to the kitchen is open.",
        "go to kitchen",
    ),
    Example(
        "You move to the kitchen.",
        "The red box is here. What is left is to put the egg into it.",
        "move blue jay egg to red box",
    ),
)
THERMOMETER = (
    *_to(
        "kitchen",
        """\
Your task is to measure the temperature of unknown substance B, which is located around the living \
room. First, focus on the \
thermometer. Next, focus on the unknown substance B. If the unknown substance B temperature is \
above -50.0 degrees celsius, place \
it in the yellow box. If the unknown substance B temperature is below -50.0 degrees celsius, place \
it in the purple box. The \
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
        "I have to focus on the thermometer first. It is in the kitchen. I am in the "
        "hallway: the kitchen is next to it.",
    ),
    Example(
        "You move to the kitchen.",
        "The thermometer should be here.",
        "look around",
    ),
    Example(
        """\
This room is called the kitchen. In it, you see:
\tthe agent
\ta substance called air
\ta chair. On the chair is: nothing.
\ta counter. On the counter is: a bowl (containing a red apple, a banana, an orange, a potato), a \
drawer.
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
        "I see the thermometer, so I focus on it.",
        "focus on thermometer",
    ),
    Example(
        "You focus on the thermometer.",
        "I will need it in the living room, so I take it along.",
        "pick up thermometer",
    ),
    Example(
        "You move the thermometer to the inventory.",
        "Next is the unknown substance B. It is in the living room: the way is through "
        "the hallway.",
        "go to hallway",
    ),
    *_to(
        "living room",
        "You move to the hallway.",
        "The door of the living room is closed.",
    ),
    Example(
        "You move to the living room.",
        "The unknown substance B should be here.",
        "look around",
    ),
    Example(
        """\
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
        "I see the unknown substance B, so I focus on it.",
        "focus on unknown substance B",
    ),
    Example(
        "You focus on the unknown substance B.",
        "Now I measure it with the thermometer that I hold.",
        "use thermometer on unknown substance B",
    ),
    Example(
        "the thermometer measures a temperature of 118 degrees celsius",
        "118 is above -50, so it goes into the yellow box.",
        "move unknown substance B to yellow box",
    ),
)
CONDUCTIVITY = (
    *_to(
        "hallway",
        """\
Your task is to determine if aluminum foil is electrically conductive. The aluminum foil is \
located around the workshop. First, \
focus on the aluminum foil. If it is electrically conductive, place it in the green box. If it is \
electrically nonconductive, \
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
        "I have to focus on the aluminum foil first. It is in the workshop, and I am in "
        "the greenhouse: I go through the hallway.",
    ),
    *_to(
        "workshop",
        "You move to the hallway.",
        "From the hallway I go on to the workshop.",
    ),
    Example(
        "You move to the workshop.",
        "The aluminum foil should be here.",
        "look around",
    ),
    Example(
        """\
This room is called the workshop. In it, you see:
\tthe agent
\ta substance called air
\tA aluminum foil
\ta blue box (containing nothing)
\ta green box (containing nothing)
\ta table. On the table is: a battery, a blue light bulb, which is off, a green light bulb, which \
is off, a green wire, a orange \
wire, a red wire, a switch, which is off, a violet light bulb, which is off.
\ta ultra low temperature freezer. The ultra low temperature freezer door is closed.
You also see:
\tA door to the hallway (that is open)""",
        "I see the aluminum foil, so I focus on it.",
        "focus on aluminum foil",
    ),
    Example(
        "You focus on the aluminum foil.",
        "To test it I need a circuit: battery, wire, light bulb, wire, foil, wire, and "
        "back to the battery.",
        "connect battery anode to green wire terminal 1",
    ),
    Example(
        "anode on battery is now connected to terminal 1 on green wire",
        "The other end of this wire goes to the light bulb.",
        "connect green wire terminal 2 to blue light bulb cathode",
    ),
    Example(
        "terminal 2 on green wire is now connected to cathode on blue light bulb",
        "From the light bulb a second wire goes on.",
        "connect blue light bulb anode to orange wire terminal 1",
    ),
    Example(
        "anode on blue light bulb is now connected to terminal 1 on orange wire",
        "It leads to the foil.",
        "connect orange wire terminal 2 to aluminum foil terminal 1",
    ),
    Example(
        "terminal 2 on orange wire is now connected to terminal 1 on aluminum foil",
        "From the foil the third wire goes back.",
        "connect aluminum foil terminal 2 to red wire terminal 1",
    ),
    Example(
        "terminal 2 on aluminum foil is now connected to terminal 1 on red wire",
        "Its other end closes the circuit at the battery.",
        "connect red wire terminal 2 to battery cathode",
    ),
    Example(
        "terminal 2 on red wire is now connected to cathode on battery",
        "The circuit is closed. A moment has to pass before anything shows.",
        "wait1",
    ),
    Example(
        "You decide to wait for 1 iterations.",
        "Is there light?",
        "look at blue light bulb",
    ),
    Example(
        """\
a blue light bulb, which is on. its anode is connected to: a terminal 1 on orange wire. its \
cathode is connected to: a terminal 2 \
on green wire.""",
        "The light bulb is on, so the foil conducts. It goes into the green box.",
        "move aluminum foil to green box",
    ),
)
EXAMPLES = {
    "find-animal/0": ANIMAL,
    "use-thermometer/39": THERMOMETER,
    "test-conductivity/6": CONDUCTIVITY,
}
"""Training tasks of three kinds, each starting in another room than its objects: a model imitates
in every task what the examples show.
"""
