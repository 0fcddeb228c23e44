"""What commands print: tables for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from typing import Any

from palestra.core.evaluation import EvalResult
from palestra.core.tables import Table, eval_table
from palestra.core.untrusted import terminal_safe


def warn(message: str) -> None:
    """On one line."""
    print(f"palestra: {terminal_safe(message)}", file=sys.stderr)


def as_json(value: Any) -> str:
    import msgspec

    return json.dumps(msgspec.to_builtins(value), indent=2)


def print_json(value: Any) -> None:
    print(as_json(value))


def print_table(table: Table) -> None:
    from rich.console import Console
    from rich.table import Table as RichTable

    shown = RichTable(box=None, pad_edge=False)
    for column in table.columns:
        shown.add_column(column, overflow="fold")
    for row in table.rows:
        shown.add_row(*row)
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = 160
    console.print(shown)


def print_result(result: EvalResult) -> None:
    """The table of an evaluation: all tasks and each category, at each horizon."""
    print_table(eval_table(result, every_horizon=True))
    if result.faults:
        print(f"{result.faults} episodes ended in a fault and are not counted")
