"""`palestra view ...`: look at runs in a browser, or write what there is to see into a folder."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palestra.core import early_interrupt
from palestra.core.addresses import tokens_for
from palestra.core.untrusted import terminal_safe
from palestra.printing import fail, warn

if TYPE_CHECKING:
    from aiohttp.web import Application

TOKEN_VARIABLE = "PALESTRA_VIEW_TOKEN"  # noqa: S105  the name of a variable
PORT = 8200
EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104  to recognize it


def add_view(commands: Any) -> None:
    view = commands.add_parser(
        "view", help="look at runs in a browser, also while they train", allow_abbrev=False
    )
    view.add_argument(
        "runs", nargs="+", type=Path, metavar="RUN", help="run folders, or folders of run folders"
    )
    _add_door(view)
    view.add_argument(
        "--bundle",
        type=Path,
        metavar="OUT",
        help="write the page and its data into this folder, to be hosted anywhere",
    )
    view.add_argument(
        "--episodes",
        type=int,
        metavar="N",
        help="with --bundle: the newest N of training and of evaluations of a run",
    )
    view.set_defaults(run=run_view, takes_settings=False)


def add_play(commands: Any) -> None:
    play = commands.add_parser(
        "play", help="be the agent, in a browser; also beside a trained one", allow_abbrev=False
    )
    play.add_argument(
        "env",
        nargs="?",
        help="options can follow, e.g. --max_turns 30 (default: the environments of --run)",
    )
    play.add_argument(
        "--run",
        type=Path,
        dest="run_folder",
        metavar="RUN",
        help="its newest checkpoint can be asked for a reply",
    )
    _add_door(play)
    play.set_defaults(run=run_play, takes_settings=True)


def _add_door(command: argparse.ArgumentParser) -> None:
    command.add_argument("--port", type=int, default=PORT, help="0 takes a free one")
    command.add_argument(
        "--host", default="127.0.0.1", help="any other than loopback needs a token"
    )
    command.add_argument(
        "--token-env",
        metavar="VAR",
        help=f"the variable with the tokens (default: {TOKEN_VARIABLE})",
    )
    command.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a further name that this server is called by",
    )
    command.add_argument("--no-open", action="store_true", help="only print the address")


def run_play(known: argparse.Namespace, settings: dict[str, Any]) -> None:
    from palestra.envs.serving.catalogue import Served
    from palestra.runs.reader import RunFolder, environments
    from palestra.view.agent import RunAgent
    from palestra.view.play import DEADLINE_S, Games, add_play_routes

    run = known.run_folder
    if run is not None:
        _check_runs([run])
        if not any(run.glob("checkpoints/step-*")):
            fail(f"{run}: the run has no checkpoint yet")
    if known.env is not None:
        chosen = [Served(known.env, settings, "process", DEADLINE_S)]
    elif settings:
        fail(
            f"--{next(iter(settings))}: there is no such flag; options of an environment "
            "need its name (see: palestra play --help)"
        )
    elif run is None:
        fail(
            "play: expected an environment, or --run with a run folder (see: palestra play --help)"
        )
    else:
        own = environments(RunFolder(run).config()[1])
        chosen = [
            Served(
                e.name,
                e.options,
                "process",
                DEADLINE_S,
                sandbox=e.sandbox or "none",
                sandbox_read=e.sandbox_read,
            )
            for e in own
        ]
    try:
        games = Games(chosen, RunAgent(run) if run else None)
    except ValueError as error:
        fail(str(error))
    _serve(known, [run] if run else [], play=lambda app: add_play_routes(app, games))


def run_view(known: argparse.Namespace, settings: dict[str, Any]) -> None:
    _check_runs(known.runs)
    if known.episodes is not None and (known.bundle is None or known.episodes < 1):
        fail(
            f"--episodes {known.episodes}: "
            + (
                "expected a positive number"
                if known.bundle
                else "means something only with --bundle"
            )
        )
    if known.bundle is None:
        _serve(known, known.runs)
    else:
        _bundle(known)


def _check_runs(paths: list[Path]) -> None:
    from palestra.runs.reader import linked_runs, runs_in

    for path in paths:
        for link in linked_runs(path):
            warn(
                f"{link}: a link is not followed; name it on the command line to see what "
                "it leads to"
            )
        if not path.is_dir():
            fail(f"{terminal_safe(str(path))}: there is no such folder")
        if not runs_in(path):
            fail(
                f"{terminal_safe(str(path))}: there is no run in this folder (no "
                "config.toml), nor in the folders in it"
            )


def _serve(
    known: argparse.Namespace,
    runs: list[Path],
    *,
    play: Callable[[Application], None] | None = None,
) -> None:
    import asyncio
    import threading
    import webbrowser
    from urllib.parse import quote

    from palestra.view.answers import Answers
    from palestra.view.server import make_app, serve

    variable = known.token_env or TOKEN_VARIABLE
    try:
        tokens = tokens_for(known.host, variable, is_asked_for=known.token_env is not None)
    except ValueError as error:
        fail(str(error))
    answers = Answers(runs, can_play=play is not None)
    count = len(answers.ids)
    app = make_app(answers, play=play, tokens=tokens, hosts=(known.host, *known.allow_host))

    def ready(port: int) -> None:
        name = "127.0.0.1" if known.host in EVERYWHERE else known.host
        url = f"http://{f'[{name}]' if ':' in name else name}:{port}/"
        what, place = (
            (f"{count} run{'s' if count > 1 else ''}", "") if play is None else ("play", "#/play")
        )
        print(f"{what} at {url}{f'?token=${variable}' if tokens else ''}{place}", flush=True)
        if not known.no_open:
            address = url + (f"?token={quote(tokens[0])}" if tokens else "") + place
            threading.Thread(
                target=webbrowser.open, args=(address,), daemon=True
            ).start()  # some browsers keep the caller waiting

    try:
        early_interrupt.leave_to_python()
        asyncio.run(serve(app, known.host, known.port, ready))
    except (OSError, OverflowError) as error:
        fail(f"--host {known.host} --port {known.port}: {error}")


def _bundle(known: argparse.Namespace) -> None:
    from contextlib import closing

    from palestra.view.answers import Answers
    from palestra.view.bundle import BundleError, write_bundle

    def written(folder: Path, episodes: int) -> None:
        print(f"{terminal_safe(str(folder))}: {episodes:,} episodes", flush=True)

    try:
        with closing(Answers(known.runs, live=False)) as answers:
            write_bundle(answers, known.bundle, episodes=known.episodes, on_run=written)
    except BundleError as error:
        fail(str(error))
    print(f"look at it by: python -m http.server --bind 127.0.0.1 --directory {known.bundle}")
