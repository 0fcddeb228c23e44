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
    view.add_argument("--bundle", type=Path, metavar="OUT", help="write the page and its data into this folder, to be hosted anywhere")
    view.add_argument("--episodes", type=int, metavar="N", help="with --bundle: the newest N of training and of evaluations of a run")
    view.set_defaults(run=run_view, takes_settings=False)


def run_view(known: argparse.Namespace, settings: dict[str, Any]) -> None:
    from palestra.view.folder import runs_in

    for path in known.runs:
        if not path.is_dir():
            fail(f"{path}: there is no such folder")
        if not runs_in(path):
            fail(f"{path}: there is no run in this folder (no config.toml), nor in the folders in it")
    if known.episodes is not None and (known.bundle is None or known.episodes < 1):
        fail(f"--episodes {known.episodes}: " + ("expected a positive number" if known.bundle else "means something only with --bundle"))
    if known.bundle is None:
        _serve(known)
    else:
        _bundle(known)


def _serve(known: argparse.Namespace) -> None:
    import asyncio
    import os
    import threading
    import webbrowser
    from urllib.parse import quote

    from palestra.view.answers import Answers
    from palestra.view.server import make_app, serve

    variable = known.token_env or TOKEN_VARIABLE
    tokens = tuple(os.environ.get(variable, "").replace(",", " ").split())
    if not tokens and (known.token_env or not is_loopback(known.host)):
        fail(f"--host {known.host}: needs a token, and the variable {variable} has none")
    answers = Answers(known.runs)
    count = len(answers.ids)
    app = make_app(answers, tokens=tokens, hosts=(known.host, *known.allow_host))

    def ready(port: int) -> None:
        name = "127.0.0.1" if known.host in EVERYWHERE else known.host
        url = f"http://{f'[{name}]' if ':' in name else name}:{port}/"
        print(f"{count} run{'s' if count > 1 else ''} at {url}" + (f"?token=${variable}" if tokens else ""), flush=True)
        if not known.no_open:
            address = url + (f"?token={quote(tokens[0])}" if tokens else "")
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()  # some browsers keep the caller waiting

    try:
        asyncio.run(serve(app, known.host, known.port, ready))
    except (OSError, OverflowError) as error:
        fail(f"--host {known.host} --port {known.port}: {error}")


def _bundle(known: argparse.Namespace) -> None:
    from palestra.view.answers import Answers
    from palestra.view.bundle import BundleError, write_bundle

    def written(folder: Path, episodes: int) -> None:
        print(f"{folder}: {episodes:,} episodes", flush=True)

    try:
        write_bundle(Answers(known.runs, live=False), known.bundle, episodes=known.episodes, on_run=written)
    except BundleError as error:
        fail(str(error))
    print(f"look at it by: python -m http.server --bind 127.0.0.1 --directory {known.bundle}")
