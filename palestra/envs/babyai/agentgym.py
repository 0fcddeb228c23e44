"""BabyAI's actions with the names, numbers and paths of AgentGym's server, so that trajectories
recorded there can be replayed here.

Names: a door's name includes its state ("red closed door 1"), and doors are numbered per color and
state. Objects at equal distance are numbered from the farthest row, and from left to right. "go to"
and "pickup" number only the objects that can be reached.

Paths: they may cross cells that are not visible, and the cells of doors in any state. A path
therefore ends at the first step that leaves the view unchanged. "go through" and "toggle and go
through" end on the door's own cell. An action without primitive steps, such as an invalid one,
takes no time.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise
from typing import Any, Self, cast

from minigrid.envs.babyai.core.roomgrid_level import RoomGridLevel

from palestra.envs.babyai.view import (
    AGENT,
    DROP,
    FORWARD,
    FRONT,
    LEFT,
    PICKUP,
    RIGHT,
    SIZE,
    TOGGLE,
    Thing,
    View,
    state_of,
)

INSTRUCTIONS = """\
You are in a world of rooms with balls, boxes, keys and doors. Reach the goal that you are given, \
in few steps.
You see up to 6 steps ahead and 3 steps to either side, but not through walls and closed doors, \
and not behind you. Turn to look around.
Objects of the same color and kind are numbered from the nearest one, anew after each action; \
doors by their state too.
Actions:
- go to <object> <n>: walk to the object and face it
- pickup <object> <n>: walk to a ball, box or key and pick it up; you can carry one thing
- drop: put down what you carry on the free cell in front of you
- go through <color> open door <n>: walk into the doorway
- toggle and go through <color> closed door <n>: open the door and walk into the doorway; "locked" \
in the place of "closed" needs the key \
of the door's color in your hands
- toggle: open the door in front of you
- turn left, turn right, move forward
- check available actions: look again, which takes no time
Only the available actions listed with each observation are valid. Take one of them, word for \
word."""

LEVELS = (
    "GoToRedBallGrey",
    "GoToRedBall",
    "GoToRedBallNoDists",
    "GoToObjS4",
    "GoToLocalS8N7",
    "GoToObjMazeS7",
    "GoToImpUnlock",
    "GoToSeqS5R2",
    "GoToRedBlueBall",
    "GoToDoor",
    "GoToObjDoor",
    "Open",
    "OpenRedDoor",
    "OpenDoorLoc",
    "OpenRedBlueDoorsDebug",
    "OpenDoorsOrderN4Debug",
    "Pickup",
    "UnblockPickup",
    "PickupLoc",
    "PickupDistDebug",
    "PickupAbove",
    "PutNextLocalS6N4",
    "PutNextS7N4Carrying",
    "Unlock",
    "UnlockLocalDist",
    "KeyInBox",
    "UnlockPickupDist",
    "BlockedUnlockPickup",
    "UnlockToUnlock",
    "ActionObjDoor",
    "FindObjS7",
    "KeyCorridorS6R3",
    "OneRoomS20",
    "MoveTwoAcrossS8N9",
    "SynthS5R2",
    "SynthLoc",
    "SynthSeq",
    "MiniBossLevel",
    "BossLevel",
    "BossLevelNoUnlock",
)
"""The levels of AgentGym's server.

GoToObjS6 in its minigrid 2 has rooms of size 4: our GoToObjS4.
"""

Pose = tuple[int, int, int]
"""Steps ahead, steps to the right, and a heading: 0 ahead, 1 right, 2 back, 3 left."""

_AHEAD = ((1, 0), (0, 1), (-1, 0), (0, -1))
_DOOR = re.compile(
    r"(go to|go through|toggle and go through) [a-z]+ (open|closed|locked) door [1-9][0-9]*"
)
# AgentGym lists rows from the farthest to the nearest, each from left to right. Sorting is stable,
# so cells at equal distance stay in this order.
_CELLS: list[int] = []
for _ahead in reversed(range(SIZE)):
    _CELLS.extend(SIZE * _ahead + _side for _side in range(SIZE))


def task_id(data_idx: int) -> str:
    """Our id of the task that AgentGym's server plays for `data_idx` (item `babyai_<data_idx>`)."""
    seed, level = divmod(data_idx, len(LEVELS))
    return f"{LEVELS[level]}-{seed}"


