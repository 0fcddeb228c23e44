"""Minecraft's recipes as a tree without cycles: what can be fetched, what is made of what, and how
to make it.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import count as count_from
from itertools import permutations
from typing import Any

Ingredients = tuple[tuple[str, int], ...]
"""(item, amount), sorted."""
Raw = Mapping[str, frozenset[tuple[int, Ingredients]]]
"""What makes each item: (how many come out, what goes in), with no sets."""

_LARGE_SET = 5
"""From so many items on a set is called by a name; a smaller one is spelled out, as in "charcoal or
coal".
"""
_SET_NAMES = {
    "logs": {"log", "wood", "stem", "hyphae"},
    "planks": {"planks"},
    "wooden slabs": {"slab"},
    "wool": {"wool"},
}
"""The name of a large set, by the last words of its items."""


@dataclass(frozen=True, slots=True, order=True)
class Slot:
    """One ingredient: so many of any of these."""

    items: tuple[str, ...]
    amount: int


@dataclass(frozen=True, slots=True, order=True)
class Recipe:
    item: str
    count: int
    """How many of the item one execution makes."""
    slots: tuple[Slot, ...]
    """No item is in two of them."""

    @property
    def mentions(self) -> frozenset[str]:
        return frozenset({self.item, *(item for slot in self.slots for item in slot.items)})


@dataclass(frozen=True, slots=True)
class Choice:
    """A recipe with one item decided on for each of its slots."""

    recipe: Recipe
    items: tuple[str, ...]

    @property
    def command(self) -> str:
        ingredients = (
            (item, slot.amount) for item, slot in zip(self.items, self.recipe.slots, strict=True)
        )
        return craft_command(self.recipe.item, self.recipe.count, ingredients)


Plan = dict[str, Choice | None]
"""Everything that a goal is made from, ingredients before results; None where the item is fetched.

