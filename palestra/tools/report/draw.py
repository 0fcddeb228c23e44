"""The curves of a report as PNG files."""

from __future__ import annotations

import math
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

from palestra.core.files import replace_file
from palestra.runs.plot import draw_stages, smoothed
from palestra.tools.report.compare import Estimate, RunGroup, over_runs, runs_of
from palestra.tools.report.read import Record


class Curve(NamedTuple):
    file: str
    title: str
    metric: str
    is_share: bool = False
    is_log: bool = False


CURVES = [
    Curve("reward", "reward of training episodes", "reward"),
    Curve("success", "success: training, and held-out tasks (dots, 95%)", "success", is_share=True),
    Curve("turns", "turns of an episode", "turns"),
    Curve("entropy", "entropy of the policy, nats a token", "policy/entropy"),
    Curve("kl", "KL from the policy that sampled, nats a token", "policy/kl"),
    Curve(
        "kl_reference",
        "KL from the model before the first step, nats a token",
        "policy/kl_reference",
    ),
    Curve(
        "mismatch",
        "mismatch of engine and learner, |log p - log p|",
        "policy/mismatch",
        is_log=True,
    ),
    Curve("grad_norm", "gradient norm, before clipping", "grad_norm"),
    Curve("zero_advantage", "groups without a signal", "groups/zero_advantage", is_share=True),
    Curve("loss", "loss", "loss"),
]
"""A curve is left out if no run has its metric."""


def draw_curves(groups: list[RunGroup], out: Path) -> dict[str, str]:
    """Write the pictures to `out`. Returns the title of each, by file name."""
    # Not pyplot: its backend and its current figure are the user's, in a notebook.
    from matplotlib.figure import Figure
    from matplotlib.ticker import PercentFormatter

    runs = runs_of(groups)
    metrics: set[str] = set()
    for run in runs:
        metrics.update(*run.steps)
    drawn: dict[str, str] = {}
    for curve in CURVES:
        if curve.metric in metrics:
            figure = Figure(figsize=(7, 3.6), layout="constrained")
            axes = figure.subplots()
            _draw_curve(axes, curve, groups)
            if curve.is_share:
                axes.yaxis.set_major_formatter(PercentFormatter(1.0))
            drawn[f"{curve.file}.png"] = curve.title
            _save(figure, out / f"{curve.file}.png")
    if any(run.seconds for run in runs):
        figure = Figure(figsize=(7, 3.6), layout="constrained")
        axes = figure.subplots()
        _draw_seconds(axes, groups)
        drawn["time.png"] = "seconds of a training step, by phase"
        _save(figure, out / "time.png")
    return drawn


def _save(figure: Any, path: Path) -> None:
    picture = BytesIO()
    figure.savefig(picture, format="png", dpi=110)
    # The folder may be in a stranger's run folder: this replaces a link and does not follow it.
    replace_file(path, picture.getvalue())


def _draw_curve(axes: Any, curve: Curve, groups: list[RunGroup]) -> None:
    _draw_horizons(axes, groups)
    length = 0
    for group in groups:
        for run in group.runs:
            length = max([length, *(row["step"] for row in run.rows)])
    for number, group in enumerate(groups):
        color = f"C{number}"
        label = _label(group)
        if len(group.runs) == 1:
            _draw_run(axes, group.runs[0], curve.metric, color, label)
        else:
            _draw_runs(axes, group.runs, curve.metric, color, label)
        if curve.metric == "success":
            # The dots of different groups are drawn next to each other, not on top.
            shift = 0.008 * length * (number - (len(groups) - 1) / 2)
            _draw_evals(axes, group, color, shift)
    _finish(axes, curve.title)
    if curve.is_share:
        axes.set_ylim(-0.02, 1.02)
    if curve.is_log:
        axes.set_yscale("log")
    if len(groups) > 1:
        axes.legend(loc="best", fontsize=8)


def _finish(axes: Any, title: str) -> None:
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("training step")
    axes.grid(alpha=0.3)


def _label(group: RunGroup) -> str:
    name = group.name if len(group.name) <= 40 else f"{group.name[:39]}…"
    seeds = f" ({len(group.runs)} runs)" if len(group.runs) > 1 else ""
    # matplotlib reads "$" as the start of a formula, and leaves labels with "_" out of the legend.
    return (name.replace("$", r"\$") + seeds).lstrip("_")


