"""The learning curve of a run as a PNG."""

from __future__ import annotations

import io
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

MOST_BANDS = 500
"""More would be a gray area, and take minutes to draw."""

if TYPE_CHECKING:
    from palestra.runs.run import Run


def plot_run(run: Run) -> Path:
    """Draw the success in training and on held-out tasks, over the horizon's stages."""
    # Not pyplot: it has one backend and one current figure for the whole program, and those of a
    # notebook are the user's.
    from matplotlib.figure import Figure
    from matplotlib.ticker import PercentFormatter

    rows = run.metrics()
    played = [row for row in rows if "success" in row]
    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.subplots()
    columns = set().union(*played)
    envs = sorted({name.split("/")[1] for name in columns if name.startswith("env/")})
    if not envs:
        draw_stages(axes, played)
        _draw_evals(axes, rows, "eval", "held-out tasks, full horizon (95%)", "tab:red")
    if not played:
        _draw_loss(axes, rows)
    for number, env in enumerate(envs or [""]):
        color = f"C{number}"
        if env:
            name, label = f"env/{env}/success", f"{env}, training"
        else:
            name, label = "success", "training episodes"
        _draw_success(axes, [row for row in played if name in row], name, label, color)
        if env:
            _draw_evals(axes, rows, f"eval/{env}", f"{env}, held-out (95%)", color)
    axes.set(xlabel="training step", ylabel="success", ylim=(0, 1.02), title=run.folder.name)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.grid(alpha=0.3)
    axes.legend(loc="best")
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=120)
    path = run.folder / "curve.png"
    run.write(path, image.getvalue())
    return path


def _draw_success(axes: Any, rows: list[dict[str, Any]], name: str, label: str, color: str) -> None:
    """The values of all steps as a faint line, and a smoothed one."""
    if not rows:
        return
    steps, values = [row["step"] for row in rows], [row[name] for row in rows]
    axes.plot(steps, values, color=color, alpha=0.3, linewidth=1)
    axes.plot(steps, smoothed(values), color=color, label=label)


def _draw_loss(axes: Any, rows: list[dict[str, Any]]) -> None:
    """For runs that play no episodes while they train."""
    learned = [row for row in rows if "loss" in row]
    steps, losses = [row["step"] for row in learned], [row["loss"] for row in learned]
    right_axes = axes.twinx()
    right_axes.plot(steps, losses, color="tab:gray", alpha=0.6, linewidth=1)
    right_axes.set_ylabel("loss (gray)")


def draw_stages(axes: Any, rows: list[dict[str, Any]]) -> None:
    """A band for each horizon, labeled with its turns if there is room."""
    bands: list[tuple[float, list[int]]] = []
    for horizon, members in groupby(rows, key=lambda row: row["horizon"]):
        bands.append((horizon, [row["step"] for row in members]))
    if not bands or len(bands) > MOST_BANDS:
        return
    length = rows[-1]["step"] - rows[0]["step"] + 1
    for number, (horizon, steps) in enumerate(bands):
        first, last = steps[0], steps[-1]
        # Every other band is darker, so that neighbors can be told apart.
        shade = 0.06 + 0.06 * (number % 2)
        axes.axvspan(first - 0.5, last + 0.5, color="tab:orange", alpha=shade, linewidth=0)
        if len(steps) >= length / 10:
            style = {"ha": "center", "va": "top", "fontsize": 9, "color": "saddlebrown"}
            at = axes.get_xaxis_transform()
            axes.text((first + last) / 2, 0.97, f"{horizon:g} turns", transform=at, **style)


def _draw_evals(axes: Any, rows: list[dict[str, Any]], name: str, label: str, color: str) -> None:
    """Evaluations with their confidence intervals."""
    evals = [row for row in rows if f"{name}/success" in row]
    steps = [row["step"] for row in evals]
    success = [row[f"{name}/success"] for row in evals]
    # At 0% and 100%, rounding can put a bound on the wrong side of the value by an ulp.
    below = [max(row[f"{name}/success"] - row[f"{name}/low"], 0) for row in evals]
    above = [max(row[f"{name}/high"] - row[f"{name}/success"], 0) for row in evals]
    axes.errorbar(
        steps,
        success,
        yerr=(below, above),
        fmt="o",
        color=color,
        capsize=3,
        label=label,
        zorder=3,
    )
    for row, value in zip(evals, success, strict=True):
        text, point = f"{row['phase']}: {value:.0%}", (row["step"], value)
        style = {"textcoords": "offset points", "fontsize": 9, "color": color}
        if row["phase"] == "final":
            axes.annotate(text, point, xytext=(0, 14), ha="right", **style)
        else:
            axes.annotate(text, point, xytext=(8, 4 if value < 0.05 else -4), **style)


def smoothed(values: list[float], share: float = 0.8) -> list[float]:
    """The exponential moving average; `share`: the weight of what came before."""
    smooth: list[float] = []
    for value in values:
        smooth.append(share * smooth[-1] + (1 - share) * value if smooth else value)
    return smooth
