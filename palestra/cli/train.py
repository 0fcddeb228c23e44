"""`palestra train`: train a recipe, or resume a run."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from palestra.cli.command import check_run_folder, find_modules_here
from palestra.cli.settings import complete_recipe, complete_run, print_settings
from palestra.core.errors import ConfigError, UserError

Recipe = Annotated[
    Path | None,
    typer.Argument(
        help="a TOML file; any setting can follow as a dotted flag, e.g. --optim.lr 1e-6",
        autocompletion=complete_recipe,
    ),
]
Resume = Annotated[
    Path | None,
    typer.Option(
        metavar="RUN",
        help="resume this run from its newest checkpoint",
        autocompletion=complete_run,
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="the run folder (default: runs/<recipe>-<time>)"),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="print the resolved run and stop")]
AsJson = Annotated[bool, typer.Option("--json", help="print the final result as JSON")]
ShowHelp = Annotated[
    bool, typer.Option("-h", "--help", help="show this and all settings of the recipe")
]


def train(
    ctx: typer.Context,
    recipe: Recipe = None,
    resume: Resume = None,
    out: Out = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    show_help: ShowHelp = False,
) -> None:
    """Train a recipe, or resume a run."""
    from palestra.config import config as configs

    if show_help:
        config = configs.load(recipe, ctx.obj) if recipe else configs.Config()
        typer.echo(ctx.get_help())
        print(f"\nSettings: flag, type, default{f' ({recipe})' if recipe else ''} and meaning")
        return print_settings(config)
    source = recipe or (resume and resume / "config.toml")
    if source is None or (recipe and resume):
        raise UserError(
            "train: expected a recipe, or --resume with a run folder (see: palestra train --help)"
        )
    if resume is not None:
        check_run_folder(resume)
        if out is not None:
            raise ConfigError(f"--out {out}: a resumed run stays in its folder")
    if not dry_run:
        find_modules_here()
    run = None
    if resume is not None and not dry_run:
        from palestra.runs.run import Run

        run = Run.open(resume, ctx.obj)
        config = run.config
    else:
        config = configs.load(source, ctx.obj, imports=not dry_run)

    from palestra.launch import launch
    from palestra.launch.worker import WorkerSpec
    from palestra.runs.run import Run
    from palestra.training.checkpointing import check_changes
    from palestra.training.preflight import check_here, preflight

    if dry_run:
        check_here(config)
        print(configs.dump(config), end="")
        return
    with ExitStack() as held:
        if run is not None:
            held.enter_context(run.locked())
            check_changes(run)
        prepared = preflight(config)
        if run is None:
            name = f"{source.stem}-{time.strftime('%Y%m%d-%H%M%S')}"
            run = Run.create(out or Path("runs") / name, config)
        overrides = ctx.obj if resume else {}
        launch(run, WorkerSpec(str(run.folder.resolve()), overrides, as_json=as_json), prepared)
