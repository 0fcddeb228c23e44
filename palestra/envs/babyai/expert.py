"""An oracle for BabyAI: minigrid's bot plans primitive steps, which are translated to macro
actions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from minigrid.envs.babyai.core.roomgrid_level import RoomGridLevel
from minigrid.envs.babyai.core.verifier import (
    AfterInstr,
    AndInstr,
    BeforeInstr,
    ObjDesc,
    OpenInstr,
    PutNextInstr,
)
from minigrid.utils.baby_ai_bot import (
    BabyAIBot,
    DisappearedBoxError,
    DropSubgoal,
    ExploreSubgoal,
    GoNextToSubgoal,
    OpenSubgoal,
    PickupSubgoal,
    Subgoal,
)

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
    visible_positions,
)

Position = tuple[int, int]

MOST_SEARCHES = 100
"""Searches allowed per primitive step.

A count, not a time limit, so that the plan is the same on every machine.
"""

_PRIMITIVES = {
    LEFT: "turn left",
    RIGHT: "turn right",
    FORWARD: "move forward",
    DROP: "drop",
    TOGGLE: "toggle",
}


class BotLostError(Exception):
    """The bot plans in circles."""


BOT_FAILURES = (BotLostError, AssertionError, TypeError, IndexError, DisappearedBoxError)
"""The exceptions with which minigrid's bot fails: most of its assumptions are asserts, and having
no place to drop an object is a TypeError.
"""


class Expert:
    """Plans from any state of an episode. Valid for as long as its advice is followed."""

    def __init__(self, world: RoomGridLevel, seen: Iterable[Position]) -> None:
        self._bot = _Bot(world, seen)
        self._bot.frees_hands()
        self._primitive = self._bot.replan()
        self._is_new = True

    def advise(self, view: View) -> str | None:
        """The next macro action, or None."""
        if not self._bot.stack and not self._is_new:
            return None  # the plan is finished, but the goal is not reached
        if self._bot.frees_hands():
            self._primitive = self._bot.replan()
        action = self._bot.in_words(self._primitive, view)
        return action if action in view.macros else None

    def follow(self, primitive: int) -> None:
        """Record that this primitive step was taken."""
        self._is_new = False
        self._primitive = self._bot.replan(primitive)


class _Bot(BabyAIBot):
    """minigrid's bot, extended to start in the middle of an episode, with a bounded and faster
    search.
    """

    def __init__(self, world: RoomGridLevel, seen: Iterable[Position]) -> None:
        self.world = world
        super().__init__(world)
        for position in seen:
            self._mark(position)
        self._process_obs()
        if _has_contents(world.carrying):
            self.stack = [DropSubgoal(self), GoNextToSubgoal(self, self._find_drop_pos())]
        for box in filter(_has_contents, world.grid.grid):
            self.stack = [_OpenBoxSubgoal(self), GoNextToSubgoal(self, box)]

    def replan(self, action_taken: int | None = None) -> int:
        self.bfs_counter = 0
        primitive = int(super().replan(action_taken))
        top = self.stack[-1] if self.stack else None
        if isinstance(top, OpenSubgoal) and top.reason == "Unlock":
            # The bot then drops the key behind the door, and only when it needs its hands free.
            top.reason = "KeepKey"
        return primitive

    def frees_hands(self) -> bool:
        """Plan to drop the carried object if the next step is to pick up another one.

        Returns whether the plan changed.
        """
        plan = [subgoal for subgoal in self.stack if not subgoal.is_exploratory()]
        if self.world.carrying is None or len(plan) < 2 or not isinstance(plan[-2], PickupSubgoal):
            return False
        place = self._place_ahead() or self._find_drop_pos()
        if place is not None:
            self.stack = [*plan, DropSubgoal(self), GoNextToSubgoal(self, place)]
        return place is not None

    def _place_ahead(self) -> Position | None:
        """The cell in front, if it is free and there is a way around it."""
        (x, y), (dx, dy) = map(int, self.world.agent_pos), map(int, self.world.dir_vec)
        sides = (
            [(x - dy, y + dx), (x - dy + dx, y + dx + dy)],
            [(x + dy, y - dx), (x + dy + dx, y - dx + dy)],
        )
        get = self.world.grid.get
        if get(x + dx, y + dy) is not None:
            return None
        for first, second in sides:
            if get(*first) is None and get(*second) is None:
                return (x + dx, y + dy)
        return None

    def in_words(self, primitive: int, view: View) -> str | None:
        """The longest macro action that matches the bot's plan."""
        things = {thing.position: thing for thing in view.things}
        front = things.get(view.position(FRONT))
        # The plan is finished, but the verifier only runs after a step.
        if not self.stack:
            return f"go to {front.name}" if front else None
        if primitive == PICKUP:
            return f"pick up {front.name}" if front else None
        if primitive == TOGGLE and front and front.state in ("closed", "locked"):
            return self._door_action(front)
        if primitive in (LEFT, RIGHT, FORWARD) and isinstance(self.stack[-1], GoNextToSubgoal):
            return self._walk_in_words(primitive, things, view)
        return _PRIMITIVES.get(primitive)

    def _walk_in_words(
        self, primitive: int, things: dict[Position, Thing], view: View
    ) -> str | None:
        walk = self.stack[-1]
        puts_next = walk.reason == "PutNext"
        target = self._target(walk)
        if target in things and not puts_next:
            action = self._arrival(things[target])
            if action in view.macros:
                return action
        path, _, _ = self._shortest_path(
            lambda position, _: position == target, try_with_blockers=True
        )
        # The agent faces the last cell of the path without entering it. An object that is put next
        # to it goes on the cell before.
        steps = list(path or [])[: -2 if puts_next else -1]
        for position in steps[:-1]:
            if position in things and f"go through {things[position].name}" in view.macros:
                return f"go through {things[position].name}"
        if primitive == FORWARD:
            return _longest_run(steps, view)
        return _PRIMITIVES[primitive]

    def _target(self, walk: Subgoal) -> Position | None:
        if isinstance(walk.datum, ObjDesc):
            position = self._find_obj_pos(walk.datum, walk.reason == "PutNext")[1]
        else:
            position = walk.datum.cur_pos if hasattr(walk.datum, "cur_pos") else walk.datum
        return None if position is None else (int(position[0]), int(position[1]))

    def _arrival(self, thing: Thing) -> str:
        """What the bot does with an object once it faces it."""
        purpose = self.stack[-2] if len(self.stack) > 1 else None
        if isinstance(purpose, PickupSubgoal):
            return f"pick up {thing.name}"
        if isinstance(purpose, OpenSubgoal) and thing.state in ("closed", "locked"):
            return self._door_action(thing)
        return f"go to {thing.name}"

    def _door_action(self, door: Thing) -> str:
        """Open a door that the mission names; walk through any other."""
        for instr in _parts(self.mission.instrs):
            if not isinstance(instr, OpenInstr):
                continue
            for thing in instr.desc.obj_set:
                if tuple(map(int, thing.cur_pos)) == door.position:
                    return f"open {door.name}"
        return f"go through {door.name}"

    def _process_instr(self, instr: Any) -> None:
        """Plan only the parts that are not done yet."""
        if isinstance(instr, AfterInstr | AndInstr | BeforeInstr):
            parts: list[tuple[Any, Any]] = [
                (instr.instr_b, instr.b_done),
                (instr.instr_a, instr.a_done),
            ]
            for part, status in reversed(parts) if isinstance(instr, AfterInstr) else parts:
                if status != "success":
                    self._process_instr(part)
        elif isinstance(instr, PutNextInstr) and any(
            self.world.carrying is thing for thing in instr.desc_move.obj_set
        ):
            self.stack.append(DropSubgoal(self))
            self.stack.append(GoNextToSubgoal(self, instr.desc_fixed, reason="PutNext"))
        else:
            super()._process_instr(instr)

    def _lacks_key(self, cell: Any) -> bool:
        """Whether a door is locked and its key is unknown. Exploring towards it would loop."""
        if cell is None or cell.type != "door" or not cell.is_locked:
            return False
        wanted = ObjDesc("key", cell.color)
        _, positions = wanted.find_matching_objs(self.world)
        carried = self.world.carrying
        is_carried = carried is not None and (carried.type, carried.color) == ("key", cell.color)
        return not is_carried and not any(self.vis_mask[position] for position in positions)

    def _process_obs(self) -> None:
        for position in visible_positions(self.world):
            self._mark(position)

    def _mark(self, position: Position) -> None:
        x, y = position
        if 0 <= x < self.vis_mask.shape[0] and 0 <= y < self.vis_mask.shape[1]:
            self.vis_mask[x, y] = True

    def _breadth_first_search(
        self,
        initial_states: Iterable[tuple[int, int, int, int]],
        accept_fn: Callable[[Position, Any], bool],
        ignore_blockers: bool,
    ) -> tuple[list[Position] | None, Position | None, dict[Position, Position | None]]:
        """minigrid's search, in the same order, but in linear time."""
        self.bfs_counter += 1
        if self.bfs_counter > MOST_SEARCHES:
            raise BotLostError
        grid = self.world.grid
        seen = self.vis_mask.tolist()
        explores = bool(self.stack) and isinstance(self.stack[-1], ExploreSubgoal)
        came_from: dict[Position, Position | None] = {}
        queue: deque[tuple[int, int, int, int, Position | None]] = deque()
        queue.extend((int(x), int(y), int(dx), int(dy), None) for x, y, dx, dy in initial_states)
        while queue:
            x, y, dx, dy, previous = queue.popleft()
            position = (x, y)
            if position in came_from:
                continue
            came_from[position] = previous
            cell: Any = grid.get(x, y)
            if accept_fn(position, cell) and not (
                explores and seen[x][y] and self._lacks_key(cell)
            ):
                return _trace(came_from, position), position, came_from
            if not seen[x][y] or (cell is not None and not _can_be_crossed(cell, ignore_blockers)):
                continue
            # Straight ahead first, then the turns, then back: minigrid's order, which decides ties.
            for step_x, step_y in ((dx, dy), (dy, dx), (-dy, -dx), (-dx, -dy)):
                queue.append((x + step_x, y + step_y, step_x, step_y, position))
        return None, None, came_from


