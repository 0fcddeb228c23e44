"""The BabyAI levels by goal family, and minigrid's worlds without their prints and images."""

from __future__ import annotations

from typing import Any, Literal

import gymnasium
import minigrid  # noqa: F401  registers the levels' gym ids
from gymnasium.envs.registration import load_env_creator
from minigrid.core.roomgrid import RoomGrid
from minigrid.envs.babyai.core.roomgrid_level import RejectSampling, RoomGridLevel
from minigrid.envs.babyai.core.verifier import AfterInstr, BeforeInstr, Instr, OpenInstr
from minigrid.envs.babyai.goto import GoToImpUnlock
from minigrid.envs.babyai.unlock import Unlock

Family = Literal["goto", "open", "pickup", "putnext", "unlock", "synth"]

FAMILIES: dict[Family, tuple[str, ...]] = {
    "goto": (
        "GoToObj",
        "GoToObjS4",
        "GoToObjS6",
        "GoToRedBall",
        "GoToRedBallGrey",
        "GoToRedBallNoDists",
        "GoToRedBlueBall",
        "GoToLocal",
        "GoToLocalS5N2",
        "GoToLocalS6N2",
        "GoToLocalS6N3",
        "GoToLocalS6N4",
        "GoToLocalS7N4",
        "GoToLocalS7N5",
        "GoToLocalS8N2",
        "GoToLocalS8N3",
        "GoToLocalS8N4",
        "GoToLocalS8N5",
        "GoToLocalS8N6",
        "GoToLocalS8N7",
        "GoTo",
        "GoToOpen",
        "GoToObjMaze",
        "GoToObjMazeOpen",
        "GoToObjMazeS4R2",
        "GoToObjMazeS4",
        "GoToObjMazeS5",
        "GoToObjMazeS6",
        "GoToObjMazeS7",
        "GoToDoor",
        "GoToObjDoor",
        "GoToImpUnlock",
        "GoToSeq",
        "GoToSeqS5R2",
    ),
    "open": (
        "Open",
        "OpenRedDoor",
        "OpenDoor",
        "OpenDoorDebug",
        "OpenDoorColor",
        "OpenDoorLoc",
        "OpenTwoDoors",
        "OpenRedBlueDoors",
        "OpenRedBlueDoorsDebug",
        "OpenDoorsOrderN2",
        "OpenDoorsOrderN4",
        "OpenDoorsOrderN2Debug",
        "OpenDoorsOrderN4Debug",
    ),
    "pickup": (
        "Pickup",
        "UnblockPickup",
        "PickupLoc",
        "PickupDist",
        "PickupDistDebug",
        "PickupAbove",
        "FindObjS5",
        "FindObjS6",
        "FindObjS7",
        "OneRoomS8",
        "OneRoomS12",
        "OneRoomS16",
        "OneRoomS20",
    ),
    "putnext": (
        "PutNextLocal",
        "PutNextLocalS5N3",
        "PutNextLocalS6N4",
        "PutNextS4N1",
        "PutNextS5N1",
        "PutNextS5N2",
        "PutNextS6N3",
        "PutNextS7N4",
        "PutNextS5N2Carrying",
        "PutNextS6N3Carrying",
        "PutNextS7N4Carrying",
        "MoveTwoAcrossS5N2",
        "MoveTwoAcrossS8N9",
    ),
    "unlock": (
        "Unlock",
        "UnlockLocal",
        "UnlockLocalDist",
        "UnlockPickup",
        "UnlockPickupDist",
        "BlockedUnlockPickup",
        "UnlockToUnlock",
        "KeyInBox",
        "KeyCorridor",
        "KeyCorridorS3R1",
        "KeyCorridorS3R2",
        "KeyCorridorS3R3",
        "KeyCorridorS4R3",
        "KeyCorridorS5R3",
        "KeyCorridorS6R3",
    ),
    "synth": (
        "ActionObjDoor",
        "Synth",
        "SynthS5R2",
        "SynthLoc",
        "SynthSeq",
        "MiniBossLevel",
        "BossLevel",
        "BossLevelNoUnlock",
    ),
}
"""minigrid's own grouping by module. Levels of its module `other` are grouped by their missions."""

LEVELS: dict[str, Family] = {}
for _family, _levels in FAMILIES.items():
    LEVELS.update(dict.fromkeys(_levels, _family))

