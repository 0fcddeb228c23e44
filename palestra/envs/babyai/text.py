"""BabyAI as text: sentences for a language model, or the compact style for a small vocabulary."""

from __future__ import annotations

from minigrid.core.constants import COLOR_NAMES

from palestra.core.types import Example
from palestra.envs.babyai.view import MOST_ALIKE, Thing, View

INVALID = "no such action"
"""The start of the compact observation after an invalid action."""

_KINDS = ("ball", "box", "door", "key")
_STATES = ("open", "closed", "locked")
_MISSION_WORDS = (
    "go to pick up open put next to the a object in front of behind on your left right , then "
    "after you and"
)
_VIEW_WORDS = "goal : see nothing , left right ; wall far carry"
_ACTION_WORDS = "go to pick up open through drop toggle turn left right move forward"
_ENDINGS = "success failure over"

INSTRUCTIONS = """\
You are in a world of rooms with balls, boxes, keys and doors. Reach the goal that you are given, \
in few steps.
You see up to 6 steps ahead and 3 steps to either side, but not through walls and closed doors, \
and not behind you. Turn to look around.
Objects of the same colour and kind are numbered from the nearest one, anew after each action.
Actions:
- go to <object> <n>: walk to the object and face it
- pick up <object> <n>: walk to a ball, box or key and pick it up; you can carry one thing
- drop: put down what you carry on the free cell in front of you. One thing is next to another on \
a cell that shares a side with the \
other's: when that is 2 steps straight ahead, drop puts yours next to it
- open <door> <n>: walk to a closed door and open it; a locked door needs the key of its colour in \
your hands
- go through <door> <n>: walk through a door, opening it first if need be
- toggle: open or close the door, or open the box, in front of you (a box is gone once opened, and \
leaves what was in it)
- turn left, turn right, move forward, move forward <n>
Only the available actions listed with each observation are valid. Take one of them, word for \
word."""

EXAMPLE_TASKS = ("UnlockPickup-4", "PutNextS5N1-2")
"""The training tasks that the example plays in this order. A test replays them."""

EXAMPLE = (
    Example(
        "Your goal: pick up the yellow box\n"
        "A purple key 1 is 1 step ahead and 3 steps to the right. A wall is 4 steps "
        "ahead. You carry nothing.\n"
        "Available actions: go to purple key 1, pick up purple key 1, turn left, turn "
        "right, move forward, move forward 2, "
        "move forward 3",
        "There is a key, but I see neither the box nor a door. I turn to look around.",
        "turn right",
    ),
    Example(
        "Your goal: pick up the yellow box\n"
        "A purple key 1 is 3 steps ahead and 1 step to the left. A purple door 1 (locked) "
        "is 4 steps ahead and 1 step to "
        "the left. A wall is 4 steps ahead. You carry nothing.\n"
        "Available actions: go to purple key 1, pick up purple key 1, turn left, turn "
        "right, move forward, move forward 2, "
        "move forward 3",
        "The box must be behind the locked purple door. I need its key first.",
        "pick up purple key 1",
    ),
    Example(
        "Your goal: pick up the yellow box\n"
        "A purple door 1 (locked) is 1 step ahead and 1 step to the right. A wall is 4 "
        "steps ahead. You carry a purple key.\n"
        "Available actions: go to purple door 1, open purple door 1, go through purple "
        "door 1, drop, turn left, turn right, "
        "move forward, move forward 2, move forward 3",
        "With the purple key in my hands I can unlock the purple door and walk through.",
        "go through purple door 1",
    ),
    Example(
        "Your goal: pick up the yellow box\n"
        "A yellow box 1 is 1 step to the left. A wall is 4 steps ahead. You carry a purple key.\n"
        "Available actions: go to yellow box 1, drop, turn left, turn right, move "
        "forward, move forward 2, move forward 3",
        "There is the yellow box, but my hands are full. I put the key down.",
        "drop",
    ),
    Example(
        "Your goal: pick up the yellow box\n"
        "A yellow box 1 is 1 step to the left. A purple key 1 is 1 step ahead. A wall is "
        "4 steps ahead. You carry nothing.\n"
        "Available actions: go to yellow box 1, pick up yellow box 1, go to purple key 1, "
        "pick up purple key 1, turn left, "
        "turn right",
        "My hands are free now: I pick up the box.",
        "pick up yellow box 1",
    ),
    Example(
        "Your goal: put the green ball next to the grey key\n"
        "A grey key 1 is 1 step ahead and 1 step to the right. A wall is 2 steps ahead. "
        "You carry nothing.\n"
        "Available actions: go to grey key 1, pick up grey key 1, turn left, turn right, "
        "move forward",
        "There is the grey key. I do not see the green ball, so I turn to look for it.",
        "turn right",
    ),
    Example(
        "Your goal: put the green ball next to the grey key\n"
        "A grey key 1 is 1 step ahead and 1 step to the left. A green ball 1 is 4 steps "
        "ahead. You carry nothing.\n"
        "Available actions: go to grey key 1, pick up grey key 1, go to green ball 1, "
        "pick up green ball 1, turn left, turn right, "
        "move forward, move forward 2, move forward 3",
        "The green ball is what I have to carry. I pick it up.",
        "pick up green ball 1",
    ),
    Example(
        "Your goal: put the green ball next to the grey key\n"
        "You see no objects. A wall is 4 steps ahead. You carry a green ball.\n"
        "Available actions: drop, turn left, turn right, move forward, move forward 2, "
        "move forward 3",
        "I walked past the grey key, which was to the left. I turn back to it.",
        "turn left",
    ),
    Example(
        "Your goal: put the green ball next to the grey key\n"
        "A grey key 1 is 1 step ahead and 2 steps to the left. A wall is 2 steps ahead. "
        "You carry a green ball.\n"
        "Available actions: go to grey key 1, drop, turn left, turn right, move forward",
        "One step ahead I am in line with the grey key, 2 steps away from it.",
        "move forward",
    ),
    Example(
        "Your goal: put the green ball next to the grey key\n"
        "A grey key 1 is 2 steps to the left. A wall is 1 step ahead. You carry a green ball.\n"
        "Available actions: go to grey key 1, turn left, turn right",
        "Now I face the grey key.",
        "turn left",
    ),
    Example(
        "Your goal: put the green ball next to the grey key\n"
        "A grey key 1 is 2 steps ahead. A wall is 4 steps ahead. You carry a green ball.\n"
        "Available actions: go to grey key 1, drop, turn left, turn right, move forward",
        "The cell in front of me is free and shares a side with the grey key's. I drop "
        "the green ball there.",
        "drop",
    ),
)


