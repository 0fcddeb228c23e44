"""What `palestra view` and `palestra play` share: the viewer's server and its flags."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from palestra.cli.command import check_run_format
from palestra.core import early_interrupt
from palestra.core.addresses import tokens_for
from palestra.core.errors import UserError
from palestra.core.printing import warn
from palestra.core.untrusted import terminal_safe

if TYPE_CHECKING:
    from aiohttp.web import Application

TOKEN_VARIABLE = "PALESTRA_VIEW_TOKEN"  # noqa: S105  the name of a variable
PORT = 8200
EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104  recognized, never a default

Port = Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one")]
Host = Annotated[str, typer.Option(help="any other than loopback needs a token")]
TokenEnv = Annotated[
    str | None,
    typer.Option(metavar="VAR", help=f"the variable with the tokens (default: {TOKEN_VARIABLE})"),
]
AllowHost = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="a further name that this server is called by"),
]
NoOpen = Annotated[bool, typer.Option("--no-open", help="only print the address")]


class Address(NamedTuple):
    """Where the viewer listens, and which requests it admits."""

    host: str
    port: int
    token_env: str | None
    allow_host: list[str] | None
    no_open: bool


def check_runs(paths: list[Path]) -> None:
    """Raise UserError for a path without a run; name links, which are not followed."""
    from palestra.runs.reader import is_run, linked_runs, runs_in

    for path in paths:
        for link in linked_runs(path):
            warn(
                f"{link}: a link is not followed; name it on the command line to see what "
                "it leads to"
            )
        if not path.is_dir():
            raise UserError(f"{terminal_safe(str(path))}: there is no such folder")
        if not runs_in(path):
            raise UserError(
                f"{terminal_safe(str(path))}: there is no run in this folder (no "
                "config.toml), nor in the folders in it"
            )
        if is_run(path):
            check_run_format(path)


def serve_viewer(
    address: Address, runs: list[Path], *, play: Callable[[Application], None] | None = None
) -> None:
    """Serve the viewer's page until Ctrl-C; `play` adds the routes to play on."""
    import asyncio
    import threading
    import webbrowser
    from urllib.parse import quote

    from palestra.view.answers import Answers
    from palestra.view.server import make_app, serve

    host, variable = address.host, address.token_env or TOKEN_VARIABLE
    try:
        tokens = tokens_for(host, variable, is_asked_for=address.token_env is not None)
    except ValueError as error:
        raise UserError(str(error)) from None
    answers = Answers(runs, can_play=play is not None)
    count = len(answers.ids)
    app = make_app(answers, play=play, tokens=tokens, hosts=(host, *(address.allow_host or ())))

    def ready(port: int) -> None:
        name = "127.0.0.1" if host in EVERYWHERE else host
        if ":" in name:  # IPv6
            name = f"[{name}]"
        what, fragment = ("1 run" if count == 1 else f"{count} runs"), ""
        if play is not None:
            what, fragment = "play", "#/play"
        url = f"http://{name}:{port}/"
        # Printed with the variable's name: the token itself must not end up in a terminal's log.
        query = f"?token=${variable}" if tokens else ""
        print(f"{what} at {url}{query}{fragment}", flush=True)
        if not address.no_open:
            query = f"?token={quote(tokens[0])}" if tokens else ""
            # In a thread: some browsers block the caller.
            opened = (f"{url}{query}{fragment}",)
            threading.Thread(target=webbrowser.open, args=opened, daemon=True).start()

    try:
        early_interrupt.leave_to_python()
        asyncio.run(serve(app, host, address.port, ready))
    except (OSError, OverflowError) as error:
        raise UserError(f"--host {host} --port {address.port}: {error}") from None
