"""BabyAI's 7x7 view and the macro actions that are planned over it.

A cell of the view is `7 * ahead + side + 3` with `ahead` in 0..6 and `side` in -3..3 (left is
negative); the agent stands on cell 3. A pose is `4 * cell + heading` with headings 0 ahead, 1
right, 2 back, 3 left.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from minigrid.core.actions import Actions
from minigrid.core.world_object import Wall
from minigrid.envs.babyai.core.roomgrid_level import RoomGridLevel

SIZE = 7
AGENT = SIZE // 2
"""The agent's own cell."""
FRONT = AGENT + SIZE
MOST_ALIKE = 9
"""Only the nearest nine objects of one color and kind are named, so numbers have one digit."""

LEFT, RIGHT, FORWARD = int(Actions.left), int(Actions.right), int(Actions.forward)
PICKUP, DROP, TOGGLE, WAIT = (
    int(Actions.pickup),
    int(Actions.drop),
    int(Actions.toggle),
    int(Actions.done),
)

_OUTSIDE = Wall()
_HEADINGS = ((1, 0), (0, 1), (-1, 0), (0, -1))
_CELLS = [divmod(cell, SIZE) for cell in range(SIZE * SIZE)]
_AHEAD_SIDE = [(ahead, column - AGENT) for ahead, column in _CELLS]
"""(steps ahead, steps to the right) of each cell of the view."""


def _offsets(dx: int, dy: int) -> list[tuple[int, int]]:
    return [(dx * ahead - dy * side, dy * ahead + dx * side) for ahead, side in _AHEAD_SIDE]


_OFFSETS = [_offsets(dx, dy) for dx, dy in _HEADINGS]
"""By direction: the world offset of each cell of the view from the agent."""
_NEAREST = sorted((ahead + abs(side), ahead, side) for ahead, side in _AHEAD_SIDE)
_NEAREST_CELLS = [
    SIZE * ahead + side + AGENT for _, ahead, side in _NEAREST if (ahead, side) != (0, 0)
]


def _cell_in_front(pose: int) -> int:
    cell, heading = divmod(pose, 4)
    ahead, side = divmod(cell, SIZE)
    ahead += (1, 0, -1, 0)[heading]
    side += (0, 1, 0, -1)[heading]
    return SIZE * ahead + side if 0 <= ahead < SIZE and 0 <= side < SIZE else -1


_IN_FRONT = [_cell_in_front(pose) for pose in range(4 * SIZE * SIZE)]
_TURN_LEFT = [pose - pose % 4 + (pose + 3) % 4 for pose in range(4 * SIZE * SIZE)]
_TURN_RIGHT = [pose - pose % 4 + (pose + 1) % 4 for pose in range(4 * SIZE * SIZE)]


@dataclass(frozen=True, slots=True)
class Thing:
    """An object in view.

    Actions refer to it by `name`: color, kind, and a number that counts from the nearest.
    """

    name: str
    kind: str
    state: str
    """For a door: open, closed or locked. Otherwise empty."""
    cell: int
    ahead: int
    side: int
    """Steps to the right; negative to the left."""
    position: tuple[int, int]


