"""What environments show of themselves to people."""

import pytest

from palestra.core.types import Task
from palestra.envs import make_env
from tests.support.environments import needs_sciworld


def test_babyai_shows_its_grid():
    env = make_env("babyai", {"levels": ["UnlockLocal"]})
    env.reset(env.tasks("train")[0])
    scene = env.scene()
    cells = {(x, y): (kind, color, state) for x, y, kind, color, state in scene["cells"]}
    assert scene["kind"] == "grid"
    assert scene["mission"] == "open the door"
    assert cells[0, 0] == ("wall", "grey", "")
    assert [state for kind, _, state in cells.values() if kind == "door"] == ["locked"]
    x, y, direction = scene["agent"]
    assert (x, y) not in cells
    assert [x, y] in scene["view"]
    assert direction in range(4)
    assert all(
        0 <= x < scene["width"] and 0 <= y < scene["height"] for x, y in [*cells, *scene["view"]]
    )
    carried = []
    while not env.step(env.expert()).terminated:
        carried.append(env.scene()["carrying"])
    assert carried[-1][0] == "key"
    assert [state for *_, kind, _, state in env.scene()["cells"] if kind == "door"] == ["open"]


def test_textcraft_shows_what_is_held_and_needed():
    env = make_env("textcraft", {})
    (task,) = [
        task for split in env.splits for task in env.tasks(split) if task.id.startswith("beehive-")
    ]
    env.reset(task)
    tree = env.scene()["tree"]
    assert (tree["item"], tree["count"], tree["have"]) == ("beehive", 1, 0)
    honeycomb, planks = sorted(tree["needs"], key=lambda need: need["item"])
    assert (honeycomb["item"], honeycomb["count"], honeycomb["needs"]) == ("honeycomb", 3, [])
    # 6 planks: one log makes 4, so it takes 2 logs
    assert planks["count"] == 6
    assert [need["count"] for need in planks["needs"]] == [2]
    env.step("get 5 honeycomb")
    env.step("get 1 birch log")
    env.step("craft 4 birch planks using 1 birch log")
    scene = env.scene()
    assert scene["goal"] == "beehive"
    assert scene["inventory"] == {"birch planks": 4, "honeycomb": 5}
    assert sorted(need["have"] for need in scene["tree"]["needs"]) == [4, 5]  # any planks will do
    env.close()


@needs_sciworld
def test_sciworld_shows_the_goals_that_are_reached():
    env = make_env("sciworld", {"simplifications": "easy"})
    env.reset(Task("sciworld", "train", "find-plant/0"))
    before = env.scene()
    assert before["kind"] == "sciworld"
    assert before["location"]
    assert before["moves"] == 0
    assert {goal["is_optional"] for goal in before["goals"]} == {True, False}
    assert not all(goal["is_done"] for goal in before["goals"] if not goal["is_optional"])
    while not (step := env.step(env.expert())).terminated:
        pass
    after = env.scene()
    assert after["score"] == step.info["score"] == 100
    assert after["moves"] > 0
    assert all(goal["is_done"] for goal in after["goals"] if not goal["is_optional"])
    assert after["location"] != before["location"]
    env.close()


@pytest.mark.parametrize(
    "name", ["babyai", "textcraft", pytest.param("sciworld", marks=needs_sciworld)]
)
def test_there_is_no_scene_before_an_episode(name):
    env = make_env(name, {})
    with pytest.raises(RuntimeError, match="reset"):
        env.scene()
