"""The learning curve of a run as a PNG."""

from __future__ import annotations

import io
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

MOST_BANDS = 500
"""More would be a grey surface, and take minutes."""

if TYPE_CHECKING:
    from palestra.runs.run import Run


def plot_run(run: Run) -> Path | None:
    """Success while training and on held-out tasks, over the horizon's stages.

    None where matplotlib is not installed.
    """
    try:
        import matplotlib
    except ImportError:
        return None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = run.metrics()
    played = [row for row in rows if "success" in row]
    figure, axes = pyplot.subplots(figsize=(9, 5), layout="constrained")
    envs = sorted({name.split("/")[1] for row in played for name in row if name.startswith("env/")})
    if not envs:
        draw_stages(axes, played)
        _draw_evals(axes, rows, "eval", "held-out tasks, full horizon (95%)", "tab:red")
    if not played:
        _draw_loss(axes, rows)
    for number, env in enumerate(envs or [""]):
        color = f"C{number}"
        prefix, label = (f"env/{env}/", f"{env}, training") if env else ("", "training episodes")
        _draw_success(
            axes,
            [row for row in played if f"{prefix}success" in row],
            f"{prefix}success",
            label,
            color,
        )
        if env:
            _draw_evals(axes, rows, f"eval/{env}", f"{env}, held-out (95%)", color)
    axes.set(xlabel="training step", ylabel="success", ylim=(0, 1.02), title=run.folder.name)
    axes.yaxis.set_major_formatter(matplotlib.ticker.PercentFormatter(1.0))
    axes.grid(alpha=0.3)
    axes.legend(loc="best")
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=120)
    pyplot.close(figure)
    path = run.folder / "curve.png"
    run.write(path, image.getvalue())
    return path


def _draw_success(axes: Any, rows: list[dict[str, Any]], name: str, label: str, color: str) -> None:
    """Each step faintly, and smoothed."""
    if not rows:
        return
    steps, values = [row["step"] for row in rows], [row[name] for row in rows]
    axes.plot(steps, values, color=color, alpha=0.3, linewidth=1)
    axes.plot(steps, smoothed(values), color=color, label=label)


def _draw_loss(axes: Any, rows: list[dict[str, Any]]) -> None:
    """For runs that play no episodes while they train."""
    learned = [row for row in rows if "loss" in row]
    beside = axes.twinx()
    beside.plot(
        [row["step"] for row in learned],
        [row["loss"] for row in learned],
        color="tab:gray",
        alpha=0.6,
        linewidth=1,
    )
    beside.set_ylabel("loss (grey)")


def draw_stages(axes: Any, steps: list[dict[str, Any]]) -> None:
    """A band for each horizon, with its turns written on top where there is room."""
    if sum(1 for _ in groupby(steps, key=lambda row: row["horizon"])) > MOST_BANDS:
        return
    length = steps[-1]["step"] - steps[0]["step"] + 1 if steps else 0
    for number, (horizon, members) in enumerate(groupby(steps, key=lambda row: row["horizon"])):
        stretch = [row["step"] for row in members]
        axes.axvspan(
            stretch[0] - 0.5,
            stretch[-1] + 0.5,
            color="tab:orange",
            alpha=0.06 + 0.06 * (number % 2),
            linewidth=0,
        )
        if len(stretch) >= length / 10:
            place = ((stretch[0] + stretch[-1]) / 2, 0.97)
            style = {"ha": "center", "va": "top", "fontsize": 9, "color": "saddlebrown"}
            axes.text(*place, f"{horizon:g} turns", transform=axes.get_xaxis_transform(), **style)


def _draw_evals(axes: Any, rows: list[dict[str, Any]], name: str, label: str, color: str) -> None:
    evals = [row for row in rows if f"{name}/success" in row]
    success = [row[f"{name}/success"] for row in evals]
    low = [max(row[f"{name}/success"] - row[f"{name}/low"], 0) for row in evals]
    high = [max(row[f"{name}/high"] - row[f"{name}/success"], 0) for row in evals]
    axes.errorbar(
        [row["step"] for row in evals],
        success,
        yerr=(low, high),
        fmt="o",
        color=color,
        capsize=3,
        label=label,
        zorder=3,
    )
    for row, value in zip(evals, success, strict=True):
        text, place = f"{row['phase']}: {value:.0%}", (row["step"], value)
        style = {"textcoords": "offset points", "fontsize": 9, "color": color}
        if row["phase"] == "final":
            axes.annotate(text, place, xytext=(0, 14), ha="right", **style)
        else:
            axes.annotate(text, place, xytext=(8, 4 if value < 0.05 else -4), **style)


def smoothed(values: list[float], share: float = 0.8) -> list[float]:
    smooth: list[float] = []
    for value in values:
        smooth.append(share * smooth[-1] + (1 - share) * value if smooth else value)
    return smooth
