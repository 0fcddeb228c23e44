"""Tables of results as text: what reports and trackers show of an evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Table:
    columns: list[str]
    rows: list[list[str]]

    def markdown(self) -> str:
        lines = [self.columns, ["---"] * len(self.columns), *self.rows]
        return "\n".join(f"| {' | '.join(map(markdown_text, line))} |" for line in lines)


def markdown_text(text: str) -> str:
    """On one line, and with nothing in it that Markdown or HTML would take for its own."""
    for mark, harmless in {
        "&": "&amp;",
        "<": "&lt;",
        ">": "&gt;",
        "|": "&#124;",
        "`": "&#96;",
        "](": "]&#40;",
    }.items():
        text = text.replace(mark, harmless)
    return " ".join(text.split())


def scores(result: dict[str, Any]) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    """Of a stored evaluation at its full horizon: environment, horizon, category ("" for all tasks)
    and score.
    """
    for env, horizons in result["envs"].items():
        horizon, found = list(horizons.items())[-1]
        yield env, horizon, "", found["all"]
        for category, score in found["categories"].items():
            if category:
                yield env, horizon, category, score


def eval_table(result: dict[str, Any]) -> Table:
    """An evaluation by environment and category, with 95% intervals."""
    k = result["k"]
    columns = [
        "environment",
        "category",
        "tasks",
        f"success (avg@{k})" if k > 1 else "success",
        *([f"pass@{k}"] if k > 1 else []),
    ]
    rows = []
    for env, horizon, category, score in scores(result):
        passed = [with_interval(score["pass_at_k"], score["pass_interval"])] if k > 1 else []
        success = with_interval(score["success"], score["success_interval"])
        figures = [
            reward_with_interval(score["reward"], score["reward_interval"]),
            f"{score['turns']:.1f}",
            f"{score['tokens']:.0f}",
        ]
        rows.append(
            [
                f"{env} ({horizon} turns)",
                category or "all",
                str(score["tasks"]),
                success,
                *passed,
                *figures,
            ]
        )
    return Table([*columns, "reward", "turns", "tokens"], rows)


def with_interval(value: float, interval: Any) -> str:
    low, high = interval
    return f"{value:.1%} [{low:.1%}, {high:.1%}]"


def reward_with_interval(value: float, interval: Any) -> str:
    """Rewards are no shares; some have no interval."""
    return (
        f"{value:.3f}"
        if interval is None
        else f"{value:.3f} [{interval[0]:.3f}, {interval[1]:.3f}]"
    )
