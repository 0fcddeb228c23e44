"""Minecraft's recipes as a graph without cycles: which items are fetched, and how to craft the
rest.
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
from itertools import chain, permutations
from itertools import count as count_from
from typing import Any

Ingredients = tuple[tuple[str, int], ...]
"""(item, amount), sorted."""
Raw = Mapping[str, frozenset[tuple[int, Ingredients]]]
"""By item: its recipes as (output count, ingredients), before recipes are merged into sets."""

_LARGE_SET = 5
"""A set of at least this many items has a name; a smaller one is written as "charcoal or coal"."""
_SET_NAMES = {
    "logs": {"log", "wood", "stem", "hyphae"},
    "planks": {"planks"},
    "wooden slabs": {"slab"},
    "wool": {"wool"},
}
"""The name of a large set, by the last words of its items."""


@dataclass(frozen=True, slots=True, order=True)
class Slot:
    """One ingredient: `amount` of any of these items."""

    items: tuple[str, ...]
    amount: int


@dataclass(frozen=True, slots=True, order=True)
class Recipe:
    item: str
    count: int
    """How many of the item one execution makes."""
    slots: tuple[Slot, ...]
    """Disjoint: no item is in two slots."""

    @property
    def mentions(self) -> frozenset[str]:
        """The item and all possible ingredients."""
        return frozenset({self.item}.union(*(slot.items for slot in self.slots)))


@dataclass(frozen=True, slots=True)
class Choice:
    """A recipe with one item chosen for each slot."""

    recipe: Recipe
    items: tuple[str, ...]

    @property
    def command(self) -> str:
        ingredients = (
            (item, slot.amount) for item, slot in zip(self.items, self.recipe.slots, strict=True)
        )
        return craft_command(self.recipe.item, self.recipe.count, ingredients)


Plan = dict[str, Choice | None]
"""All items needed for a goal, ingredients before results. None: the item is fetched."""


@dataclass(frozen=True, slots=True)
class Tree:
    """All recipes of one Minecraft version. Built once per process and immutable."""

    recipes: Mapping[str, tuple[Recipe, ...]]
    """By item, sorted. These items are the goals."""
    depth: Mapping[str, int]
    """Crafting levels above fetched items, by the shallowest recipe. 0: the item is fetched."""
    touching: Mapping[str, tuple[Recipe, ...]]
    """By item: the recipes that make or use it."""
    sets: Mapping[str, tuple[str, ...]]
    """The named sets."""
    set_names: Mapping[tuple[str, ...], str]
    """The inverse of `sets`."""
    members: Mapping[str, str]
    """By name of a set: its items, as text."""
    aliases: Mapping[str, str]
    """From spellings in lower case, with spaces, to items."""

    def plan(self, goal: str) -> Plan:
        """How to make `goal` from an empty inventory in few turns; `goal` comes last.

        Ties are broken at random, seeded with the goal's name.
        """
        rng = random.Random(goal)
        plans: list[Plan] = []
        for recipe in self.recipes[goal]:
            fetched = [slot for slot in recipe.slots if self._is_fetched(slot)]
            made = [slot for slot in recipe.slots if slot not in fetched]
            # Every order is tried, because a later slot can reuse what an earlier one is made from.
            for order in permutations(made):
                plans.append(self._fill({}, recipe, [*order, *fetched], rng))
        return min(plans, key=len)

    def _is_fetched(self, slot: Slot) -> bool:
        return all(self.depth[item] == 0 for item in slot.items)

    def _fill(self, plan: Plan, recipe: Recipe, order: Iterable[Slot], rng: random.Random) -> Plan:
        """Extend `plan` with what `recipe` needs, filling its slots in `order`."""
        chosen: dict[Slot, str] = {}
        for slot in order:
            shallowest = min(self.depth[item] for item in slot.items)
            options = [
                item for item in slot.items if item in plan or self.depth[item] == shallowest
            ]
            shuffled = rng.sample(options, len(options))
            ways = [(item, self._extend(plan, item, rng)) for item in shuffled]
            chosen[slot], plan = min(ways, key=lambda way: len(way[1]))
        items = tuple(chosen[slot] for slot in recipe.slots)
        return {**plan, recipe.item: Choice(recipe, items)}

    def _extend(self, plan: Plan, item: str, rng: random.Random) -> Plan:
        """Extend `plan` with what `item` needs, as little as possible."""
        if item in plan:
            return plan
        if item not in self.recipes:
            return {**plan, item: None}
        return min(
            (self._fill(plan, recipe, recipe.slots, rng) for recipe in self.recipes[item]), key=len
        )

    def describe(self, recipe: Recipe) -> str:
        """The command for a recipe, with named sets: `craft 1 chest using 8 planks`."""
        ingredients = [(self.set_name(slot.items), slot.amount) for slot in recipe.slots]
        return craft_command(recipe.item, recipe.count, ingredients)

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

    Deterministic across machines.
    """
    raw = _without_cycles(_read(version))
    recipes = {item: _merge(item, raw[item]) for item in sorted(raw)}
    touching: dict[str, list[Recipe]] = defaultdict(list)
    named: dict[str, set[tuple[str, ...]]] = defaultdict(set)
    for recipe in chain.from_iterable(recipes.values()):
        for item in recipe.mentions:
            touching[item].append(recipe)
        for slot in recipe.slots:
            if (name := _name_of(slot.items)) is not None:
                named[name].add(slot.items)
    depth = _depths(raw)
    # If two sets match one name, the larger set gets it and the other is spelled out.
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
    """All crafting recipes of a version, without their shapes and without returned items (such as a
    cake's buckets).
    """
    try:
        data = files("minecraft_data") / "data" / "data"
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "textcraft takes its recipes from a package that is not installed: pip install "
            "'palestra[textcraft]'"
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
    for way in chain.from_iterable(content("recipes").values()):
        if "ingredients" in way:
            cells = way["ingredients"]
        else:
            cells = [cell for cell in chain.from_iterable(way["inShape"]) if cell is not None]
        ingredients = Counter(names[cell] for cell in cells)
        result = way["result"]
        raw[names[result["id"]]].add((result["count"], tuple(sorted(ingredients.items()))))
    return {item: frozenset(ways) for item, ways in raw.items()}


