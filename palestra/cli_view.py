"""`palestra view ...`: look at runs in a browser, or write what there is to see into a folder."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from palestra.addresses import is_loopback
from palestra.printing import fail

TOKEN_VARIABLE = "PALESTRA_VIEW_TOKEN"  # noqa: S105  the name of a variable
PORT = 8200
EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104  to recognise it


def add_view(commands: Any) -> None:
    view = commands.add_parser("view", help="look at runs in a browser, also while they train", allow_abbrev=False)
    view.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folders, or folders of run folders")
    view.add_argument("--port", type=int, default=PORT, help="0 takes a free one")
    view.add_argument("--host", default="127.0.0.1", help="any other than loopback needs a token")
    view.add_argument("--token-env", metavar="VAR", help=f"the variable with the tokens (default: {TOKEN_VARIABLE})")
    view.add_argument("--allow-host", action="append", default=[], metavar="NAME", help="a further name that this server is called by")
    view.add_argument("--no-open", action="store_true", help="only print the address")
    view.set_defaults(run=run_view, takes_settings=False)


def run_view(known: argparse.Namespace, settings: dict[str, Any]) -> None:
    folders = run_folders(known.runs)
    _serve(known, folders)


def run_folders(paths: list[Path]) -> list[Path]:
    """Each path that is a run, and all runs in those that are not; each once."""
    found: dict[Path, Path] = {}
    for path in paths:
        if not path.is_dir():
            fail(f"{path}: there is no such folder")
        runs = [path] if (path / "config.toml").is_file() else sorted(child.parent for child in path.glob("*/config.toml"))
        if not runs:
            fail(f"{path}: there is no run in this folder (no config.toml), nor in the folders in it")
        found |= {run.resolve(): run for run in runs}
    return list(found.values())


def _serve(known: argparse.Namespace, folders: list[Path]) -> None:
    import asyncio
    import os
    import webbrowser

    from palestra.view.answers import Answers
    from palestra.view.server import make_app, serve

    variable = known.token_env or TOKEN_VARIABLE
    tokens = tuple(os.environ.get(variable, "").replace(",", " ").split())
    if not tokens and (known.token_env or not is_loopback(known.host)):
        fail(f"--host {known.host}: needs a token, and the variable {variable} has none")
    app = make_app(Answers(folders), tokens=tokens, hosts=(known.host, *known.allow_host))

    def ready(port: int) -> None:
        name = "127.0.0.1" if known.host in EVERYWHERE else known.host
        url = f"http://{f'[{name}]' if ':' in name else name}:{port}/"
        print(f"{len(folders)} run{'s' if len(folders) > 1 else ''} at {url}" + (f"?token=${variable}" if tokens else ""), flush=True)
        if not known.no_open:
            webbrowser.open(url + (f"?token={tokens[0]}" if tokens else ""))

    try:
        asyncio.run(serve(app, known.host, known.port, ready))
    except OSError as error:
        fail(f"--port {known.port}: {error.strerror or error}")
