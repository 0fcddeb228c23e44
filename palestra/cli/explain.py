"""`palestra explain`: what a recipe optimizes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from palestra.cli.settings import complete_recipe


def explain(
    ctx: typer.Context,
    recipe: Annotated[
        Path,
        typer.Argument(help="a TOML file; settings can follow", autocompletion=complete_recipe),
    ],
) -> None:
    """Print what a recipe optimizes, with the numbers filled in."""
    from palestra.config import config as configs

    config = configs.load(recipe, ctx.obj)
    configs.warn_of_dropped(config)

    from palestra.runs.explain import explain as explained

    print(explained(config))