def names_door(action: str) -> bool:
    """Whether an action names a door by its state, as only AgentGym does."""
    return _DOOR.fullmatch(action) is not None


def normalize(action: str) -> str:
    return " ".join(action.lower().split())


class AgentGymView(View):
    """A view with AgentGym's object names and actions."""

    @classmethod
    def at_start(cls, world: RoomGridLevel) -> Self:
        """The first view of an episode.

        AgentGym takes it before the agent picks up the object that it carries from the start, so
        this view shows that object on its initial cell too.
        """
        carried, grid = world.carrying, cast(Any, world.grid)
        if carried is None:
            return cls(world)
        world.carrying = None
        grid.set(*carried.init_pos, carried)
        view = cls(world)
        view.picture  # noqa: B018  cached now, while the agent carries nothing
        grid.set(*carried.init_pos, None)
        world.carrying = view.carried = carried
        return view

    def _name_things(self) -> list[Thing]:
        things = []
        counts: Counter[str] = Counter()
        cells = (cell for cell in _CELLS if cell != AGENT and self.visible[cell])
        for cell in sorted(cells, key=lambda cell: cell // SIZE + abs(cell % SIZE - AGENT)):
            content = self.contents[cell]
            if content is None or content.type == "wall":
                continue
            ahead, side = cell // SIZE, cell % SIZE - AGENT
            what = _what(content)
            counts[what] += 1
            things.append(
                Thing(
                    f"{what} {counts[what]}",
                    content.type,
                    "",
                    cell,
                    ahead,
                    side,
                    self.position(cell),
                )
            )
        return things

    @cached_property
    def picture(self) -> list[tuple[str, str, str] | None]:
        """The visible cells; the agent's own cell holds what it carries."""
        seen = [
            _look(content) if visible else ("unseen", "", "")
            for content, visible in zip(self.contents, self.visible, strict=True)
        ]
        seen[AGENT] = _look(self.carried)
        return seen

    @cached_property
    def macros(self) -> dict[str, list[int]]:
        """AgentGym's available actions in its order, each with its primitive actions."""
        macros = {"turn left": [LEFT], "turn right": [RIGHT]}
        front = self.contents[FRONT]
        if front is None or front.type not in ("box", "wall"):
            macros["move forward"] = [FORWARD]
        reachable = self._number_reachable()
        if self.carried is None:
            macros |= {
                f"pickup {name}": [*walk, PICKUP]
                for name, kind, walk in reachable
                if kind != "door"
            }
        elif front is None or front.type == "door":
            macros["drop"] = [DROP]
        for thing in self.things:
            if thing.kind == "door":
                macros |= self._door_macros(thing, self._facing.get((thing.ahead, thing.side)))
        macros |= {f"go to {name}": walk for name, _, walk in reachable}
        macros["check available actions"] = []
        return macros

    def _number_reachable(self) -> list[tuple[str, str, list[int]]]:
        """Name, kind and path of each reachable object; only reachable objects are numbered."""
        counts: Counter[str] = Counter()
        reachable = []
        for thing in self.things:
            walk = self._facing.get((thing.ahead, thing.side))
            if walk is not None:
                what = _what(self.contents[thing.cell])
                counts[what] += 1
                reachable.append((f"{what} {counts[what]}", thing.kind, walk))
        return reachable

    def _door_macros(self, thing: Thing, route: list[int] | None) -> dict[str, list[int]]:
        door = self.contents[thing.cell]
        if door.is_open:
            walk = self._standing.get((thing.ahead, thing.side))
            return {} if walk is None else {f"go through {thing.name}": walk}
        if route is None or not self._can_toggle(door):
            return {}
        macros = {f"toggle and go through {thing.name}": [*route, TOGGLE, FORWARD]}
        return macros if route else {**macros, "toggle": [TOGGLE]}

    @cached_property
    def _facing(self) -> dict[tuple[int, int], list[int]]:
        """For each cell, the path to the first pose that faces it."""
        poses: dict[tuple[int, int], Pose] = {}
        for ahead, side, heading in self._search:
            poses.setdefault(
                (ahead + _AHEAD[heading][0], side + _AHEAD[heading][1]), (ahead, side, heading)
            )
        return {place: self._walk(pose) for place, pose in poses.items()}

    @cached_property
    def _standing(self) -> dict[tuple[int, int], list[int]]:
        """For each cell, the path to the first pose on it."""
        poses: dict[tuple[int, int], Pose] = {}
        for pose in self._search:
            poses.setdefault(pose[:2], pose)
        return {place: self._walk(pose) for place, pose in poses.items()}

    @cached_property
    def _search(self) -> dict[Pose, Pose]:
        """Every reachable pose and its predecessor, in the order of AgentGym's search.

        AgentGym's queue holds a pose once per shortest path to it. It visits the pose at its first
        entry, but the last entry sets its predecessor. `first` and `last` are the poses at one
        distance in these two orders, without duplicates.
        """
        start = (0, 0, 0)
        before = {start: start}
        first, last = [start], [start]
        while first:
            new: list[Pose] = []
            for known in first:
                new += [pose for pose in self._next_poses(known) if pose not in before]
            latest: dict[Pose, Pose] = {}
            for known in last:
                for pose in self._next_poses(known):
                    if pose not in before:
                        # Removed first, because assigning to an existing key keeps its old place.
                        latest.pop(pose, None)
                        latest[pose] = known
            first, last = list(dict.fromkeys(new)), list(latest)
            before |= {pose: latest[pose] for pose in first}
        return before

    def _next_poses(self, pose: Pose) -> Iterator[Pose]:
        """A step ahead, a left turn, a right turn: the order of AgentGym's search."""
        ahead, side, heading = pose
        step = (ahead + _AHEAD[heading][0], side + _AHEAD[heading][1])
        if self._is_open_to_plans(*step):
            yield (*step, heading)
        yield (ahead, side, (heading - 1) % 4)
        yield (ahead, side, (heading + 1) % 4)

    def _is_open_to_plans(self, ahead: int, side: int) -> bool:
        # AgentGym's ranges include one extra row behind the agent, and one to its right, where
        # these point towards smaller coordinates.
        farthest_back = -1 if self.direction in (0, 1) else 0
        farthest_right = AGENT + 1 if self.direction in (1, 2) else AGENT
        if not (farthest_back <= ahead < SIZE and -AGENT <= side <= farthest_right):
            return False
        if ahead < 0 or side > AGENT or (ahead, side) == (0, 0):
            return True
        cell = SIZE * ahead + side + AGENT
        return (
            not self.visible[cell]
            or self.contents[cell] is None
            or self.contents[cell].type == "door"
        )

    def _walk(self, pose: Pose) -> list[int]:
        poses = [pose]
        while poses[-1] != (0, 0, 0):
            poses.append(self._search[poses[-1]])
        return [_primitive(one, next) for one, next in pairwise(reversed(poses))]


def _primitive(one: Pose, next: Pose) -> int:
    return {0: FORWARD, 1: RIGHT, 3: LEFT}[(next[2] - one[2]) % 4]


def _what(content: Any) -> str:
    if content.type == "door":
        return f"{content.color} {state_of(content)} door"
    return f"{content.color} {content.type}"


def _look(content: Any) -> tuple[str, str, str] | None:
    return None if content is None else (content.type, content.color, state_of(content))