class View:
    """A snapshot of the 7x7 cells in front of the agent, taken after each macro action."""

    def __init__(self, world: RoomGridLevel) -> None:
        self.x, self.y, self.direction = (
            int(world.agent_pos[0]),
            int(world.agent_pos[1]),
            int(world.agent_dir),
        )
        self.carried: Any = world.carrying
        self.contents = _contents(world, self.x, self.y, self.direction)
        self.visible = _visible(self.contents)
        self.things = self._name_things()

    def position(self, cell: int) -> tuple[int, int]:
        """The world position of a cell of the view."""
        dx, dy = _OFFSETS[self.direction][cell]
        return self.x + dx, self.y + dy

    @property
    def visible_cells(self) -> list[tuple[int, int]]:
        """The world positions of all visible cells."""
        return [self.position(cell) for cell, visible in enumerate(self.visible) if visible]

    @property
    def wall_ahead(self) -> int | None:
        """Steps to the wall straight ahead, if it is visible."""
        for ahead in range(1, SIZE):
            cell = AGENT + SIZE * ahead
            content = self.contents[cell]
            if self.visible[cell] and content is not None and content.type == "wall":
                return ahead
        return None

    def _name_things(self) -> list[Thing]:
        counts: dict[str, int] = {}
        things = []
        for cell in _NEAREST_CELLS:
            content = self.contents[cell]
            if content is None or not self.visible[cell] or content.type == "wall":
                continue
            what = f"{content.color} {content.type}"
            counts[what] = counts.get(what, 0) + 1
            if counts[what] <= MOST_ALIKE:
                ahead, side = divmod(cell, SIZE)
                things.append(
                    Thing(
                        f"{what} {counts[what]}",
                        content.type,
                        state_of(content),
                        cell,
                        ahead,
                        side - AGENT,
                        self.position(cell),
                    )
                )
        return things

    def _is_free(self, cell: int) -> bool:
        return self.visible[cell] and (
            self.contents[cell] is None or self.contents[cell].can_overlap()
        )

    @cached_property
    def routes(self) -> dict[int, list[int]]:
        """For each object's cell that can be faced: the shortest path to it over visible free
        cells, as primitive actions.
        """
        wanted = {thing.cell for thing in self.things}
        free = [self._is_free(cell) for cell in range(SIZE * SIZE)]
        before = [-1] * (4 * SIZE * SIZE)
        start = 4 * AGENT
        before[start] = start
        # Breadth-first: `poses` is both the queue and the list of visited poses.
        poses = [start]
        routes: dict[int, list[int]] = {}
        for pose in poses:
            if not wanted:
                break
            front = _IN_FRONT[pose]
            if front in wanted:
                wanted.remove(front)
                routes[front] = _retrace(before, pose)
            if front >= 0 and free[front]:
                ahead = 4 * front + pose % 4
                if before[ahead] < 0:
                    before[ahead] = pose
                    poses.append(ahead)
            for turned in (_TURN_LEFT[pose], _TURN_RIGHT[pose]):
                if before[turned] < 0:
                    before[turned] = pose
                    poses.append(turned)
        return routes

    @cached_property
    def macros(self) -> dict[str, list[int]]:
        """Every valid action and its primitive actions."""
        macros: dict[str, list[int]] = {}
        for thing in self.things:
            route = self.routes.get(thing.cell)
            if route is not None:
                # If the agent is already there it waits, because the verifier only runs after a
                # step.
                macros[f"go to {thing.name}"] = route or [WAIT]
                if thing.kind == "door":
                    macros.update(self._door_macros(thing, route))
                elif self.carried is None:
                    macros[f"pick up {thing.name}"] = [*route, PICKUP]
        front = self.contents[FRONT]
        if front is None:
            if self.carried is not None:
                macros["drop"] = [DROP]
        elif front.type == "box" or (front.type == "door" and self._can_toggle(front)):
            macros["toggle"] = [TOGGLE]
        macros["turn left"] = [LEFT]
        macros["turn right"] = [RIGHT]
        for steps in range(1, SIZE):
            if not self._is_free(AGENT + SIZE * steps):
                break
            macros["move forward" if steps == 1 else f"move forward {steps}"] = [FORWARD] * steps
        return macros

    def _door_macros(self, thing: Thing, route: list[int]) -> dict[str, list[int]]:
        if thing.state == "open":
            return {f"go through {thing.name}": [*route, FORWARD, FORWARD]}
        if self._can_toggle(self.contents[thing.cell]):
            opened = [*route, TOGGLE]
            return {
                f"open {thing.name}": opened,
                f"go through {thing.name}": [*opened, FORWARD, FORWARD],
            }
        return {}

    def _can_toggle(self, door: Any) -> bool:
        carried = self.carried
        return not door.is_locked or (
            carried is not None and carried.type == "key" and carried.color == door.color
        )


def visible_positions(world: RoomGridLevel) -> list[tuple[int, int]]:
    """The world positions that the agent sees now, without naming what is in them."""
    x, y, direction = int(world.agent_pos[0]), int(world.agent_pos[1]), int(world.agent_dir)
    visible = _visible(_contents(world, x, y, direction))
    return [
        (x + dx, y + dy)
        for (dx, dy), seen in zip(_OFFSETS[direction], visible, strict=True)
        if seen
    ]


def grid_cells(world: RoomGridLevel) -> list[tuple[int, int, str, str, str]]:
    """Everything in the world, including walls: x, y, kind, color, state."""
    width, cells = world.grid.width, world.grid.grid
    return [
        (index % width, index // width, content.type, content.color, state_of(content))
        for index, content in enumerate(cells)
        if content is not None
    ]


def _contents(world: RoomGridLevel, x: int, y: int, direction: int) -> list[Any]:
    cells: list[Any] = world.grid.grid
    width, height = world.grid.width, world.grid.height
    contents: list[Any] = []
    for dx, dy in _OFFSETS[direction]:
        column, row = x + dx, y + dy
        is_inside = 0 <= column < width and 0 <= row < height
        contents.append(cells[row * width + column] if is_inside else _OUTSIDE)
    return contents


def _visible(contents: list[Any]) -> list[bool]:
    """minigrid's `process_vis` over our cells: visibility spreads row by row, first to the right,
    then to the left.
    """
    visible = [False] * (SIZE * SIZE)
    visible[AGENT] = True
    clear = [content is None or content.see_behind() for content in contents]
    for row in range(0, SIZE * SIZE, SIZE):
        last = row + SIZE - 1
        further = row + SIZE if last + 1 < SIZE * SIZE else None
        for cells, step in ((range(row, last), 1), (range(last, row, -1), -1)):
            for cell in cells:
                if visible[cell] and clear[cell]:
                    visible[cell + step] = True
                    if further is not None:
                        visible[cell + SIZE + step] = visible[cell + SIZE] = True
    return visible


def state_of(content: Any) -> str:
    if content.type != "door":
        return ""
    if content.is_open:
        return "open"
    return "locked" if content.is_locked else "closed"


def _retrace(before: list[int], pose: int) -> list[int]:
    """The primitive actions that led to `pose`."""
    actions: list[int] = []
    while before[pose] != pose:
        previous = before[pose]
        if pose == _TURN_LEFT[previous]:
            actions.append(LEFT)
        elif pose == _TURN_RIGHT[previous]:
            actions.append(RIGHT)
        else:
            actions.append(FORWARD)
        pose = previous
    return actions[::-1]
