"""`palestra report`: what runs came to."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from palestra.core.untrusted import terminal_safe
from palestra.printing import print_json, warn


def add(commands: Any) -> None:
    report = commands.add_parser(
        "report",
        help="curves, tables and episodes of runs, as a page and as Markdown",
        allow_abbrev=False,
    )
    report.add_argument(
        "runs", nargs="+", type=Path, metavar="RUN", help="a run folder, or a folder of them"
    )
    report.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="default: report/ in the run folder; for several runs here",
    )
    report.add_argument(
        "--json",
        action="store_true",
        help="print the numbers as JSON; a report is written only where --out says so",
    )
    report.set_defaults(run=_report, takes_settings=False)


def _report(known: argparse.Namespace, settings: dict[str, Any]) -> None:
    from palestra.runs.reader import linked_runs
    from palestra.tools.report.write import load_groups, numbers, write_report

    for link in (link for folder in known.runs for link in linked_runs(folder)):
        warn(
            f"{link}: a link is not followed; name it on the command line to report on "
            "what it leads to"
        )
    groups = load_groups(known.runs, on_bad=warn)
    runs = [run for group in groups for run in group.runs]
    out = known.out or (runs[0].folder if len(runs) == 1 else Path()) / "report"
    page = (
        write_report(groups, out, is_own=known.out is None and len(runs) == 1)
        if known.out or not known.json
        else None
    )
    if known.json:
        print_json(numbers(groups) | ({"report": str(page)} if page else {}))
        return
    for run in runs:
        if run.notes:
            print(
                f"{run.name}: {len(run.notes)} places could not be read; see the end of the report"
            )
    print(f"report: {terminal_safe(str(page))}")
