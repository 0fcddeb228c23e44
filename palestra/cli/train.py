"""`palestra train`: train a recipe, or resume a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from palestra.cli.command import check_run_folder, find_modules_here
from palestra.cli.settings import complete_recipe, complete_run, print_settings
from palestra.core.errors import ConfigError, UserError
from palestra.core.extras import MissingPackage, require
from palestra.core.printing import warn

if TYPE_CHECKING:
    from palestra.config.config import Config

Recipe = Annotated[
    str | None,
    typer.Argument(
        help="a TOML file, the name of a shipped recipe (palestra recipes), or an environment, "
        "such as my_module:MyEnv; any setting can follow as a flag, e.g. --optim.lr 1e-6",
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
        of_recipe = f" ({Path(recipe).stem})" if recipe else ""
        print(f"\nSettings: flag, type, default{of_recipe} and meaning")
        return print_settings(config)
    source = str(resume / "config.toml") if resume is not None else recipe
    if source is None or (recipe is not None and resume is not None):
        raise UserError(
            "train: expected a recipe, or --resume with a run folder (see: palestra train --help)"
        )
    if resume is not None:
        check_run_folder(resume)
        if out is not None:
            raise ConfigError(f"--out {out}: a resumed run stays in its folder")
    if dry_run:
        config = configs.load(source, ctx.obj)
        _check_here(config)
        configs.warn_of_dropped(config)
        print(configs.dump(config), end="")
        return
    # Before environments are asked for: the extra train brings BabyAI, too.
    require("palestra train", "torch")
    find_modules_here()
    display = "json" if as_json else "auto"
    if resume is not None:
        from palestra.api.train import resume_run

        return resume_run(resume, ctx.obj, display=display, owns_process=True)
    if resume is None and configs.is_environment(source):
        from palestra.api.train import train_env

        settings = dict(ctx.obj)
        tables = {"env": {"name": source}}
        train_env(tables, settings, out=out, display=display, owns_process=True)
        return None
    config = configs.load(source, ctx.obj, imports=True)

    from palestra.api.train import default_folder, train_config

    folder = out or default_folder(Path(source).stem)
    train_config(config, folder, display=display, owns_process=True)


def _check_here(config: Config) -> None:
    """What can be found wrong with a run on this machine, where it has what training needs."""
    from palestra.training.preflight import check_gpus, check_here

    check_here(config)
    try:
        require("checking the device", "torch")
    except MissingPackage as missing:
        return warn(f"not checked: {missing}")
    check_gpus(config)
    return None
