"""`palestra view`: look at runs in a browser, or write what there is to see into a folder."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

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
from palestra.core.untrusted import terminal_safe


def view(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN",
            help="run folders, or folders of run folders",
            autocompletion=complete_run,
        ),
    ],
    port: Port = PORT,
    host: Host = "127.0.0.1",
    token_env: TokenEnv = None,
    allow_host: AllowHost = None,
    no_open: NoOpen = False,
    bundle: Annotated[
        Path | None,
        typer.Option(
            metavar="OUT",
            help="write the page and its data into this folder, to be hosted anywhere",
        ),
    ] = None,
    episodes: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="with --bundle: the newest N of training and of evaluations of a run",
        ),
    ] = None,
) -> None:
    """Look at runs in a browser, also while they train."""
    check_runs(runs)
    if episodes is not None and bundle is None:
        raise UserError(f"--episodes {episodes}: means something only with --bundle")
    if episodes is not None and episodes < 1:
        raise UserError(f"--episodes {episodes}: expected a positive number")
    if bundle is None:
        serve_viewer(Address(host, port, token_env, allow_host, no_open), runs)
    else:
        _bundle(runs, bundle, episodes)


def _bundle(runs: list[Path], out: Path, episodes: int | None) -> None:
    from palestra.view.answers import Answers
    from palestra.view.bundle import BundleError, write_bundle

    def written(folder: Path, episodes: int) -> None:
        print(f"{terminal_safe(str(folder))}: {episodes:,} episodes", flush=True)

    try:
        with closing(Answers(runs, live=False)) as answers:
            write_bundle(answers, out, episodes=episodes, on_run=written)
    except BundleError as error:
        raise UserError(str(error)) from None
    print(f"look at it by: python -m http.server --bind 127.0.0.1 --directory {out}")