def _draw_horizons(axes: Any, groups: list[RunGroup]) -> None:
    """Bands if all groups have the same stages; else a dotted line at each change of a group's
    horizon.
    """
    stages = [group.runs[0].stages for group in groups]
    if all(own == stages[0] for own in stages):
        if stages[0]:
            draw_stages(axes, [row for row in groups[0].runs[0].steps if "horizon" in row])
        return
    for number, own in enumerate(stages):
        if len(own) > 20:  # a horizon that changes at every step would hide the curves
            continue
        for stage in own[1:]:
            first = stage["first_step"] - 0.5
            axes.axvline(first, color=f"C{number}", linestyle=":", linewidth=1, alpha=0.7)


def _series(run: Record, metric: str) -> tuple[list[int], list[float]]:
    rows = [row for row in run.steps if metric in row]
    return [row["step"] for row in rows], [row[metric] for row in rows]


def _draw_run(axes: Any, run: Record, metric: str, color: str, label: str) -> None:
    """The values of all steps as a faint line, and a smoothed one."""
    steps, values = _series(run, metric)
    axes.plot(steps, values, color=color, alpha=0.3, linewidth=1)
    axes.plot(steps, smoothed(values), color=color, label=label)


def _draw_runs(axes: Any, runs: list[Record], metric: str, color: str, label: str) -> None:
    """The mean of the smoothed curves, with its t-interval at steps that several runs have."""
    estimates = _means(runs, metric)
    means = [estimate.mean for estimate in estimates.values()]
    axes.plot(list(estimates), means, color=color, label=label)
    several = {step: estimate for step, estimate in estimates.items() if estimate.runs > 1}
    low = [estimate.low for estimate in several.values()]
    high = [estimate.high for estimate in several.values()]
    axes.fill_between(list(several), low, high, color=color, alpha=0.15, linewidth=0)


def _means(runs: list[Record], metric: str) -> dict[int, Estimate]:
    """The means of the smoothed curves, at each step that any of the runs has."""
    at: dict[int, list[float]] = {}
    for run in runs:
        steps, values = _series(run, metric)
        for step, value in zip(steps, smoothed(values), strict=True):
            at.setdefault(step, []).append(value)
    return {step: over_runs(values) for step, values in sorted(at.items())}


def _draw_evals(axes: Any, group: RunGroup, color: str, shift: float) -> None:
    """Dots with error bars, drawn `shift` steps to the right."""
    steps: list[float] = []
    means: list[float] = []
    below: list[float] = []
    above: list[float] = []
    for step, mean, low, high in _eval_points(group):
        steps.append(step + shift)
        means.append(mean)
        below.append(max(mean - low, 0))
        above.append(max(high - mean, 0))
    if not steps:
        return
    axes.errorbar(
        steps,
        means,
        yerr=[below, above],
        fmt="o",
        color=color,
        markeredgecolor="white",
        capsize=3,
        zorder=3,
    )


def _eval_points(group: RunGroup) -> Iterator[tuple[int, float, float, float]]:
    """Step, success and its interval: over tasks for one run, over runs for several."""
    at: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for run in group.runs:
        for row in run.rows:
            if {"eval/success", "eval/low", "eval/high"} <= set(row):
                at.setdefault((row["step"], str(row.get("phase"))), []).append(row)
    for (step, _), rows in at.items():
        estimate = over_runs([row["eval/success"] for row in rows])
        if math.isinf(estimate.low):
            yield step, rows[0]["eval/success"], rows[0]["eval/low"], rows[0]["eval/high"]
        else:
            yield step, estimate.mean, max(estimate.low, 0.0), min(estimate.high, 1.0)


def _draw_seconds(axes: Any, groups: list[RunGroup]) -> None:
    """Means over the runs of a group: a solid line for collecting, a dashed one for learning."""
    for number, group in enumerate(groups):
        for name, line in (("collect", "-"), ("learn", "--")):
            estimates = _means(group.runs, f"time/{name}")
            means = [estimate.mean for estimate in estimates.values()]
            style = {"color": f"C{number}", "linestyle": line, "linewidth": 1.2}
            label = name if len(groups) == 1 else f"{_label(group)}: {name}"
            axes.plot(list(estimates), means, label=label, **style)
    _finish(axes, "seconds of a training step, by phase")
    axes.set_ylim(bottom=0)
    axes.legend(loc="best", fontsize=8)
