"""TextCraft: craft a Minecraft item from fetched ingredients, with text commands."""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain, product
from typing import Any, ClassVar, Literal, get_args

from palestra.core.types import Example, Step, Task
from palestra.envs.agenteval import agenteval_number
from palestra.envs.base import UNLISTED, Environment, content_id
from palestra.envs.textcraft import original
from palestra.envs.textcraft.recipes import (
    Choice,
    Plan,
    Recipe,
    Tree,
    amounts,
    craft_command,
    load_tree,
    spoken,
)

Style = Literal["text", "compact"]
Recipes = Literal["minecraft-data", "original"]

ORIGINAL = "original"
"""Used in place of a Minecraft version for the original's recipes."""
VERSION = "1.16.5"
MOST_PER_GET = 64
MOST_WANTED = 16
"""The maximum of `count`: with more, fetching alone would fill an episode for some goals."""
TEST_TASKS = 100
"""The approximate number of goals in the test split."""

EXPECTED = (
    "Expected `craft <amount> <item> using <amount> <item>, <amount> <item>`, `get <amount> "
    "<item>` or `inventory`."
)
_COMPACT_TEXTS = (
    "Crafting commands:\nGoal: craft.",
    "The episode is over: the goal was reached. The goal is reached.",
    EXPECTED,
    "Inventory: empty.",
    "Got. Crafted.",
    "cannot be fetched: it has to be crafted. One action gets from 1 to of an item, not",
    "cannot be crafted: get it.",
    "No recipe makes from and",
    "The amounts are wrong: the recipe is or, or an exact multiple of it.",
    "you have",
    "Not enough to craft that: it takes",
    "Cannot read the ingredient",
    "The amount of the ingredient must be at least 1.",
    "is a group: name, such as",
    "There is no item called",
    "many",
)
"""All texts of the compact style other than items and commands."""

_CRAFT = re.compile(r"craft ([0-9]{1,6}) (.+?) using (.+)")
_GET = re.compile(r"get ([0-9]{1,6}) (.+)")
_PART = re.compile(r"([0-9]{1,6}) (.+)")
_BETWEEN_PARTS = re.compile(r" ?, ?(?:and )?| and (?=[0-9])")

INSTRUCTIONS = f"""\
You are crafting items in a world that follows Minecraft's recipes. You start with an empty \
inventory, and you are done \
when you hold the goal item.

You are first shown crafting commands and then the goal. Some of the commands lead to the goal; \
others are of no use for it.

Each turn you take one action:
- craft <amount> <item> using <amount> <item>, <amount> <item>
  Turns ingredients that you hold into an item. The amounts must be those of a recipe, or all of \
them multiplied by the \
same whole number: where 1 oak log makes 4 oak planks, 3 oak log make 12 oak planks.
- get <amount> <item>
  Fetches an item that cannot be crafted, from 1 to {MOST_PER_GET} at a time. Items that can be \
crafted must be crafted. \
What is left over does no harm.
- inventory
  Shows what you hold.

A command may leave a choice: "charcoal or coal" takes either, and a group such as "planks" takes \
any of the items that \
are listed for it. In your action, name the items themselves (oak planks), never the group."""

EXAMPLE_GOALS = ("beehive", "activator_rail")
"""The training goals that the example plays in this order, with two distractors each to keep the
prompt short. A test replays them.
"""

