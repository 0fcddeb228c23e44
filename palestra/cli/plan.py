"""`palestra plan`: the memory and time of a recipe on a number of GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from palestra.cli.command import Json
from palestra.cli.settings import complete_recipe
from palestra.core.errors import UserError
from palestra.core.printing import print_json


def plan(
    ctx: typer.Context,
    recipe: Annotated[
        Path,
        typer.Argument(
            help="a TOML file; settings can follow, such as --model Qwen/Qwen2.5-7B-Instruct",
            autocompletion=complete_recipe,
        ),
    ],
    gpus: Annotated[int, typer.Option(metavar="N", help="GPUs of the cluster")] = 8,
    gpu: Annotated[Literal["h100", "h200"], typer.Option(help="their kind")] = "h200",
    link: Annotated[
        Literal["infiniband", "ethernet"], typer.Option(help="between hosts")
    ] = "infiniband",
    reply: Annotated[
        float | None,
        typer.Option(
            metavar="TOKENS",
            help="mean tokens of a reply (default: a quarter of agent.reply_tokens)",
        ),
    ] = None,
    episode: Annotated[
        float | None,
        typer.Option(
            metavar="TOKENS",
            help="mean tokens of an episode (default: a third of agent.context_tokens)",
        ),
    ] = None,
    env_seconds: Annotated[
        float, typer.Option(metavar="S", help="time that the environment takes for an answer")
    ] = 0.0,
    as_json: Json = False,
) -> None:
    """Estimate the memory and time of a recipe on a number of GPUs, and suggest a layout."""
    from palestra.config import config as configs

    for flag, value in (("gpus", gpus), ("reply", reply), ("episode", episode)):
        if value is not None and value <= 0:
            raise UserError(f"--{flag} {value:g}: expected a positive number")
    config = configs.load(recipe, ctx.obj)
    config.refuse_unresolved("plan")

    from palestra.tools.plan.layouts import best
    from palestra.tools.plan.show import as_tree, job_of, text, work_of

    work = work_of(config, reply=reply, episode=episode, env_s=env_seconds)
    found = best(job_of(config, work, gpu=gpu, gpus=gpus, link=link))
    configs.warn_of_dropped(config)
    if as_json:
        print_json(as_tree(found))
    else:
        print(text(found))
    if not found.fits:
        raise SystemExit(1)
