"""BabyAI's actions as AgentGym's server lists them: all are accepted, and lead where they lead
there.
"""

import json
import zlib
from itertools import product
from pathlib import Path

import pytest
from minigrid.core.world_object import Door

from palestra.core.types import Task
from palestra.envs.babyai.agentgym import LEVELS, task_id
from palestra.envs.babyai.env import BabyAI
from palestra.envs.babyai.view import grid_cells

EPISODES = json.loads((Path(__file__).parents[2] / "support" / "agentgym_babyai.json").read_text())[
    "episodes"
]
DOOR_LEVELS = (
    "GoToDoor",
    "OpenDoorLoc",
    "GoToObjDoor",
    "ActionObjDoor",
    "OpenDoorsOrderN4",
    "Unlock",
    "KeyCorridorS3R2",
    "MiniBossLevel",
)


def crc(lines):
    return zlib.crc32("\n".join(lines).encode())


def where(env):
    """What the fixture has of a world's state."""
    world = env._world
    carried = "" if world.carrying is None else f"{world.carrying.color} {world.carrying.type}"
    grid = crc(" ".join(map(str, cell)) for cell in grid_cells(world))
    return [*map(int, world.agent_pos), int(world.agent_dir), carried, grid, world.step_count]


def begin(id, **options):
    env = BabyAI([id.rpartition("-")[0]], **options)
    env.reset(Task("babyai", "train", id))
    return env


def doors_in_view(world):
    """AgentGym's names of the doors in view, and the cells they stand on, from minigrid's own view:
    by number of steps, and in equal distance by rows, the farthest first, each from the left."""
    grid, mask = world.gen_obs_grid()  # the agent stands at (3, 6) of this and looks towards row 0
    cells = sorted(
        ((i, j) for j in range(7) for i in range(7)),
        key=lambda cell: abs(cell[0] - 3) + 6 - cell[1],
    )
    names, counts = {}, {}
    for i, j in cells:
        cell = grid.get(i, j)
        if (i, j) == (3, 6) or not mask[i, j] or cell is None or cell.type != "door":
            continue
        state = "open" if cell.is_open else "locked" if cell.is_locked else "closed"
        name = f"{cell.color} {state} door"
        counts[name] = counts.get(name, 0) + 1
        place = world.agent_pos + world.dir_vec * (6 - j) + world.right_vec * (i - 3)
        names[f"{name} {counts[name]}"] = tuple(map(int, place))
    return names


def walked(id, turns, seed):
    """An environment somewhere in an episode: walked there with its own actions, the same each
    time.
    """
    env = begin(id)
    for turn in range(turns):
        if env._over:
            break
        actions = env.actions()
        env.step(actions[zlib.crc32(f"{id} {seed} {turn}".encode()) % len(actions)])
    return env


def test_episodes_of_agentgyms_server_replay():
    """Each recorded action is offered and accepted, by the whole list that the server offered; it
    leads to the same state at the same time, and the episode has the same reward."""
    turns = 0
    for episode in EPISODES:
        env = begin(task_id(episode["data_idx"]), actions="agentgym")
        assert where(env) == episode["start"]
        for number, (action, offered, *state) in enumerate(episode["turns"]):
            at = f"{task_id(episode['data_idx'])}, turn {number}: {action}"
            assert crc(env.actions()) == offered, at
            step = env.step(action)
            assert not step.invalid, at
            assert where(env) == state, at
            turns += 1
        assert step.reward == episode["reward"]
        assert step.success is (True if episode["reward"] else None)
    assert {episode["data_idx"] % 40 for episode in EPISODES} == {*range(40)} - {
        15
    }  # 15's tasks contradict themselves: ours are others
    assert turns == 595
    assert sum(episode["reward"] > 0 for episode in EPISODES) == 41


def test_names_of_doors_are_accepted_beside_our_own():
    """Of the same episodes, with our actions: up to the first that means something else here, all
    that call a door by its state.
    """
    doors = 0
    for episode in EPISODES:
        env = begin(task_id(episode["data_idx"]))
        for action, _, *state in episode["turns"]:
            step = env.step(action)
            if " door " in action:
                assert not step.invalid, action
                doors += 1
            if where(env)[:5] != state[:5] or env._over:
                assert " door " not in action or env._over
                break
    assert doors >= 150


def test_a_door_is_the_one_that_agentgym_numbers_so():
    """Standing before each door in view, or walking into it.

    Some walks are cut short by what they did not see.
    """
    arrived, strayed = [], []
    for level in DOOR_LEVELS:
        for seed, turns in product(range(6), (0, 3, 6)):
            for name, place in doors_in_view(walked(f"{level}-{seed}", turns, seed)._world).items():
                for verb in (
                    "go to",
                    "go through" if " open " in name else "toggle and go through",
                ):
                    env = walked(f"{level}-{seed}", turns, seed)
                    if env.step(f"  {verb.upper()} {name} ").invalid or env._over:
                        continue
                    world = env._world
                    ends_at = world.front_pos if verb == "go to" else world.agent_pos
                    (arrived if tuple(map(int, ends_at)) == place else strayed).append(
                        f"{verb} {name.split()[1]}"
                    )
    assert len(arrived) >= 200
    assert len(strayed) <= len(arrived) / 10
    for verb in (
        "go to closed",
        "go to locked",
        "go to open",
        "toggle and go through closed",
        "go through open",
    ):
        assert verb in arrived