class _OpenBoxSubgoal(Subgoal):
    """A subgoal that minigrid's bot lacks: a box may contain a key."""

    def replan_before_action(self) -> int:
        return TOGGLE


def _parts(instr: Any) -> Iterator[Any]:
    """The atomic instructions of an instruction."""
    if isinstance(instr, AfterInstr | AndInstr | BeforeInstr):
        yield from (*_parts(instr.instr_a), *_parts(instr.instr_b))
    else:
        yield instr


def _has_contents(cell: Any) -> bool:
    return cell is not None and cell.type == "box" and cell.contains is not None


def _can_be_crossed(cell: Any, ignore_blockers: bool) -> bool:
    if cell.type == "door":
        return bool(cell.is_open)
    return ignore_blockers and cell.type != "wall"


def _trace(came_from: dict[Position, Position | None], position: Position | None) -> list[Position]:
    path = []
    while position is not None:
        path.append(position)
        position = came_from[position]
    return path


def _longest_run(steps: list[Position], view: View) -> str:
    """One action for as many of `steps` as lie straight ahead."""
    action = "move forward"
    for run in range(2, min(len(steps), SIZE - 1) + 1):
        longer = f"move forward {run}"
        is_straight = steps[run - 1] == view.position(AGENT + SIZE * run)
        if not is_straight or longer not in view.macros:
            break
        action = longer
    return action
