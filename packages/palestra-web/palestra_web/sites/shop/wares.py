"""The shop's departments and kinds of goods, with their descriptions, from `wares.json`. All brands
are invented.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Kind:
    """A category of the shop. Its products are sampled from these lists."""

    name: str
    nouns: tuple[str, ...]
    sizes: tuple[str, ...]
    """The endings of titles, from small to large and from cheap to expensive."""
    price: tuple[int, int]
    grams: tuple[int, int]
    materials: tuple[str, ...]
    features: tuple[str, ...]
    """Sentences of a description."""
    praise: tuple[str, ...]
    """What reviewers like: sentences."""
    complaints: tuple[str, ...]


@dataclass(frozen=True)
class Department:
    name: str
    about: str
    brands: tuple[str, ...]
    lines: tuple[str, ...]
    """Names of series: with a brand, one product each."""
    kinds: tuple[Kind, ...]


COLORS = (
    "black",
    "white",
    "slate grey",
    "forest green",
    "navy blue",
    "sand",
    "rust red",
    "teal",
    "mustard yellow",
    "plum",
)

PER_KIND = 13


def _kind(read: dict[str, Any]) -> Kind:
    fields: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in read.items()
    }
    return Kind(**fields)


def _department(read: dict[str, Any]) -> Department:
    kinds = tuple(_kind(kind) for kind in read["kinds"])
    return Department(
        read["name"], read["about"], tuple(read["brands"]), tuple(read["lines"]), kinds
    )


DEPARTMENTS = tuple(
    _department(read) for read in json.loads((Path(__file__).parent / "wares.json").read_text())
)