EXAMPLE = (
    Example(
        observation="""\
Crafting commands:
craft 2 oak trapdoor using 6 oak planks
craft 1 red bed using 1 red dye, 1 white bed
craft 4 oak planks using 1 oak log or oak wood or stripped oak log or stripped oak wood
craft 1 beehive using 6 planks, 3 honeycomb
(planks: any item whose name ends in planks)

Goal: craft beehive.""",
        thought="A beehive takes 6 planks and 3 honeycomb. One oak log makes 4 oak planks, so I "
        "need 2 oak log for 8 of them.",
        action="get 2 oak log",
    ),
    Example(
        observation="Got 2 oak log.",
        thought="Twice the recipe for oak planks turns both into 8 oak planks.",
        action="craft 8 oak planks using 2 oak log",
    ),
    Example(
        observation="Crafted 8 oak planks.",
        thought="No command makes honeycomb, so I fetch the 3 that I need.",
        action="get 3 honeycomb",
    ),
    Example(
        observation="Got 3 honeycomb.",
        thought="I hold 8 oak planks and 3 honeycomb. Oak planks are planks, so I can craft the "
        "beehive.",
        action="craft 1 beehive using 6 oak planks, 3 honeycomb",
    ),
    Example(
        observation="""\
Crafting commands:
craft 1 stick using 2 bamboo
craft 1 iron axe using 3 iron ingot, 2 stick
craft 1 redstone torch using 1 redstone, 1 stick
craft 1 cauldron using 7 iron ingot
craft 6 activator rail using 6 iron ingot, 1 redstone torch, 2 stick

Goal: craft activator rail.""",
        thought="The rail takes 6 iron ingot, 1 redstone torch and 2 stick, and the torch takes 1 "
        "stick more: 3 stick, from 6 bamboo.",
        action="get 6 bamboo",
    ),
    Example(
        observation="Got 6 bamboo.",
        thought="Three times the recipe for stick turns them into 3 stick.",
        action="craft 3 stick using 6 bamboo",
    ),
    Example(
        observation="Crafted 3 stick.",
        thought="The torch needs redstone too. No command makes it, so I fetch it.",
        action="get 1 redstone",
    ),
    Example(
        observation="Got 1 redstone.",
        thought="I hold 3 stick and 1 redstone. One stick goes into the torch, and 2 are left for "
        "the rail.",
        action="craft 1 redstone torch using 1 redstone, 1 stick",
    ),
    Example(
        observation="Crafted 1 redstone torch.",
        thought="No command makes iron ingot, so I fetch the 6 that I need.",
        action="get 6 iron ingot",
    ),
    Example(
        observation="Got 6 iron ingot.",
        thought="I hold 6 iron ingot, 1 redstone torch and 2 stick: all that the rail takes.",
        action="craft 6 activator rail using 6 iron ingot, 1 redstone torch, 2 stick",
    ),
)


class _ActionError(Exception):
    """An action that cannot be carried out; the message is the observation."""


