"""TextCraft: the tree of recipes, what actions do, and that every task can be solved."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import subprocess
import sys
from collections import Counter
from importlib.resources import files
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palestra.core.types import Step, Task
from palestra.envs.textcraft.env import EXAMPLE_GOALS, EXPECTED, TextCraft
from palestra.envs.textcraft.recipes import _merge, _without_cycles, load_tree

VERSION = "1.16.5"


def all_tasks(env: TextCraft) -> list[Task]:
    return [*env.tasks("train"), *env.tasks("test")]


def goal_of(task: Task) -> str:
    return task.id.rpartition("-")[0].replace("-", "_")


def task_for(env: TextCraft, goal: str) -> Task:
    return next(task for task in all_tasks(env) if goal_of(task) == goal)


def started(goal: str, **options: int) -> TextCraft:
    env = TextCraft(**options)
    env.reset(task_for(env, goal))
    return env


def say(env: TextCraft, action: str) -> str:
    return env.step(action).observation


def solve(env: TextCraft) -> int:
    """Let the expert play on to the end; the number of its turns."""
    for turn in range(1, env.max_turns + 1):
        action = env.expert()
        assert action is not None
        step = env.step(action)
        assert step.observation.startswith(("Got", "Crafted")), (action, step.observation)
        if step.terminated:
            assert step.reward == 1.0
            assert step.success is True
            assert not step.truncated
            assert env.expert() is None
            assert env.actions() == []
            return turn
        assert step.reward == 0.0
        assert step.success is None
    raise AssertionError("the expert ran out of turns")


# The tree


def test_goals_and_their_depths():
    tree = load_tree(VERSION)
    assert Counter(tree.depth[goal] for goal in tree.recipes) == {
        1: 144,
        2: 280,
        3: 116,
        4: 11,
    }  # 551 goals
    assert sum(map(len, tree.recipes.values())) == 611


def data_recipes() -> set[tuple[str, int, frozenset[tuple[str, int]]]]:
    """(item, how many, ingredients), read from the data without the code under test."""
    data = (
        files("minecraft_data") / "data" / "data" / "pc" / "1.16.2"
    )  # where 1.16.5 keeps its recipes
    names = {item["id"]: item["name"] for item in json.loads((data / "items.json").read_text())}
    found = set()
    for way in (
        way for ways in json.loads((data / "recipes.json").read_text()).values() for way in ways
    ):
        cells = way.get("ingredients", []) + [
            cell for row in way.get("inShape", []) for cell in row if cell
        ]
        ingredients = Counter(names[cell] for cell in cells)
        found.add(
            (names[way["result"]["id"]], way["result"]["count"], frozenset(ingredients.items()))
        )
    return found


def test_only_what_cannot_be_made_otherwise_is_fetched():
    """Of 562 items with recipes in the data, 11 are fetched:
    one for each cycle that has no way in.
    """
    craftable = {item for item, _, _ in data_recipes()}
    assert len(craftable) == 562
    assert craftable - load_tree(VERSION).recipes.keys() == {
        *("coal", "diamond", "dried_kelp", "emerald", "gold_ingot", "honey_bottle"),
        *("iron_ingot", "lapis_lazuli", "redstone", "slime_ball", "wheat"),
    }


def test_no_item_is_made_of_itself():
    tree = load_tree(VERSION)
    done: set[str] = {item for item, depth in tree.depth.items() if depth == 0}
    left = set(tree.recipes)
    # An order exists in which all that any recipe of an item may take comes before the item.
    while ready := {
        item
        for item in left
        if all(recipe.mentions - {item} <= done for recipe in tree.recipes[item])
    }:
        done |= ready
        left -= ready
    assert not left


def test_cycles_are_broken_where_they_lead_back():
    # ore makes dust; dust and brick make each other: the way in stays, the way back goes.
    # red and blue are each made of ore and of one another, at the same depth: both ways back go.
    # gem and block make each other and nothing else does: gem, which a ring is made of too, is
    # fetched.
    tree = _without_cycles(
        {
            "dust": frozenset({(1, (("ore", 1),)), (9, (("brick", 1),))}),
            "brick": frozenset({(1, (("dust", 9),))}),
            "red": frozenset({(1, (("ore", 2),)), (1, (("blue", 1),))}),
            "blue": frozenset({(1, (("ore", 3),)), (1, (("red", 1),))}),
            "gem": frozenset({(9, (("block", 1),))}),
            "block": frozenset({(1, (("gem", 9),))}),
            "ring": frozenset({(1, (("gem", 1),))}),
        }
    )
    assert tree == {
        "dust": {(1, (("ore", 1),))},
        "brick": {(1, (("dust", 9),))},
        "red": {(1, (("ore", 2),))},
        "blue": {(1, (("ore", 3),))},
        "block": {(1, (("gem", 9),))},
        "ring": {(1, (("gem", 1),))},
    }


def test_expanded_tags_become_sets():
    # 2 woods x 2 fuels are one recipe; the recipe with another amount stays apart
    ways = [
        (1, ((fuel, 1), (wood, 3))) for fuel in ("coal", "charcoal") for wood in ("oak", "fir")
    ] + [(2, (("coal", 1), ("oak", 6)))]
    one, other = _merge("fire", ways)
    assert [(slot.items, slot.amount) for slot in one.slots] == [
        (("charcoal", "coal"), 1),
        (("fir", "oak"), 3),
    ]
    assert other.count == 2
    assert [slot.items for slot in other.slots] == [("coal",), ("oak",)]


def test_sets_expand_to_the_recipes_of_the_data():
    tree = load_tree(VERSION)
    expanded = []
    for recipe in (recipe for ways in tree.recipes.values() for recipe in ways):
        assert len(recipe.mentions) == 1 + sum(len(slot.items) for slot in recipe.slots), (
            "slots must be disjoint"
        )
        for items in product(*(slot.items for slot in recipe.slots)):
            ingredients = frozenset(zip(items, (slot.amount for slot in recipe.slots), strict=True))
            expanded.append((recipe.item, recipe.count, ingredients))
    assert len(expanded) == len(set(expanded))
    assert set(expanded) <= data_recipes()
    # Gone are 13 recipes of the 11 fetched items (iron and gold ingot have 2), and 6 ways back: to
    # bone meal, netherite
    # ingot and the slabs of quartz, purpur, sandstone and red sandstone.
    assert len(data_recipes()) - len(expanded) == 13 + 6
    assert {name: len(items) for name, items in tree.sets.items()} == {
        "logs": 32,
        "planks": 8,
        "wooden slabs": 8,
        "wool": 16,
    }


# Tasks


def test_splits_are_disjoint_and_cover_all_goals():
    env = TextCraft()
    train, test = ({goal_of(task) for task in env.tasks(split)} for split in ("train", "test"))
    assert len(train) == 451
    assert len(test) == 100
    assert not train & test
    assert train | test == load_tree(VERSION).recipes.keys()
    assert Counter(task.category for task in env.tasks("test")) == {
        "depth 1": 26,
        "depth 2": 51,
        "depth 3": 21,
        "depth 4": 2,
    }


def test_ids_are_unique_and_frozen():
    env = TextCraft()
    assert len({task.id for task in all_tasks(env)}) == 551
    assert task_for(env, "crafting_table") == Task(
        "textcraft", "train", "crafting-table-6086050537fe"
    )
    assert {task.id for task in all_tasks(env)}.isdisjoint(
        task.id for task in all_tasks(TextCraft(count=2))
    )


def test_nothing_depends_on_the_hash_seed():
    program = (
        "import hashlib\n"
        "from palestra.envs.textcraft.env import TextCraft\n"
        "env, digest = TextCraft(), hashlib.sha256()\n"
        "for task in [*env.tasks('train'), *env.tasks('test')]:\n"
        "    digest.update(repr((task, env.reset(task), env.actions(), env.expert())).encode())\n"
        "print(digest.hexdigest())\n"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    env, digest = TextCraft(), hashlib.sha256()
    for task in all_tasks(env):
        digest.update(repr((task, env.reset(task), env.actions(), env.expert())).encode())
    assert digests == {digest.hexdigest()}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"version": "1.99"}, r"'1\.99'; there are: .*1\.16\.5"),
        ({"version": "1.12.2"}, "no recipes of Minecraft"),
        ({"distractors": -1}, "distractors must be 0 or more, not -1"),
        ({"count": 0}, "count must be from 1 to 16, not 0"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        TextCraft(**options)


def test_unknown_tasks_and_splits_are_errors():
    env = TextCraft()
    with pytest.raises(ValueError, match="no task 'nothing-000000000000'"):
        env.reset(Task("textcraft", "train", "nothing-000000000000"))
    with pytest.raises(ValueError, match="in split 'test'"):
        env.reset(Task("textcraft", "test", env.tasks("train")[0].id))
    with pytest.raises(ValueError, match="there are: train, test"):
        env.tasks("dev")
    with pytest.raises(RuntimeError, match="reset"):
        env.step("inventory")


# Playing


def test_an_episode_worked_by_hand():
    # A chest takes 8 planks; a log makes 4 planks: 2 logs. One log more leaves 12 - 8 = 4 planks.
    env = started("chest")
    assert say(env, "inventory") == "Inventory: empty."
    assert say(env, "get 3 oak log") == "Got 3 oak log."
    assert say(env, "craft 4 oak planks using 1 oak log") == "Crafted 4 oak planks."
    assert say(env, "inventory") == "Inventory: 2 oak log, 4 oak planks."
    assert (
        say(env, "craft 1 chest using 8 oak planks")
        == "Not enough to craft that: it takes 8 oak planks (you have 4)."
    )
    assert say(env, "craft 8 oak planks using 2 oak log") == "Crafted 8 oak planks."
    step = env.step("craft 1 chest using 8 oak planks")
    assert step.observation == "Crafted 1 chest. The goal is reached."
    assert (step.reward, step.terminated, step.truncated, step.success) == (1.0, True, False, True)
    again = env.step("craft 1 chest using 8 oak planks")
    assert (again.reward, again.terminated, again.success) == (0.0, True, True)
    assert "over" in again.observation


def test_the_first_observation():
    env = TextCraft(distractors=0)
    # bookshelf: 6 planks and 3 books; a book is leather and paper
    lines = env.reset(task_for(env, "bookshelf")).splitlines()
    assert lines[0] == "Crafting commands:"
    assert sorted(lines[1:6]) == [
        "craft 1 book using 1 leather, 3 paper",
        "craft 1 bookshelf using 6 planks, 3 book",
        "craft 1 leather using 4 rabbit hide",
        "craft 3 paper using 3 sugar cane",
        "craft 4 oak planks using 1 oak log or oak wood or stripped oak log or stripped oak wood",
    ]
    assert lines[6:] == [
        "(planks: any item whose name ends in planks)",
        "",
        "Goal: craft bookshelf.",
    ]


def test_more_than_one_can_be_asked_for():
    env = TextCraft(count=5)
    assert env.reset(task_for(env, "torch")).endswith("Goal: craft 5 torch.")
    say(env, "get 4 bamboo"), say(env, "craft 2 stick using 4 bamboo"), say(env, "get 2 coal")
    first = env.step("craft 4 torch using 1 stick, 1 coal")
    assert (first.reward, first.terminated, first.success) == (0.0, False, None)
    last = env.step("craft 4 torch using 1 stick, 1 coal")
    assert (last.reward, last.terminated, last.success) == (1.0, True, True)


@pytest.mark.parametrize(
    "action",
    [
        "craft 4 oak planks using 1 oak log",
        "  CRAFT 4   Oak_Planks\tusing 1 oak_log \n",
        "craft 4 minecraft:oak_planks using 1 minecraft:oak_log",
        "craft 4 oak plank using 1 oak logs.",
        "`craft 8 oak planks using 2 oak log`",
        "craft 8 oak planks using 1 oak log, 1 stripped oak log",
        "craft 8 oak planks using 1 oak log,1 stripped oak log",
        "craft 8 oak planks using 1 oak log and 1 stripped oak log",
    ],
)
def test_spellings_that_are_understood(action):
    env = started("chest")
    say(env, "get 2 oak log"), say(env, "get 1 stripped oak log")
    assert re.fullmatch(r"Crafted [48] oak planks\.", say(env, action))


@pytest.mark.parametrize(
    ("action", "observation"),
    [
        ("", EXPECTED),
        ("look around", EXPECTED),
        ("get oak log", EXPECTED),
        ("get -1 oak log", EXPECTED),
        ("get 9999999 oak log", EXPECTED),
        ("get 0 oak log", "One action gets from 1 to 64 of an item, not 0."),
        ("get 65 oak log", "One action gets from 1 to 64 of an item, not 65."),
        ("get 1 chest", "chest cannot be fetched: it has to be crafted."),
        (
            "get 1 planks",
            "planks is a group: name any item whose name ends in planks, such as dark oak planks.",
        ),
        ("get 1 excalibur", "There is no item called 'excalibur'."),
        ("craft 1 chest", EXPECTED),
        ("craft 1 oak log using 4 oak planks", "oak log cannot be crafted: get it."),
        ("craft 1 chest using oak planks", f"Cannot read the ingredient 'oak planks'. {EXPECTED}"),
        (
            "craft 1 chest using 0 oak planks",
            "The amount of the ingredient '0 oak planks' must be at least 1.",
        ),
        ("craft 1 chest using 2 oak log", "No recipe makes chest from oak log."),
        (
            "craft 1 chest using 8 oak planks, 1 coal",
            "No recipe makes chest from oak planks and coal.",
        ),
        (
            "craft 3 chest using 8 oak planks",
            "The amounts are wrong: the recipe is `craft 1 chest using 8 planks`, or an "
            "exact multiple of it.",
        ),
        (
            "craft 1 chest using 9 oak planks",
            "The amounts are wrong: the recipe is `craft 1 chest using 8 planks`, or an "
            "exact multiple of it.",
        ),
        (
            "craft 0 chest using 8 oak planks",
            "The amounts are wrong: the recipe is `craft 1 chest using 8 planks`, or an "
            "exact multiple of it.",
        ),
        (
            "craft 1 chest using 4 oak planks, 4 birch planks",
            "Not enough to craft that: it takes 4 birch planks (you have 0).",
        ),
    ],
)
def test_refusals_say_what_is_wrong_and_change_nothing(action, observation):
    env = started("chest")
    say(env, "get 2 oak log"), say(env, "craft 4 oak planks using 1 oak log")
    step = env.step(action)
    assert (step.observation, step.reward, step.terminated, step.success) == (
        observation,
        0.0,
        False,
        None,
    )
    assert say(env, "inventory") == "Inventory: 1 oak log, 4 oak planks."


words = st.sampled_from(
    [
        "craft",
        "get",
        "inventory",
        "using",
        "and",
        ",",
        "0",
        "1",
        "4",
        "64",
        "9" * 5000,
        "oak",
        "log",
        "planks",
        "chest",
        "_",
        "²",
        "٣",
        "\n",
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(st.text(), st.lists(words, max_size=9).map(" ".join)), max_size=6))
def test_arbitrary_text_never_raises_and_never_pays(texts):
    env = started(
        "beacon"
    )  # needs a nether star, glass and obsidian, none of which the words can name
    for text in texts:
        step = env.step(text)
        assert step.observation
        assert step.reward == 0.0
        assert not step.terminated
        assert not step.truncated
        assert step.success is None
        assert len(step.observation) < 400
        json.dumps(step.observation).encode("ascii")
    assert solve(env) <= env.max_turns


def test_instances_share_nothing():
    one, two = started("chest"), started("chest")
    say(one, "get 3 oak log")
    assert say(two, "inventory") == "Inventory: empty."
    task = task_for(one, "chest")
    assert one.reset(task) == two.reset(task)
    assert say(one, "inventory") == "Inventory: empty."


# Distractors, actions, expert


def test_every_listed_command_is_a_recipe_of_the_data():
    """The tree has the data's recipes alone (see above), and the lines shown are the tree's."""
    env = TextCraft()
    tree = load_tree(VERSION)
    true_lines = {tree.describe(recipe) for ways in tree.recipes.values() for recipe in ways}
    for task in all_tasks(env):
        listed = [line for line in env.reset(task).splitlines() if line.startswith("craft ")]
        needed = [
            line
            for line in TextCraft(distractors=0).reset(task).splitlines()
            if line.startswith("craft ")
        ]
        assert len(listed) == len(set(listed)) == len(needed) + 10
        assert set(needed) <= set(listed) <= true_lines


def test_distractors_are_shuffled_among_the_needed():
    env = TextCraft()
    places = Counter()
    for task in env.tasks("test"):
        lines = env.reset(task).splitlines()
        goal = goal_of(task).replace("_", " ")
        places[
            next(i for i, line in enumerate(lines) if re.match(rf"craft \d+ {goal} using", line))
        ] += 1
    assert len(places) > 8
    assert max(places.values()) < 30


def test_all_recipes_can_be_listed():
    env = TextCraft(distractors=10_000)
    assert (
        sum(line.startswith("craft ") for line in env.reset(env.tasks("test")[0]).splitlines())
        == 611
    )


def test_listed_actions_are_carried_out():
    rng = random.Random(0)
    env = TextCraft()
    for task in env.tasks("test"):
        env.reset(task)
        for _ in range(10):
            actions = env.actions()
            assert len(actions) == len(set(actions))
            assert "inventory" in actions
            step = env.step(rng.choice(actions))
            assert step.observation.startswith(("Got", "Crafted", "Inventory"))
            if step.terminated:
                break


def test_actions_offer_a_craft_once_it_can_be_done():
    env = started("chest", distractors=0)  # its recipe for planks is of dark oak
    before = env.actions()
    assert "get 1 dark oak log" in before
    assert not any(action.startswith("craft") for action in before)
    say(env, "get 1 dark oak log")
    assert set(env.actions()) - set(before) == {"craft 4 dark oak planks using 1 dark oak log"}


def test_the_expert_solves_every_task():
    env = TextCraft()
    turns = Counter()
    for task in all_tasks(env):
        env.reset(task)
        turns[solve(env)] += 1
    assert turns == {2: 120, 3: 127, 4: 133, 5: 73, 6: 32, 7: 20, 8: 35, 9: 2, 10: 5, 11: 4}


def test_the_expert_fits_the_horizon_at_the_largest_count():
    env = TextCraft(count=16)
    for task in all_tasks(env):
        env.reset(task)
        solve(env)  # fails beyond max_turns


def test_the_expert_plans_from_whatever_is_held():
    """After 15 random turns it still needs no more turns than from nothing."""
    rng = random.Random(0)
    env = TextCraft()
    for task in env.tasks("test"):
        env.reset(task)
        from_nothing = solve(env)
        env.reset(task)
        for _ in range(15):
            if env.step(rng.choice(env.actions())).terminated:
                break
        else:
            assert solve(env) <= from_nothing


def test_the_expert_uses_what_is_at_hand():
    env = started("chest")
    say(env, "get 2 birch log"), say(env, "craft 8 birch planks using 2 birch log")
    assert env.expert() == "craft 1 chest using 8 birch planks"


def test_the_expert_does_not_count_an_item_twice():
    # A wooden shovel takes 1 planks and 2 sticks; sticks take 2 planks. Of 2 jungle planks one is
    # for the shovel, so
    # that the sticks need the 2 birch planks.
    env = started("wooden_shovel")
    for wood in ("jungle", "birch"):
        say(env, f"get 1 {wood} log"), say(env, f"craft 4 {wood} planks using 1 {wood} log")
        say(env, f"craft 1 {wood} pressure plate using 2 {wood} planks")
    assert (
        say(env, "inventory")
        == "Inventory: 2 birch planks, 1 birch pressure plate, 2 jungle planks, 1 jungle "
        "pressure plate."
    )
    assert env.expert() == "craft 4 stick using 2 birch planks"


def test_the_expert_fetches_in_stacks():
    # blue ice is 9 packed ice, each of 9 ice: 81 ice are 64 and 17
    env = started("blue_ice")
    expected = [
        "get 64 ice",
        "get 17 ice",
        "craft 9 packed ice using 81 ice",
        "craft 1 blue ice using 9 packed ice",
    ]
    for action in expected:
        assert env.expert() == action
        env.step(action)
    assert env.expert() is None


def test_the_worked_example_is_what_the_environment_says():
    env = TextCraft(distractors=2)
    shown = iter(env.example)
    for goal in EXAMPLE_GOALS:
        task = task_for(env, goal)
        assert task.split == "train"
        step = Step(env.reset(task))
        while not step.terminated:
            turn = next(shown)
            assert turn.observation == step.observation
            assert turn.thought
            step = env.step(turn.action)
        assert step.reward == 1.0
    assert next(shown, None) is None


def test_other_versions_load():
    env = TextCraft(version="1.19.2")
    assert len(all_tasks(env)) == 652
    assert {task.id for task in all_tasks(env)}.isdisjoint(
        task.id for task in all_tasks(TextCraft())
    )
    for task in env.tasks("test"):
        env.reset(task)
        solve(env)


def test_importing_loads_neither_torch_nor_the_data():
    program = (
        "import sys, palestra.envs.textcraft.env; print('torch' in sys.modules, "
        "'minecraft_data' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True
    )
    assert run.stdout.split() == ["False", "False"]


def test_the_compact_style_says_nothing_outside_its_vocabulary():
    env = TextCraft(style="compact", distractors=3)
    known = set(env.vocabulary())
    nonsense = ["dance", "get 0 dirt", "get 1 planks", "craft 1 stick using 1 dirt",
    "craft 1 stick using planks", "inventory",
                "craft 3 stick using 2 oak planks", "craft 4 stick using 2 oak planks",
                "craft 4 stick using 0 oak planks"]  # fmt: skip
    for task in [*env.tasks("train")[::9], *env.tasks("test")[::9]]:
        said = [env.reset(task), *(env.step(action).observation for action in nonsense)]
        while (action := env.expert()) is not None:
            assert set(" ".join([action, *env.actions()]).split()) <= known
            said.append(env.step(action).observation)
        assert "the goal is reached" in said[-1]
        assert set(" ".join(said).split()) <= known


def test_an_action_of_the_compact_style_parts_its_commas():
    env = TextCraft(style="compact")
    task = next(task for task in env.tasks("train") if task.id.startswith("beehive"))
    assert env.reset(task).startswith("crafting commands : ; craft")
    for action in [
        "get 2 oak log",
        "craft 8 oak planks using 2 oak log",
        "get 3 honeycomb",
        "craft 1 beehive using 6 oak planks , 3 honeycomb",
    ]:
        step = env.step(action)
    assert (step.observation, step.success) == ("crafted 1 beehive the goal is reached", True)
    assert TextCraft().vocabulary() is None
    with pytest.raises(ValueError, match="style must be one of text, compact"):
        TextCraft(style="short")


def test_goals_can_be_chosen_by_depth():
    shallow = TextCraft(depths=[1])
    assert {task.category for split in ("train", "test") for task in shallow.tasks(split)} == {
        "depth 1"
    }
    assert len(shallow.tasks("train")) + len(TextCraft(depths=[2, 3, 4]).tasks("train")) == len(
        TextCraft().tasks("train")
    )
    for bad in ([], [0], [9]):
        with pytest.raises(ValueError, match="depths must be some of 1, 2, 3, 4"):
            TextCraft(depths=bad)
