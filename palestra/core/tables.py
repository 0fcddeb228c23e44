"""Tables of an evaluation as text, for commands, reports and trackers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from palestra.core.evaluation import EvalResult, Score
from palestra.core.intervals import Interval


@dataclass(frozen=True, slots=True)
class Table:
    columns: list[str]
    rows: list[list[str]]

    def markdown(self) -> str:
        lines = [self.columns, ["---"] * len(self.columns), *self.rows]
        return "\n".join(f"| {' | '.join(map(markdown_text, line))} |" for line in lines)


def markdown_text(text: str) -> str:
    """The text on one line, escaped for Markdown and HTML."""
    for mark, escaped in MARKDOWN_ESCAPES.items():
        text = text.replace(mark, escaped)
    return " ".join(text.split())


MARKDOWN_ESCAPES = {
    "&": "&amp;",  # first, since the other escapes have one
    "<": "&lt;",
    ">": "&gt;",
    "|": "&#124;",
    "`": "&#96;",
    "](": "]&#40;",
}


def scores(
    result: EvalResult, *, every_horizon: bool = False
) -> Iterator[tuple[str, str, str, Score]]:
    """The environment, horizon, category ("" for all tasks) and score of each part of an
    evaluation.

    Only the full horizon, unless `every_horizon`.
    """
    for env, horizons in result.envs.items():
        chosen = list(horizons.items())
        if not every_horizon:
            chosen = chosen[-1:]
        for horizon, found in chosen:
            yield env, horizon, "", found.all
            for category, score in found.categories.items():
                if category:
                    yield env, horizon, category, score


def eval_table(result: EvalResult, *, every_horizon: bool = False) -> Table:
    """An evaluation by environment, horizon and category, with 95% intervals."""
    k = result.k
    success = ["success"] if k == 1 else [f"success (avg@{k})", f"pass@{k}"]
    columns = ["environment", "category", "tasks", *success, "reward", "turns", "tokens"]
    rows = []
    for env, horizon, category, score in scores(result, every_horizon=every_horizon):
        row = [f"{env} ({horizon} turns)", category or "all", str(score.tasks)]
        row.append(with_interval(score.success, score.success_interval))
        if k > 1:
            row.append(with_interval(score.pass_at_k, score.pass_interval))
        row.append(reward_with_interval(score.reward, score.reward_interval))
        row += [f"{score.turns:.1f}", f"{score.tokens:.0f}"]
        rows.append(row)
    return Table(columns, rows)


def with_interval(value: float, interval: Interval) -> str:
    low, high = interval
    return f"{value:.1%} [{low:.1%}, {high:.1%}]"


def reward_with_interval(value: float, interval: Interval | None) -> str:
    """Not as a percentage, and some rewards have no interval."""
    if interval is None:
        return f"{value:.3f}"
    low, high = interval
    return f"{value:.3f} [{low:.3f}, {high:.3f}]"
