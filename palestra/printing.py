"""What the command line prints: tables for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from typing import Any, NoReturn

from palestra.core.credentials import hidden
from palestra.core.tables import with_interval
from palestra.core.untrusted import terminal_safe


def fail(message: str) -> NoReturn:
    """A message may hold names from anywhere: nothing in it reaches the terminal as a command."""
    print(
        "\n".join(map(terminal_safe, f"palestra: {hidden(message)}".split("\n"))), file=sys.stderr
    )
    raise SystemExit(2)


def warn(message: str) -> None:
    """On one line."""
    print(f"palestra: {terminal_safe(message)}", file=sys.stderr)


def as_json(value: Any) -> str:
    import msgspec

    return json.dumps(msgspec.to_builtins(value), indent=2)


def print_json(value: Any) -> None:
    print(as_json(value))


def print_table(columns: list[str], rows: list[list[str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 160
    console.print(table)


def print_result(result: dict[str, Any]) -> None:
    """The table of an evaluation: all tasks and each category, at each horizon."""
    k = result["k"]
    rows = []
    several = len(result["envs"]) > 1
    for env, horizons in result["envs"].items():
        for horizon, scores in horizons.items():
            for name, score in [("all", scores["all"]), *scores["categories"].items()]:
                success = with_interval(score.success, score.success_interval)
                passed = [with_interval(score.pass_at_k, score.pass_interval)] if k > 1 else []
                figures = [f"{score.reward:.3f}", f"{score.turns:.1f}", f"{score.tokens:.0f}"]
                rows.append(
                    [
                        *([env] if several else []),
                        horizon,
                        name or "-",
                        str(score.tasks),
                        success,
                        *passed,
                        *figures,
                    ]
                )
    columns = [*(["environment"] if several else []), "horizon", "category", "tasks"]
    success_columns = [f"success (avg@{k})", f"pass@{k}"] if k > 1 else ["success"]
    print_table([*columns, *success_columns, "reward", "turns", "tokens"], rows)
    if result["faults"]:
        print(f"{result['faults']} episodes ended in a fault and are not counted")