LONG_LEVELS = frozenset(
    {
        "GoTo",
        "GoToOpen",
        "GoToObjMaze",
        "GoToObjMazeOpen",
        "GoToObjMazeS4",
        "GoToObjMazeS5",
        "GoToObjMazeS6",
        "GoToObjMazeS7",
        "GoToImpUnlock",
        "GoToSeq",
        "Open",
        "Pickup",
        "UnblockPickup",
        "PickupAbove",
        "FindObjS5",
        "FindObjS6",
        "FindObjS7",
        "OneRoomS20",
        "MoveTwoAcrossS5N2",
        "MoveTwoAcrossS8N9",
        "Unlock",
        "UnlockLocalDist",
        "UnlockPickupDist",
        "BlockedUnlockPickup",
        "UnlockToUnlock",
        "KeyCorridor",
        "KeyCorridorS3R2",
        "KeyCorridorS3R3",
        "KeyCorridorS4R3",
        "KeyCorridorS5R3",
        "KeyCorridorS6R3",
        "Synth",
        "SynthS5R2",
        "SynthLoc",
        "SynthSeq",
        "MiniBossLevel",
        "BossLevel",
        "BossLevelNoUnlock",
    }
)
"""Levels that may need more than 20 turns: `max_turns` defaults to 100 with any of these, else 20.

Over 20 seeds of each level (0-9, 200-209) the expert took at most 14 turns on every other level,
and up to 70 on these. The maximum on other seeds was 91 (BossLevel).
"""

EXPERT_FAILS: frozenset[str] = frozenset()
"""Levels that the expert is known not to solve. None at present.

Without our changes minigrid's bot fails on KeyInBox and PutNext...Carrying.
"""

_VERSION_1 = frozenset({"GoToObjS6"})
"""Levels whose v0 was withdrawn: creating it raises an error."""


def gym_id(level: str) -> str:
    return f"BabyAI-{level}-v{1 if level in _VERSION_1 else 0}"


class _Quiet:
    """Mixed into a level's class: prints nothing, renders no image per step, and resamples tasks
    that cannot be solved.
    """

    def reset(self: Any, **kwargs: Any) -> Any:
        result = super().reset(**kwargs)  # type: ignore[misc]
        if self.carrying is not None:
            # The verifier was set up while the agent carried nothing: without this, a drop as the
            # very first step would not count.
            self.instrs.preCarrying = self.carrying
        return result

    def gen_obs(self: Any) -> dict[str, Any]:
        return {}

    def _gen_grid(self: Any, width: int, height: int) -> None:
        """`RoomGridLevel._gen_grid` without its prints; redirecting stdout is not thread-safe."""
        while True:
            try:
                RoomGrid._gen_grid(self, width, height)
                self.gen_mission()
                self.validate_instrs(self.instrs)
            except (RejectSampling, RecursionError):
                continue
            if not (_is_contradictory(self.instrs) or _has_key_locked_in(self)):
                break
        self.surface = self.mission = self.instrs.surface(self)


def _is_contradictory(instr: Instr) -> bool:
    """Two doors in strict order (OpenDoorsOrder...Debug).

    The verifier passes the toggle that opens the first door to the second instruction too, which
    counts it as opening a wrong door.
    """
    second: Instr | None = None
    if isinstance(instr, BeforeInstr):
        second = instr.instr_b
    elif isinstance(instr, AfterInstr):
        second = instr.instr_a
    return isinstance(second, OpenInstr) and second.strict


def _has_key_locked_in(world: RoomGridLevel) -> bool:
    """Whether the key lies in the room that it opens.

    Unlock and GoToImpUnlock try to prevent this, but compare numpy integers by identity.
    """
    if not isinstance(world, (Unlock, GoToImpUnlock)):
        return False
    grid: Any = world.grid
    (locked,) = (
        cell for cell in grid.grid if cell is not None and cell.type == "door" and cell.is_locked
    )
    stack, reached = [(int(world.agent_pos[0]), int(world.agent_pos[1]))], set()
    while stack:
        x, y = stack.pop()
        cell = grid.get(x, y)
        if (x, y) in reached or cell is locked or (cell is not None and cell.type == "wall"):
            continue
        reached.add((x, y))
        if cell is not None and cell.type == "key" and cell.color == locked.color:
            return False
        stack += [(x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)]
    return True


def make_world(level: str) -> RoomGridLevel:
    """gymnasium's world of `level`, without images and unsolvable tasks. Reset it with a seed."""
    spec = gymnasium.spec(gym_id(level))
    creator: Any = spec.entry_point
    if not callable(creator):
        creator = load_env_creator(str(creator))
    quiet = type(creator.__name__, (_Quiet, creator), {})
    world: RoomGridLevel = quiet(**spec.kwargs)
    return world
