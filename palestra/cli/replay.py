"""`palestra replay`: play a stored episode again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from palestra.cli.command import Json, check_run_folder, find_modules_here
from palestra.cli.settings import complete_run
from palestra.core.errors import UserError

PLAYING_ON = "Playing on"


RunFolder = Annotated[
    Path, typer.Argument(metavar="RUN", autocompletion=complete_run, help="the run folder")
]
Episode = Annotated[str, typer.Option(metavar="ID", help="the id of the stored episode")]
TrajectoryFile = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="the file of trajectories, where the id stands in several"),
]
Turn = Annotated[
    int | None,
    typer.Option(
        "--from",
        min=1,
        metavar="K",
        help="a model plays on from this turn (default: only check)",
        rich_help_panel=PLAYING_ON,
    ),
]
Checkpoint = Annotated[
    int | None,
    typer.Option(
        metavar="STEP",
        help="of this run (default: its newest)",
        rich_help_panel=PLAYING_ON,
    ),
]
Model = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="a Hugging Face directory instead", rich_help_panel=PLAYING_ON
    ),
]
Horizon = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="turns in all (default: the episode's)",
        rich_help_panel=PLAYING_ON,
    ),
]
Temperature = Annotated[
    float | None,
    typer.Option(help="default: the one of the episode", rich_help_panel=PLAYING_ON),
]
Seed = Annotated[
    int | None,
    typer.Option(help="of the sampling noise (default: the episode's)", rich_help_panel=PLAYING_ON),
]
Samples = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="continuations, each with a seed of its own (default: 1)",
        rich_help_panel=PLAYING_ON,
    ),
]


def replay(
    run_folder: RunFolder,
    episode: Episode,
    file: TrajectoryFile = None,
    as_json: Json = False,
    turn: Turn = None,
    checkpoint: Checkpoint = None,
    model: Model = None,
    horizon: Horizon = None,
    temperature: Temperature = None,
    seed: Seed = None,
    samples: Samples = None,
) -> None:
    """Play a stored episode again, or on from one of its turns."""
    flags: dict[str, Any] = {
        "turn": turn,
        "checkpoint": checkpoint,
        "model": model,
        "horizon": horizon,
        "temperature": temperature,
        "seed": seed,
        "samples": samples,
    }
    chosen = {name: value for name, value in flags.items() if value is not None}
    if chosen and turn is None:
        raise UserError(f"--{next(iter(chosen))}: means something only together with --from")
    check_run_folder(run_folder)
    find_modules_here()

    from palestra.tools.replay import PlayOn
    from palestra.tools.transcript import report

    choice = PlayOn(**chosen) if chosen else None
    text, is_same = report(run_folder, episode, file=file, choice=choice, as_json=as_json)
    print(text)
    if not is_same:
        raise SystemExit(1)
