"""`palestra report`: the results of runs as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from palestra.cli.settings import complete_run
from palestra.core.errors import UserError
from palestra.core.printing import print_json, warn
from palestra.core.untrusted import terminal_safe


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN",
            help="a run folder, or a folder of them",
            autocompletion=complete_run,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="default: report/ in the run folder; for several runs here"
        ),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="print the numbers as JSON; a report is written only where --out says so",
        ),
    ] = False,
) -> None:
    """Curves, tables and episodes of runs, as a page and as Markdown."""
    from palestra.runs.reader import linked_runs
    from palestra.tools.report.compare import runs_of
    from palestra.tools.report.write import load_groups, numbers, write_report

    for folder in runs:
        if not folder.is_dir():
            raise UserError(f"{terminal_safe(str(folder))}: there is no such folder")
        for link in linked_runs(folder):
            warn(
                f"{link}: a link is not followed; name it on the command line to report on "
                "what it leads to"
            )
    groups = load_groups(runs, on_bad=warn)
    found = runs_of(groups)
    is_own = out is None and len(found) == 1
    folder = out or (found[0].folder if is_own else Path()) / "report"
    # Written first: reading the episodes of a report may add notes to the runs.
    page = write_report(groups, folder, is_own=is_own) if out or not as_json else None
    if as_json:
        result = numbers(groups)
        if page is not None:
            result["report"] = str(page)
        return print_json(result)
    for run in found:
        if run.notes:
            print(
                f"{run.name}: {len(run.notes)} places could not be read; see the end of the report"
            )
    print(f"report: {terminal_safe(str(page))}")