class TextCraft(Environment):
    """Craft a Minecraft item from fetched ingredients. The reward is 1, once, when it is held."""

    name: ClassVar[str] = "textcraft"
    max_turns = 30
    instructions = INSTRUCTIONS
    example: Sequence[Example] = EXAMPLE

    def __init__(
        self,
        *,
        recipes: Recipes = "minecraft-data",
        version: str = VERSION,
        distractors: int = 10,
        count: int = 1,
        depths: Sequence[int] | None = None,
        style: Style = "text",
    ) -> None:
        """`version`: of Minecraft. `distractors`: listed commands that are not needed. `count`: how
        many of the goal item to make.

        `recipes`: "original" for the recipes, texts and rules of TextCraft's paper, which has
        neither versions nor counts. `depths`: only goals at these crafting depths, from 1 to 4.
        Default: all. `style`: "text" for language models, "compact" for a word-level tokenizer
        built from `vocabulary()`.
        """
        if style not in get_args(Style):
            raise ValueError(f"style must be one of {', '.join(get_args(Style))}, not {style!r}")
        if distractors < 0:
            raise ValueError(f"distractors must be 0 or more, not {distractors}")
        if not 1 <= count <= MOST_WANTED:
            raise ValueError(f"count must be from 1 to {MOST_WANTED}, not {count}")
        if recipes not in get_args(Recipes):
            raise ValueError(
                f"recipes must be one of {', '.join(get_args(Recipes))}, not {recipes!r}"
            )
        self._original = original.load_original() if recipes == ORIGINAL else None
        if self._original is not None:
            for option, value, only in (("version", version, VERSION), ("count", count, 1)):
                if value != only:
                    raise ValueError(
                        f"{option} = {value!r} has no effect with recipes = 'original'; "
                        "leave it out"
                    )
            version = ORIGINAL
            self.instructions = original.INSTRUCTIONS
            self.example = original.EXAMPLE
            self.max_turns = original.MAX_TURNS
        self.style = style
        if style == "compact":
            self.instructions, self.example = "", ()
        self.distractors = distractors
        self.count = count
        self._version = version
        self._tree = _tree(version)
        self._goals = _tasks(version, count)
        known = sorted({task.category for task in self._goals})
        wanted = known if depths is None else [f"depth {depth}" for depth in depths]
        if not wanted or not set(wanted) <= set(known):
            choices = ", ".join(name.removeprefix("depth ") for name in known)
            raise ValueError(f"depths must be some of {choices}, not {depths}")
        self._categories = set(wanted)
        self._goal: str | None = None
        self._plan: Plan = {}
        self._listed: list[Recipe] = []
        self._inventory: Counter[str] = Counter()

    def tasks(self, split: str) -> Sequence[Task]:
        if split not in self.splits:
            raise ValueError(
                f"textcraft has no split {split!r}; there are: {', '.join(self.splits)}"
            )
        return [
            task
            for task in self._goals
            if task.split == split and task.category in self._categories
        ]

    def task(self, id: str) -> Task:
        """Any depth is accepted. With the original's recipes, AgentEval's ids are accepted too."""
        wanted = None
        number = agenteval_number(self.name, id)
        if number is not None:
            if self._original is None:
                raise ValueError(
                    f"{id} is a goal of the original's recipes: set the environment's "
                    "option recipes = 'original'"
                )
            wanted = self._original.goal(number)
        found = next(
            (task for task, goal in self._goals.items() if task.id == id or goal == wanted), None
        )
        if found is None:
            raise self.no_task(id, *(["textcraft_12"] if self._original else []))
        return found if found.category in self._categories else replace(found, split=UNLISTED)

    def reset(self, task: Task) -> str:
        splits = self.splits if task.split == UNLISTED else [task.split]
        goal = None
        for split in splits:
            goal = goal or self._goals.get(replace(task, split=split))
        if goal is None:
            source = "the original's recipes" if self._original else f"Minecraft {self._version}"
            raise ValueError(
                f"textcraft has no task {task.id!r} in split {task.split!r} for {source} "
                f"and count {self.count}"
            )
        self._goal = goal
        self._plan = _plan(self._version, goal)
        self._listed = self._list(task.id, goal)
        self._inventory = Counter()
        opening = [
            "Crafting commands:",
            *map(self._tree.describe, self._listed),
            *self._groups(),
            "",
            f"Goal: craft {self._wanted}.",
        ]
        return self._said("\n".join(opening))

    def step(self, action: str) -> Step:
        if self._is_done:
            return Step(
                self._said("The episode is over: the goal was reached."),
                terminated=True,
                success=True,
            )
        try:
            observation = self._act(_normal(action))
        except (_ActionError, original.Refused) as refusal:
            return Step(self._said(str(refusal)), invalid=True)
        if self._is_done:
            ending = "" if self._original else " The goal is reached."
            return Step(
                self._said(f"{observation}{ending}"), reward=1.0, terminated=True, success=True
            )
        return Step(self._said(observation))

    def vocabulary(self) -> list[str] | None:
        """Every word of the compact style. Does not depend on the task.

        Error messages may quote other words that the model wrote.
        """
        if self.style != "compact":
            return None
        recipes = self._all_recipes()
        items: set[str] = set()
        for recipe in recipes:
            items |= recipe.mentions
        groups = [f"({name}: {members})" for name, members in self._tree.members.items()]
        phrases = original.COMPACT_TEXTS if self._original else _COMPACT_TEXTS
        texts = [*map(self._tree.describe, recipes), *map(spoken, sorted(items)), *groups, *phrases]
        words = [str(amount) for amount in range(MOST_PER_GET + 1)]
        for text in texts:
            words += _compact(text).split()
        return list(dict.fromkeys(words))

    def _all_recipes(self) -> list[Recipe]:
        return list(chain.from_iterable(self._tree.recipes.values()))

    def _said(self, text: str) -> str:
        return _compact(text) if self.style == "compact" else text

    def actions(self) -> list[str]:
        """The listed commands that can be executed now, and `get` for their fetched ingredients."""
        if self._is_done:
            return []
        crafts: set[str] = set()
        gets: set[str] = set()
        for recipe in self._listed:
            crafts.update(Choice(recipe, items).command for items in self._in_hand(recipe))
            for slot in recipe.slots:
                amount = min(slot.amount, MOST_PER_GET)
                fetched = [item for item in slot.items if item not in self._tree.recipes]
                gets.update(f"get {amount} {spoken(item)}" for item in fetched)
        return [self._said(action) for action in (*sorted(crafts), *sorted(gets), "inventory")]

    def expert(self) -> str | None:
        """The first action of a short plan from the current inventory. The plan never fails."""
        return None if self._is_done else self._said(next(self._remaining()))

    def scene(self) -> dict[str, Any]:
        """The inventory, and everything that the shortest plan for the goal needs."""
        if self._goal is None:
            raise RuntimeError("textcraft: reset an episode before playing it")
        held = {spoken(item): amount for item, amount in sorted(self._inventory.items()) if amount}
        return {
            "kind": "crafting",
            "goal": self._wanted,
            "inventory": held,
            "tree": self._needs(self._goal, self.count, (self._goal,)),
        }

    @property
    def _is_done(self) -> bool:
        if self._goal is None:
            raise RuntimeError("textcraft: reset an episode before playing it")
        return self._inventory[self._goal] >= self.count

    @property
    def _wanted(self) -> str:
        assert self._goal is not None
        return spoken(self._goal) if self.count == 1 else f"{self.count} {spoken(self._goal)}"

    # The first observation.

    def _list(self, id: str, goal: str) -> list[Recipe]:
        """The plan's recipes, shuffled among distractors. Half of them share items with it."""
        rng = random.Random(id)
        if self._original is not None:
            return self._original.listed(goal, self.distractors, rng)
        needed = [choice.recipe for choice in self._plan.values() if choice is not None]
        touching = dict.fromkeys(
            chain.from_iterable(self._tree.touching[item] for item in self._plan)
        )
        related = [recipe for recipe in touching if recipe not in needed]
        listed = [*needed, *rng.sample(related, min(len(related), (self.distractors + 1) // 2))]
        everything = self._all_recipes()
        size = min(len(needed) + self.distractors, len(everything))
        # `size` samples are enough: even if all of `listed` is among them, the rest fills the list.
        sampled = rng.sample(everything, size)
        listed = list(dict.fromkeys([*listed, *sampled]))[:size]
        rng.shuffle(listed)
        return listed

    def _groups(self) -> Iterator[str]:
        """A line for each named group in the listed commands. The original has none."""
        if self._original is not None:
            return
        used: set[tuple[str, ...]] = set()
        for recipe in self._listed:
            used.update(slot.items for slot in recipe.slots)
        for name, items in self._tree.sets.items():
            if items in used:
                yield f"({name}: {self._tree.members[name]})"

    # Carrying out an action.

    def _act(self, action: str) -> str:
        if self._original is not None:
            return self._original.act(self._inventory, action)
        if action == "inventory":
            return f"Inventory: {amounts(sorted(self._inventory.items())) or 'empty'}."
        if match := _GET.fullmatch(action):
            return self._get(int(match[1]), self._item(match[2]))
        if match := _CRAFT.fullmatch(action):
            return self._craft(int(match[1]), self._item(match[2]), self._parts(match[3]))
        raise _ActionError(EXPECTED)

    def _get(self, amount: int, item: str) -> str:
        if item in self._tree.recipes:
            raise _ActionError(f"{spoken(item)} cannot be fetched: it has to be crafted.")
        if not 1 <= amount <= MOST_PER_GET:
            raise _ActionError(
                f"One action gets from 1 to {MOST_PER_GET} of an item, not {amount}."
            )
        self._inventory[item] += amount
        return f"Got {amount} {spoken(item)}."

    def _craft(self, amount: int, item: str, parts: Counter[str]) -> str:
        if item not in self._tree.recipes:
            raise _ActionError(f"{spoken(item)} cannot be crafted: get it.")
        fitting = [recipe for recipe in self._tree.recipes[item] if _takes(recipe, parts)]
        if not fitting:
            raise _ActionError(
                f"No recipe makes {spoken(item)} from {' and '.join(map(spoken, parts))}."
            )
        if not any(_adds_up(recipe, amount, parts) for recipe in fitting):
            recipes = " or ".join(f"`{self._tree.describe(recipe)}`" for recipe in fitting)
            raise _ActionError(
                f"The amounts are wrong: the recipe is {recipes}, or an exact multiple of it."
            )
        lacking: list[str] = []
        for part, needed in parts.items():
            held = self._inventory[part]
            if held < needed:
                lacking.append(f"{needed} {spoken(part)} (you have {held})")
        if lacking:
            raise _ActionError(f"Not enough to craft that: it takes {', '.join(lacking)}.")
        self._inventory -= parts
        self._inventory[item] += amount
        return f"Crafted {amount} {spoken(item)}."

    def _parts(self, text: str) -> Counter[str]:
        parts: Counter[str] = Counter()
        for part in _BETWEEN_PARTS.split(text):
            match = _PART.fullmatch(part)
            if match is None:
                raise _ActionError(f"Cannot read the ingredient {_short(part)}. {EXPECTED}")
            if int(match[1]) == 0:
                raise _ActionError(
                    f"The amount of the ingredient {_short(part)} must be at least 1."
                )
            parts[self._item(match[2])] += int(match[1])
        return parts

    def _item(self, name: str) -> str:
        if name in self._tree.aliases:
            return self._tree.aliases[name]
        if name in self._tree.sets:
            raise _ActionError(
                f"{name} is a group: name {self._tree.members[name]}, such as "
                f"{self._such_as(name)}."
            )
        raise _ActionError(f"There is no item called {_short(name)}.")

    def _such_as(self, group: str) -> str:
        """An item of the group, preferably one that a listed command makes."""
        items = self._tree.sets[group]
        made = {recipe.item for recipe in self._listed}
        return spoken(next((item for item in items if item in made), items[0]))

    # Planning.

    def _in_hand(self, recipe: Recipe) -> Iterator[tuple[str, ...]]:
        """The ways to fill a recipe's slots from the inventory."""
        choices = []
        for slot in recipe.slots:
            choices.append([item for item in slot.items if self._inventory[item] >= slot.amount])
        return product(*choices)

    def _remaining(self) -> Iterator[str]:
        """The actions that are left, in the order in which to take them.

        They are computed from the goal down, because each craft adds to the needs of the items
        below it, and then reversed.
        """
        assert self._goal is not None
        needed = Counter({self._goal: self.count})
        turns: list[str] = []
        for item, choice in reversed(self._plan.items()):
            short = needed[item] - self._inventory[item]
            if short <= 0:
                continue
            if choice is None:
                turns.append(f"get {min(short, MOST_PER_GET)} {spoken(item)}")
                continue
            times = -(-short // choice.recipe.count)
            parts = self._parts_in_hand(choice, times, needed)
            needed.update(parts)
            if self._original is not None:
                turns += original.single_crafts(item, choice.recipe.count, parts, times)
                continue
            turns.append(craft_command(item, choice.recipe.count * times, parts.items()))
        return reversed(turns)

    def _needs(self, item: str, count: int, alike: Sequence[str]) -> dict[str, Any]:
        """`count` of an item and its ingredients, recursively. Items in `alike` count as it."""
        needs: list[dict[str, Any]] = []
        if (choice := self._plan[item]) is not None:
            times = -(-count // choice.recipe.count)
            slots = zip(choice.items, choice.recipe.slots, strict=True)
            needs = [self._needs(part, slot.amount * times, slot.items) for part, slot in slots]
        return {
            "item": spoken(item),
            "count": count,
            "have": sum(self._inventory[part] for part in alike),
            "needs": needs,
        }

    def _parts_in_hand(self, choice: Choice, times: int, needed: Counter[str]) -> dict[str, int]:
        """The ingredients of a choice. Uses another item of a group if enough of it is unused."""
        parts: dict[str, int] = {}
        for planned, slot in zip(choice.items, choice.recipe.slots, strict=True):
            amount = slot.amount * times
            idle = (
                item
                for item in slot.items
                if item not in self._plan and self._inventory[item] - needed[item] >= amount
            )
            enough = self._inventory[planned] - needed[planned] >= amount
            parts[planned if enough else next(idle, planned)] = amount
        return parts


def _takes(recipe: Recipe, parts: Counter[str]) -> bool:
    """Whether these are the recipe's ingredients, regardless of amounts."""
    is_complete = all(parts.keys() & set(slot.items) for slot in recipe.slots)
    return is_complete and parts.keys() <= recipe.mentions - {recipe.item}


def _adds_up(recipe: Recipe, amount: int, parts: Counter[str]) -> bool:
    """Whether the amounts are a whole multiple of the recipe's. Items of a group may be mixed."""
    times, left = divmod(amount, recipe.count)
    if left:
        return False
    for slot in recipe.slots:
        if sum(parts[item] for item in slot.items) != slot.amount * times:
            return False
    return True


def _normal(action: str) -> str:
    words = action.lower().replace("minecraft:", "").replace("_", " ").split()
    return " ".join(words).strip(" .`'\"")


def _compact(text: str) -> str:
    """Lower-case words separated by spaces. A new line becomes a semicolon, and an amount above
    `MOST_PER_GET` becomes "many".
    """
    words = re.findall(r"[a-z0-9]+|[,;:()]", text.lower().strip().replace("\n", " ; "))
    return " ".join(
        "many" if word.isdecimal() and int(word) > MOST_PER_GET else word for word in words
    )


def _short(text: str) -> str:
    """The model's text, shortened and escaped so that it can be quoted."""
    return ascii(text if len(text) <= 40 else f"{text[:40]}...")


def _tree(version: str) -> Tree:
    return original.load_original().tree if version == ORIGINAL else load_tree(version)


@cache
def _plan(version: str, goal: str) -> Plan:
    return _tree(version).plan(goal)


@cache
def _tasks(version: str, count: int) -> Mapping[Task, str]:
    """The goal of each task.

    Each depth contributes the same share of its goals to the test split. With the original's
    recipes, the test split is AgentEval's.
    """
    tree = _tree(version)
    if version == ORIGINAL:
        goals = original.load_original().goals
        test = {goals[number] for number in original.TEST_NUMBERS}
    else:
        goals = tuple(sorted(tree.recipes))
        test = _test_goals(tree)

    def task(goal: str) -> Task:
        return Task(
            env="textcraft",
            split="test" if goal in test else "train",
            id=f"{goal.replace('_', '-')}-{content_id('textcraft', version, goal, str(count))}",
            category=f"depth {tree.depth[goal]}",
        )

    return {task(goal): goal for goal in goals}


def _test_goals(tree: Tree) -> set[str]:
    by_depth: dict[int, list[str]] = defaultdict(list)
    for goal in sorted(tree.recipes, key=lambda goal: content_id("textcraft split", goal)):
        by_depth[tree.depth[goal]].append(goal)
    chosen: set[str] = set()
    for goals in by_depth.values():
        chosen.update(goals[: round(len(goals) * TEST_TASKS / len(tree.recipes))])
    return chosen