def test_a_door_in_the_wrong_state_or_verb_is_not_valid():
    env = begin("OpenDoorLoc-2")
    assert [*doors_in_view(env._world)] == ["green closed door 1"]
    for action in (
        "go to green open door 1",
        "go to green locked door 1",
        "go to green closed door 2",
        "go through green closed door 1",
        "open green closed door 1",
    ):
        assert env.step(action).invalid, action
    assert not env.step("go to green closed door 1").invalid


def test_alike_doors_are_numbered_for_each_state():
    """By hand, in a free room: the agent at (3, 5) looks up; an open door 2 steps away, and closed
    ones 3 and 4 steps away.
    """
    env = begin("GoToDoor-0")
    world = env._world
    for x, y in product(range(1, 6), range(1, 6)):
        world.grid.set(x, y, None)
    middle, far = Door("red"), Door("red")
    world.grid.set(3, 3, Door("red", is_open=True))
    world.grid.set(1, 4, middle)
    world.grid.set(5, 3, far)
    for action, door in (
        ("toggle and go through red closed door 2", far),
        ("toggle and go through red closed door 1", middle),
    ):
        world.agent_pos, world.agent_dir = (3, 5), 3
        assert not env.step(action).invalid
        assert door.is_open
        assert world.grid.get(*world.agent_pos) is door
        assert middle.is_open is (door is middle)


def test_our_names_stay_as_they_are():
    """Our action ends one cell beyond the doorway that AgentGym's ends in."""
    ours, theirs = begin("UnlockPickup-4"), begin("UnlockPickup-4")
    for env in (ours, theirs):
        env.step("pick up purple key 1")
    assert not ours.step("toggle and go through purple door 1").invalid
    assert not theirs.step("toggle and go through purple locked door 1").invalid
    assert ours._world.step_count == theirs._world.step_count + 1
    assert tuple(theirs._world.front_pos) == tuple(ours._world.agent_pos)
    assert theirs._world.grid.get(*theirs._world.agent_pos).type == "door"


def test_an_episode_ends_when_minigrid_says_so_also_within_a_walk():
    """AgentGym's server walks on after the toggle that reaches the goal, and the next step's reward
    of 0 hides the success.
    """
    for actions in ("own", "agentgym"):
        env = begin("OpenRedDoor-0", actions=actions)
        for _ in range(4):
            if any(name.startswith("red ") for name in doors_in_view(env._world)):
                break
            env.step("turn right")
        step = env.step("toggle and go through red closed door 1")
        assert step.success
        assert step.reward == pytest.approx(1 - 0.9 * env._world.step_count / env._world.max_steps)


def test_actions_without_a_step_take_no_time():
    env = begin("GoToObj-0", actions="agentgym")
    for action in ("check available actions", "", "pick up red ball 1", "open the pod bay doors"):
        step = env.step(action)
        assert step.invalid is (action != "check available actions")
        assert step.info["steps"] == 0
    (thing,) = (action for action in env.actions() if action.startswith("go to "))
    took = [env.step(thing).info["steps"] for _ in range(2) if not env._over]
    assert env._over or took[0] == took[1]


def test_the_observation_speaks_agentgyms_names():
    env = BabyAI(["OpenDoorLoc"], actions="agentgym")
    observation = env.reset(Task("babyai", "train", "OpenDoorLoc-0"))
    assert observation.endswith(f"\nAvailable actions: {', '.join(env.actions())}")
    for name in doors_in_view(env._world):
        assert f"A {name} is " in observation
    assert "check available actions" in env.instructions
    assert env.example == ()
    assert env.expert() is None


def test_bad_options_are_refused():
    with pytest.raises(ValueError, match="actions is 'agentgim'; did you mean 'agentgym'"):
        BabyAI(actions="agentgim")
    with pytest.raises(ValueError, match='actions = "agentgym" needs style = "text"'):
        BabyAI(style="compact", actions="agentgym")


def test_their_numbers_are_tasks_of_ours():
    assert len(LEVELS) == 40
    assert [task_id(number) for number in (0, 3, 39, 40, 1012)] == [
        "GoToRedBallGrey-0",
        "GoToObjS4-0",
        "BossLevelNoUnlock-0",
        "GoToRedBallGrey-1",
        "OpenRedDoor-25",  # 1012 = 25 * 40 + 12; the first level is number 0
    ]
