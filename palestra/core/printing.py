"""What commands print: tables for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from palestra.core.evaluation import EvalResult
from palestra.core.tables import Table, eval_table
from palestra.core.untrusted import terminal_safe

if TYPE_CHECKING:
    from rich.console import Console


def warn(message: str) -> None:
    """On one line."""
    print(f"palestra: {terminal_safe(message)}", file=sys.stderr)


def print_text(text: str) -> None:
    """Text of an environment, which may have several lines, without what a terminal would obey."""
    lines = text.expandtabs().split("\n")
    print("\n".join(map(terminal_safe, lines)))


def as_json(value: Any) -> str:
    import msgspec

    return json.dumps(msgspec.to_builtins(value), indent=2)


def print_json(value: Any) -> None:
    print(as_json(value))


def plain_console(*, stderr: bool = False, soft_wrap: bool = False) -> Console:
    """A terminal on which a text is only a text.

    rich reads `[search]` as a style and drops it, raises at `[/b]`, and turns `:dog:` into a
    picture. Names of tasks, environments and files have such letters.
    """
    from rich.console import Console

    return Console(stderr=stderr, soft_wrap=soft_wrap, highlight=False, markup=False, emoji=False)


def print_table(table: Table) -> None:
    from rich.table import Table as RichTable

    shown = RichTable(box=None, pad_edge=False)
    for column in table.columns:
        shown.add_column(terminal_safe(column), overflow="fold")
    for row in table.rows:
        shown.add_row(*map(terminal_safe, row))
    console = plain_console()
    if not console.is_terminal:
        console.width = 160
    console.print(shown)


def print_result(result: EvalResult) -> None:
    """The table of an evaluation: all tasks and each category, at each horizon."""
    print_table(eval_table(result, every_horizon=True))
    if result.faults:
        print(f"{result.faults} episodes ended in a fault and are not counted")