def _is_supported(version: str) -> bool:
    """Whether this is release 1.13 or later. Earlier, one id stood for several items."""
    release = re.fullmatch(r"1\.(\d+)(\.\d+)?", version)
    return release is not None and int(release[1]) >= 13


def _without_cycles(raw: Raw) -> Raw:
    """Remove recipes until each item is either fetched or craftable from fetched items.

    If items can only be made from each other (iron ingot, block and nugget), the one that most
    items use is fetched. Of the remaining cycles, the recipes that lead back are removed.
    """
    uses: Counter[str] = Counter()
    for ways in raw.values():
        uses.update(_parts(ways))
    # An item without a depth cannot be made from fetched items: it is on a cycle without a way in,
    # or depends on one.
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

    acyclic: dict[str, frozenset[tuple[int, Ingredients]]] = {}
    for item, ways in raw.items():
        acyclic[item] = frozenset(way for way in ways if not leads_back(item, way[1]))
    return acyclic


def _parts(ways: Iterable[tuple[int, Ingredients]]) -> set[str]:
    """The items that any of these recipes uses."""
    parts: set[str] = set()
    for _, ingredients in ways:
        parts.update(part for part, _ in ingredients)
    return parts


def _depths(raw: Raw) -> dict[str, int]:
    """The depth of each obtainable item: 0 if nothing makes it, otherwise one more than the deepest
    ingredient of its shallowest recipe.
    """

    def is_within_reach(ways: Iterable[tuple[int, Ingredients]]) -> bool:
        return any(_parts([way]) <= depth.keys() for way in ways)

    depth: dict[str, int] = {}
    for ways in raw.values():
        depth |= {part: 0 for part in _parts(ways) if part not in raw}
    for level in count_from(1):
        reached = [
            item for item, ways in raw.items() if item not in depth and is_within_reach(ways)
        ]
        if not reached:
            break
        depth |= dict.fromkeys(reached, level)
    return depth


def _made_of(raw: Raw) -> dict[str, set[str]]:
    """All direct and indirect ingredients of each item. An item in its own set is on a cycle."""
    made_of = {item: _parts(ways) for item, ways in raw.items()}
    # Transitive closure, by iteration to a fixed point.
    grown = True
    while grown:
        grown = False
        for parts in made_of.values():
            more = set().union(*(made_of[part] for part in parts if part in made_of)) - parts
            parts |= more
            grown = grown or bool(more)
    return made_of


def _merge(item: str, ways: Iterable[tuple[int, Ingredients]]) -> tuple[Recipe, ...]:
    """Merge recipes that differ in one ingredient into one recipe with a set.

    The data lists a tag such as "any planks" as one recipe per item.
    """
    merged: list[Recipe] = []
    variants: set[tuple[int, frozenset[Slot]]] = set()
    for count, ingredients in ways:
        variants.add((count, frozenset(Slot((part,), amount) for part, amount in ingredients)))
    while variants:
        # By everything but one slot: the slots that occur in that place. The largest family is
        # merged first.
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
        items = sorted(chain.from_iterable(slot.items for slot in alike))
        variants.add((count, rest | {Slot(tuple(items), amount)}))
    return tuple(sorted(merged))


def _name_of(items: tuple[str, ...]) -> str | None:
    """The name of a set, or None if it is spelled out."""
    if len(items) < _LARGE_SET:
        return None
    last_words = {item.rpartition("_")[2] for item in items}
    return next((name for name, words in _SET_NAMES.items() if last_words <= words), None)


def _in_words(name: str, items: tuple[str, ...], known: Iterable[str]) -> str:
    """The items of a named set as text, described by their last word if that is exact: there are 32
    logs.
    """
    endings = sorted({item.rpartition("_")[2] for item in items})
    if items == tuple(item for item in known if item.rpartition("_")[2] in endings):
        return f"any item whose name ends in {' or '.join(endings)}"
    return f"any of {', '.join(map(spoken, items))}"


def _aliases(items: Iterable[str]) -> dict[str, str]:
    """Items by name, plural and singular.

    A name takes precedence over another item's plural: "bricks" is an item, not two of "brick".
    """
    aliases = {spoken(item): item for item in items}
    for name, item in list(aliases.items()):
        others = [f"{name}s", f"{name}es", name.removesuffix("s")]
        if name.endswith("y"):
            others.append(f"{name[:-1]}ies")
        for other in others:
            aliases.setdefault(other, item)
    return aliases
