"""`palestra play`: play an environment in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from palestra.cli.command import find_modules_here
from palestra.cli.settings import complete_run
from palestra.cli.viewer import (
    PORT,
    Address,
    AllowHost,
    Host,
    NoOpen,
    Port,
    TokenEnv,
    check_runs,
    serve_viewer,
)
from palestra.core.errors import UserError
from palestra.core.extras import require


def play(
    ctx: typer.Context,
    env: Annotated[
        str | None,
        typer.Argument(
            help="options can follow, e.g. --max_turns 30 (default: the environments of --run)"
        ),
    ] = None,
    run_folder: Annotated[
        Path | None,
        typer.Option(
            "--run",
            metavar="RUN",
            help="its newest checkpoint can be asked for a reply",
            autocompletion=complete_run,
        ),
    ] = None,
    port: Port = PORT,
    host: Host = "127.0.0.1",
    token_env: TokenEnv = None,
    allow_host: AllowHost = None,
    no_open: NoOpen = False,
) -> None:
    """Be the agent in a browser, also alongside a trained one."""
    if env is None and ctx.obj:
        raise UserError(
            f"--{next(iter(ctx.obj))}: there is no such flag; options of an environment "
            "need its name (see: palestra play --help)"
        )
    if env is None and run_folder is None:
        raise UserError(
            "play: expected an environment, or --run with a run folder (see: palestra play --help)"
        )
    find_modules_here()
    if run_folder is not None:
        check_runs([run_folder])
        require("play --run", "torch")
        require("play --run", "transformers")
        if not any(run_folder.glob("checkpoints/step-*")):
            raise UserError(f"{run_folder}: the run has no checkpoint yet")

    from palestra.envs.serving.catalogue import Served
    from palestra.runs.reader import RunFolder, environments
    from palestra.view.agent import RunAgent
    from palestra.view.play import DEADLINE_S, Games, add_play_routes

    chosen = []
    if env is not None:
        chosen = [Served(env, ctx.obj, "process", DEADLINE_S)]
    elif run_folder is not None:
        _, tree, _ = RunFolder(run_folder).config()
        for own in environments(tree):
            sandbox = own.sandbox or "none"
            served = Served(
                own.name,
                own.options,
                "process",
                DEADLINE_S,
                sandbox=sandbox,
                sandbox_read=own.sandbox_read,
            )
            chosen.append(served)
    try:
        games = Games(chosen, RunAgent(run_folder) if run_folder else None)
    except ValueError as error:
        raise UserError(str(error)) from None
    serve_viewer(
        Address(host, port, token_env, allow_host, no_open),
        [run_folder] if run_folder else [],
        play=lambda app: add_play_routes(app, games),
    )
