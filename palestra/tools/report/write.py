"""From run folders to a report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from palestra.core.untrusted import Unreadable, terminal_safe
from palestra.tools.report.compare import Estimate, RunGroup, difference, groups_of
from palestra.tools.report.content import cost_of, sections_of, title_of
from palestra.tools.report.draw import draw_curves
from palestra.tools.report.page import write_html, write_markdown
from palestra.tools.report.read import Record, ReportError, find_runs, read_run


def load_groups(folders: list[Path], *, on_bad: Callable[[str], None]) -> list[RunGroup]:
    """The runs in these folders, in groups. `on_bad` is called for each run that cannot be read.

    Raises ReportError if none can.
    """
    runs, bad = [], []
    for folder in find_runs(folders):
        try:
            runs.append(read_run(folder))
        except Unreadable as error:
            bad.append(terminal_safe(f"{folder}: {error}"))
    if not runs:
        raise ReportError(
            bad[0] if len(bad) == 1 else f"none of the {len(bad)} runs can be read; {bad[0]}"
        )
    for line in bad:
        on_bad(f"{line}; the run is left out")
    return groups_of(runs)


def write_report(groups: list[RunGroup], out: Path, *, is_own: bool = False) -> Path:
    """Write report.html, report.md and the pictures of both. Overwrites an earlier report.

    `is_own`: `out` is in the run folder by default, and was not named by the user.
    """
    if is_own and out.is_symlink():
        raise ReportError(
            f"{terminal_safe(str(out))}: a link in a run folder is not written through; give --out"
        )
    try:
        out.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError, PermissionError) as error:
        raise ReportError(f"--out {out}: cannot be a folder: {error.strerror}") from None
    pictures = draw_curves(groups, out)
    title, sections = title_of(groups), sections_of(groups, pictures)
    write_markdown(out / "report.md", title, sections)
    write_html(out / "report.html", title, sections, out)
    return out / "report.html"


def numbers(groups: list[RunGroup]) -> dict[str, Any]:
    """The numbers in the tables of a report, as JSON values."""
    base = groups[0].finals()
    described: list[dict[str, Any]] = []
    differences: list[dict[str, Any]] = []
    for group in groups:
        finals = group.finals()
        runs = [_run_numbers(run) for run in group.runs]
        described.append({"name": group.name, "runs": runs, "success": _success(finals)})
        if group is not groups[0]:
            gaps = {key: difference(own, base[key]) for key, own in finals.items() if key in base}
            gap = {"from": groups[0].name, "of": group.name, "success": _success(gaps)}
            differences.append(gap)
    return {"groups": described, "differences": differences}


def _run_numbers(run: Record) -> dict[str, Any]:
    return {
        "folder": str(run.folder),
        "seed": run.seed,
        "steps": run.planned,
        "done": run.steps[-1]["step"] if run.steps else 0,
        "is_over": run.is_over,
        "stages": run.stages,
        "evals": [{**msgspec.to_builtins(result), "file": result.name} for result in run.evals],
        "cost": cost_of(run),
        "notes": run.notes,
    }


def _success(estimates: dict[tuple[str, str], Estimate]) -> list[dict[str, Any]]:
    success: list[dict[str, Any]] = []
    for (env, category), own in estimates.items():
        interval = {"mean": own.mean, "low": own.low, "high": own.high, "runs": own.runs}
        success.append({"env": env, "category": category, **interval})
    return success
