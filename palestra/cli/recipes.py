"""`palestra recipes`: the recipes that are shipped."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from palestra.cli.command import Json


def recipes(
    name: Annotated[str | None, typer.Argument(help="print this recipe's file")] = None,
    show_all: Annotated[
        bool, typer.Option("--all", help="also those of the published results")
    ] = False,
    as_json: Json = False,
) -> None:
    """List the shipped recipes, or print one."""
    from palestra.config.config import find_recipe, shipped_recipes
    from palestra.core.printing import print_json, print_table
    from palestra.core.tables import Table

    if name is not None:
        return print(find_recipe(name).read_text(), end="")
    rows = []
    for known, path in shipped_recipes().items():
        if show_all or "/" not in known:
            rows.append((known, _summary(path)))
    if as_json:
        return print_json([{"name": known, "summary": summary} for known, summary in rows])
    print_table(Table(["recipe", "what it trains"], [list(row) for row in rows]))
    print("\npalestra train NAME    palestra recipes NAME    palestra train NAME --help")
    return None


def _summary(path: Path) -> str:
    """The first sentence of the comment that a recipe begins with."""
    comment = []
    for line in path.read_text().splitlines():
        if not line.startswith("#"):
            break
        comment.append(line.removeprefix("#").strip())
    text = " ".join(comment)
    end = text.find(". ")
    return text if end < 0 else text[: end + 1]
