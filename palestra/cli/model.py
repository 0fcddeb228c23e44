"""`palestra model ...`: take a trained model out of a run, or bring one in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from palestra.cli.command import Command, Group, check_run_folder
from palestra.cli.settings import complete_run

app = typer.Typer(cls=Group, help="Take a trained model out of a run, or bring one in.")


@app.command("import", cls=Command)
def import_model(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="a GGUF file")],
    out: Annotated[Path, typer.Argument(metavar="DIR", help="a new folder")],
) -> None:
    """Turn a GGUF file into a Hugging Face directory."""
    from palestra.models.gguf_import import import_gguf

    print(f"{out}: {import_gguf(file, out):,} parameters")


@app.command("export", cls=Command)
def export_model(
    run_folder: Annotated[
        Path, typer.Argument(metavar="RUN", autocompletion=complete_run, help="the run folder")
    ],
    out: Annotated[Path, typer.Argument(metavar="DIR", help="a new folder")],
    adapter: Annotated[
        bool, typer.Option("--adapter", help="write the adapter alone, as peft's directory")
    ] = False,
) -> None:
    """Write a run's newest weights as a Hugging Face directory, an adapter merged into them."""
    check_run_folder(run_folder)

    from palestra.tools.export import export_run

    export_run(run_folder, out, adapter=adapter)
    print(out)
