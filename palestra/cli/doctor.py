"""`palestra doctor`: whether a run is right, and whether it fits."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer

from palestra.cli.command import Json, find_modules_here
from palestra.cli.settings import complete_recipe
from palestra.core.printing import print_json

QUICKSTART = "quickstart"


def doctor(
    ctx: typer.Context,
    recipe: Annotated[
        Path | None,
        typer.Argument(
            help=f"a TOML file, or a recipe's name (default: {QUICKSTART}); settings can follow",
            autocompletion=complete_recipe,
        ),
    ] = None,
    fit: Annotated[
        bool,
        typer.Option("--fit", help="search the largest optim.microbatch_tokens and engine.slots"),
    ] = False,
    as_json: Json = False,
) -> None:
    """Prove that a run is right and fits, before hours are spent on it."""
    from palestra.config import config as configs

    logging.getLogger("palestra").addHandler(logging.NullHandler())  # the results are enough
    find_modules_here()
    config = configs.load(recipe or QUICKSTART, ctx.obj, imports=True)

    from palestra.training.preflight import preflight

    prepared = preflight(config)

    from palestra.tools.doctor.checks import run_checks

    results = []
    for result in run_checks(config, prepared, folder=Path("runs"), fit=fit):
        results.append(result)
        if not as_json:
            verdict = "ok" if result.ok else "FAILED"
            print(f"{verdict:<8}{result.name:<40}{result.detail}", flush=True)
    if as_json:
        print_json(results)
    if not all(result.ok for result in results):
        raise SystemExit(1)
