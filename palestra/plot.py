"""The learning curve of a run as a PNG."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from palestra.run import Run


def plot_run(run: Run) -> Path | None:
    """Success while training and on held-out tasks, over the horizon's stages. None where matplotlib is not installed."""
    try:
        import matplotlib
    except ImportError:
        return None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = run.metrics()
    steps = [row for row in rows if "success" in row]
    evals = [row for row in rows if "eval/success" in row]
    figure, axes = pyplot.subplots(figsize=(9, 5), layout="constrained")
    _draw_stages(axes, steps)
    axes.plot([row["step"] for row in steps], [row["success"] for row in steps], color="tab:blue", alpha=0.3, linewidth=1)
    axes.plot([row["step"] for row in steps], _smoothed([row["success"] for row in steps]), color="tab:blue", label="training episodes")
    _draw_evals(axes, evals)
    axes.set(xlabel="training step", ylabel="success", ylim=(0, 1.02), title=run.folder.name)
    axes.yaxis.set_major_formatter(matplotlib.ticker.PercentFormatter(1.0))
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    path = run.folder / "curve.png"
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return path


def _draw_stages(axes: Any, steps: list[dict[str, Any]]) -> None:
    """A band for each horizon, with its turns written on top."""
    for number, (horizon, members) in enumerate(groupby(steps, key=lambda row: row["horizon"])):
        stretch = [row["step"] for row in members]
        axes.axvspan(stretch[0] - 0.5, stretch[-1] + 0.5, color="tab:orange", alpha=0.06 + 0.06 * (number % 2), linewidth=0)
        axes.text((stretch[0] + stretch[-1]) / 2, 0.985, f"{horizon} turns", ha="center", va="top", fontsize=9, color="saddlebrown")


def _draw_evals(axes: Any, evals: list[dict[str, Any]]) -> None:
    low = [max(row["eval/success"] - row["eval/low"], 0) for row in evals]
    high = [max(row["eval/high"] - row["eval/success"], 0) for row in evals]
    points = [row["step"] for row in evals], [row["eval/success"] for row in evals]
    axes.errorbar(*points, yerr=(low, high), fmt="o", color="tab:red", capsize=3, label="held-out tasks, full horizon (95%)", zorder=3)
    for row in evals:
        text, place = f"{row['phase']}: {row['eval/success']:.0%}", (row["step"], row["eval/success"])
        style = {"textcoords": "offset points", "fontsize": 9, "color": "tab:red"}
        if row["phase"] == "final":
            axes.annotate(text, place, xytext=(0, 14), ha="right", **style)
        else:
            axes.annotate(text, place, xytext=(8, 4 if row["eval/success"] < 0.05 else -4), **style)


def _smoothed(values: list[float], share: float = 0.8) -> list[float]:
    smooth: list[float] = []
    for value in values:
        smooth.append(share * smooth[-1] + (1 - share) * value if smooth else value)
    return smooth