def normalize(action: str) -> str:
    """An action in the listed form: lower case, single spaces, AgentGym's long forms shortened."""
    words = " ".join(action.lower().split())
    for theirs, ours in (("pickup ", "pick up "), ("toggle and go through ", "go through ")):
        if words.startswith(theirs):
            return ours + words.removeprefix(theirs)
    return words


def vocabulary() -> list[str]:
    """All words of compact missions, observations and actions, on any level."""
    words = {*COLOR_NAMES, *_KINDS, *_STATES, *(str(number) for number in range(MOST_ALIKE + 1))}
    for part in (_MISSION_WORDS, _VIEW_WORDS, _ACTION_WORDS, _ENDINGS, INVALID):
        words.update(part.split())
    return sorted(words)


def compact_mission(mission: str) -> str:
    return f"goal : {mission.lower().replace(',', ' ,')} ;"


def compact_view(view: View) -> str:
    seen = " , ".join(_compact_thing(thing) for thing in view.things) or "nothing"
    return f"see {seen} ; wall {view.wall_ahead or 'far'} ; carry {_carried(view) or 'nothing'}"


def _compact_thing(thing: Thing) -> str:
    state = f" {thing.state}" if thing.state else ""
    side = f" {'right' if thing.side > 0 else 'left'} {abs(thing.side)}" if thing.side else ""
    return f"{thing.name}{state} {thing.ahead}{side}"


def text_view(view: View) -> str:
    sentences = [_sentence(thing) for thing in view.things] or ["You see no objects."]
    wall = view.wall_ahead
    if wall is not None:
        sentences.append(f"A wall is {_steps(wall)} ahead.")
    carried = _carried(view)
    sentences.append(f"You carry a {carried}." if carried else "You carry nothing.")
    return f"{' '.join(sentences)}\nAvailable actions: {', '.join(view.macros)}"


def _sentence(thing: Thing) -> str:
    where = [f"{_steps(thing.ahead)} ahead"] if thing.ahead else []
    if thing.side:
        where.append(f"{_steps(abs(thing.side))} to the {'right' if thing.side > 0 else 'left'}")
    state = f" ({thing.state})" if thing.state else ""
    return f"A {thing.name}{state} is {' and '.join(where)}."


def _carried(view: View) -> str:
    return f"{view.carried.color} {view.carried.type}" if view.carried is not None else ""


def _steps(count: int) -> str:
    return "1 step" if count == 1 else f"{count} steps"