"""


@dataclass(frozen=True, slots=True)
class Tree:
    """All recipes of one Minecraft version. Built once for a process and never changed."""

    recipes: Mapping[str, tuple[Recipe, ...]]
    """By item, sorted. These items are the goals."""
    depth: Mapping[str, int]
    """Crafting levels above fetched items, by the shallowest recipe; 0 for an item that is fetched.

    """
    touching: Mapping[str, tuple[Recipe, ...]]
    """The recipes that make or take an item."""
    sets: Mapping[str, tuple[str, ...]]
    """The large sets by name."""
    set_names: Mapping[tuple[str, ...], str]
    """The other way round."""
    members: Mapping[str, str]
    """What is in a large set, in words."""
    aliases: Mapping[str, str]
    """Spellings of an item, in lower case and with spaces."""

    def plan(self, goal: str) -> Plan:
        """How to make `goal` from nothing in few turns; `goal` comes last.

        Equally short ways are drawn by the goal's name.
        """
        rng = random.Random(goal)
        plans: list[Plan] = []
        for recipe in self.recipes[goal]:
            fetched = [
                slot for slot in recipe.slots if all(self.depth[item] == 0 for item in slot.items)
            ]
            made = [slot for slot in recipe.slots if slot not in fetched]
            # In every order, for what one slot is made from can be shared by the next.
            plans += [
                self._fill({}, recipe, [*order, *fetched], rng) for order in permutations(made)
            ]
        return min(plans, key=len)

    def _fill(self, plan: Plan, recipe: Recipe, order: Iterable[Slot], rng: random.Random) -> Plan:
        """`plan` with all that `recipe` needs on top of it, its slots filled in `order`."""
        chosen: dict[Slot, str] = {}
        for slot in order:
            shallowest = min(self.depth[item] for item in slot.items)
            options = [
                item for item in slot.items if item in plan or self.depth[item] == shallowest
            ]
            ways = [
                (item, self._extend(plan, item, rng)) for item in rng.sample(options, len(options))
            ]
            chosen[slot], plan = min(ways, key=lambda way: len(way[1]))
        return {**plan, recipe.item: Choice(recipe, tuple(chosen[slot] for slot in recipe.slots))}

    def _extend(self, plan: Plan, item: str, rng: random.Random) -> Plan:
        """`plan` with what `item` needs on top of it, as little as possible."""
        if item in plan:
            return plan
        if item not in self.recipes:
            return {**plan, item: None}
        return min(
            (self._fill(plan, recipe, recipe.slots, rng) for recipe in self.recipes[item]), key=len
        )

    def describe(self, recipe: Recipe) -> str:
        """The command for a recipe, sets by their names: `craft 1 chest using 8 planks`."""
        return craft_command(
            recipe.item,
            recipe.count,
            ((self.set_name(slot.items), slot.amount) for slot in recipe.slots),
        )

    def set_name(self, items: tuple[str, ...]) -> str:
        return self.set_names.get(items) or " or ".join(items)


def spoken(item: str) -> str:
    return item.replace("_", " ")


def craft_command(item: str, count: int, ingredients: Iterable[tuple[str, int]]) -> str:
    return f"craft {count} {spoken(item)} using {amounts(ingredients)}"


def amounts(items: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{amount} {spoken(item)}" for item, amount in items)


@cache
def load_tree(version: str) -> Tree:
    """The recipes of a Minecraft release, from the package minecraft-data.

    The same on every machine.
    """
    raw = _without_cycles(_read(version))
    recipes = {item: _merge(item, raw[item]) for item in sorted(raw)}
    touching: dict[str, list[Recipe]] = defaultdict(list)
    named: dict[str, set[tuple[str, ...]]] = defaultdict(set)
    for recipe in (recipe for ways in recipes.values() for recipe in ways):
        for item in recipe.mentions:
            touching[item].append(recipe)
        for slot in recipe.slots:
            if (name := _name_of(slot.items)) is not None:
                named[name].add(slot.items)
    depth = _depths(raw)
    # Where two sets have a claim to one name, the larger one has it and the other is spelled out.
    sets = {
        name: max(claims, key=lambda items: (len(items), items))
        for name, claims in sorted(named.items())
    }
    return Tree(
        recipes=recipes,
        depth=depth,
        touching={item: tuple(touched) for item, touched in touching.items()},
        sets=sets,
        set_names={items: name for name, items in sets.items()},
        members={name: _in_words(name, items, sorted(depth)) for name, items in sets.items()},
        aliases=_aliases(sorted(depth)),
    )


def _read(version: str) -> Raw:
    """All crafting recipes of a version, without their shapes and without what they give back (a
    cake's buckets).
    """
    try:
        data = files("minecraft_data") / "data" / "data"
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "textcraft takes its recipes from a package that is not installed: pip "
            "install minecraft-data"
        ) from error
    paths: dict[str, dict[str, str]] = json.loads((data / "dataPaths.json").read_text())["pc"]
    known = [
        name
        for name, path in paths.items()
        if _is_supported(name) and {"items", "recipes"} <= path.keys()
    ]
    if version not in known:
        raise ValueError(
            f"textcraft has no recipes of Minecraft {version!r}; there are: {', '.join(known)}"
        )

    def content(kind: str) -> Any:
        return json.loads((data / paths[version][kind] / f"{kind}.json").read_text())

    names = {item["id"]: item["name"] for item in content("items")}
    raw: dict[str, set[tuple[int, Ingredients]]] = defaultdict(set)
    for way in (way for ways in content("recipes").values() for way in ways):
        cells = (
            way["ingredients"]
            if "ingredients" in way
            else [cell for row in way["inShape"] for cell in row if cell is not None]
        )
        ingredients = Counter(names[cell] for cell in cells)
        raw[names[way["result"]["id"]]].add(
            (way["result"]["count"], tuple(sorted(ingredients.items())))
        )
    return {item: frozenset(ways) for item, ways in raw.items()}


def _is_supported(version: str) -> bool:
    """Releases from 1.13 on: before that, one id stood for several items."""
    release = re.fullmatch(r"1\.(\d+)(\.\d+)?", version)
    return release is not None and int(release[1]) >= 13


def _without_cycles(raw: Raw) -> Raw:
    """Each item either fetched or made, and all that is made reachable from what is fetched.

    Where items can only be made from each other (iron ingot, block and nugget), the one that most
    things are made of is fetched. Of the cycles that remain, which have a way in, the recipes that
    lead back go.
    """
    uses = Counter(
        item
        for ways in raw.values()
        for item in {item for _, ingredients in ways for item, _ in ingredients}
    )
    while stuck := sorted(raw.keys() - _depths(raw).keys()):
        made_of = _made_of(raw)
        fetched = min(
            (item for item in stuck if item in made_of[item]), key=lambda item: (-uses[item], item)
        )
        raw = {item: ways for item, ways in raw.items() if item != fetched}
    depth, made_of = _depths(raw), _made_of(raw)

    def leads_back(item: str, ingredients: Ingredients) -> bool:
        return any(
            item in made_of.get(part, ()) and depth[part] >= depth[item] for part, _ in ingredients
        )

    return {
        item: frozenset(way for way in ways if not leads_back(item, way[1]))
        for item, ways in raw.items()
    }


def _depths(raw: Raw) -> dict[str, int]:
    """Of each item that can be had: 0 where nothing makes it, otherwise one more than the
    shallowest recipe needs.
    """
    parts = {part for ways in raw.values() for _, ingredients in ways for part, _ in ingredients}
    depth = {part: 0 for part in parts if part not in raw}
    for level in count_from(1):
        within_reach = [
            item
            for item, ways in raw.items()
            if item not in depth
            and any(all(part in depth for part, _ in ingredients) for _, ingredients in ways)
        ]
        if not within_reach:
            break
        depth |= dict.fromkeys(within_reach, level)
    return depth


def _made_of(raw: Raw) -> dict[str, set[str]]:
    """All that an item can be made of, directly or not. An item in its own set is on a cycle."""
    made_of = {
        item: {part for _, ingredients in ways for part, _ in ingredients}
        for item, ways in raw.items()
    }
    grown = True
    while grown:
        grown = False
        for parts in made_of.values():
            more = set().union(*(made_of[part] for part in parts if part in made_of)) - parts
            parts |= more
            grown = grown or bool(more)
    return made_of


def _merge(item: str, ways: Iterable[tuple[int, Ingredients]]) -> tuple[Recipe, ...]:
    """Recipes that differ in one ingredient become one recipe with a set: tags such as "any planks"
    arrive expanded.
    """
    merged: list[Recipe] = []
    variants = {
        (count, frozenset(Slot((part,), amount) for part, amount in ingredients))
        for count, ingredients in ways
    }
    while variants:
        families: dict[tuple[int, frozenset[Slot], int], set[Slot]] = defaultdict(set)
        for count, slots in variants:
            for slot in slots:
                families[count, slots - {slot}, slot.amount].add(slot)
        (count, rest, amount), alike = max(
            families.items(),
            key=lambda family: (len(family[1]), sorted(family[0][1]), sorted(family[1])),
        )
        if len(alike) == 1:
            merged += [Recipe(item, count, tuple(sorted(slots))) for count, slots in variants]
            break
        variants -= {(count, rest | {slot}) for slot in alike}
        variants.add(
            (
                count,
                rest | {Slot(tuple(sorted(part for slot in alike for part in slot.items)), amount)},
            )
        )
    return tuple(sorted(merged))


def _name_of(items: tuple[str, ...]) -> str | None:
    """What a large set is called; None where it is spelled out."""
    last_words = {item.rpartition("_")[2] for item in items}
    return next(
        (
            name
            for name, words in _SET_NAMES.items()
            if len(items) >= _LARGE_SET and last_words <= words
        ),
        None,
    )


def _in_words(name: str, items: tuple[str, ...], known: Iterable[str]) -> str:
    """The items of a large set; by how their names end where that says it all, for there are 32
    logs.
    """
    endings = sorted({item.rpartition("_")[2] for item in items})
    if items == tuple(item for item in known if item.rpartition("_")[2] in endings):
        return f"any item whose name ends in {' or '.join(endings)}"
    return f"any of {', '.join(map(spoken, items))}"


def _aliases(items: Iterable[str]) -> dict[str, str]:
    """Items by name, plural and singular.

    A name wins over another item's plural: bricks are not two of brick.
    """
    aliases = {spoken(item): item for item in items}
    for name, item in list(aliases.items()):
        for other in (
            f"{name}s",
            f"{name}es",
            f"{name[:-1]}ies" if name.endswith("y") else name,
            name.removesuffix("s"),
        ):
            aliases.setdefault(other, item)
    return aliases
