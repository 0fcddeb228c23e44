"""Generates the tables and figures of docs/results.md from the numbers in docs/results/*.json.

This module writes what stands between `<!-- NAME -->` and `<!-- end -->` in the page. People write
the text around it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from palestra.core.intervals import wilson
from palestra.core.tables import with_interval
from palestra.runs.plot import smoothed
from palestra.tools.report.compare import Estimate, difference, over_runs

Run = dict[str, Any]
Figure = Literal["success", "reward"]

SCORED = ("sciworld-h200", "sciworld-cpu")
"""Comparisons by reward: their tasks can be solved in part, and the score says how far."""
NAMES: dict[Figure, str] = {"success": "success", "reward": "score"}

ENOUGH_SEEDS = 3
"""With fewer runs, intervals are over tasks instead of seeds."""
WINDOW = 10
"""Training steps to average over when checking for a collapse."""
COLLAPSED = 0.7
"""A run that ends below this share of its best mean success has collapsed."""


def write_page(page: Path, kept: Path) -> None:
    everything = {
        path.stem: json.loads(path.read_text())["runs"] for path in sorted(kept.glob("*.json"))
    }
    text = with_block(page.read_text(), "costs", costs(everything))
    for name, runs in everything.items():
        picture = draw(runs, kept / f"{name}.png", figure_of(name))
        block = [
            *tables(runs, figure_of(name)),
            f"![{name}]({kept.name}/{picture.name})",
            provenance(runs),
        ]
        text = with_block(text, name, "\n\n".join(block))
    page.write_text(text)


def figure_of(comparison: str) -> Figure:
    """The figure that a comparison compares."""
    return "reward" if comparison in SCORED else "success"


def with_block(text: str, name: str, block: str) -> str:
    """Replace the text of the block of that name, if the page has one."""
    before, mark, rest = text.partition(f"<!-- {name} -->\n")
    return (
        f"{before}{mark}{block}\n<!-- end -->{rest.partition('<!-- end -->')[2]}" if mark else text
    )


def tables(runs: Sequence[Run], figure: Figure = "success") -> list[str]:
    """The tables of a comparison.

    Recipes of different environments get one line per environment, since a sum over them says
    nothing. One recipe, or several with one run each (attempts), also gets the last one's results
    by category.
    """
    if len({*runs[0]["evals"][-1]["envs"]}.union(*(run["evals"][-1]["envs"] for run in runs))) > 1:
        return [by_environment(runs)]
    arms = [*arms_of(runs).values()]
    are_tries = len(arms) == 1 or all(len(own) == 1 for own in arms)
    return [table(runs, figure), by_category(arms[-1])] if are_tries else [table(runs, figure)]


def arms_of(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Runs by recipe, in the order of the recipes."""
    arms: dict[str, list[Run]] = {}
    for run in runs:
        arms.setdefault(run["recipe"], []).append(run)
    return arms


def result(run: Run, evaluation: int, figure: Figure = "success") -> float:
    """The mean over all tasks of all environments."""
    scores = [env["all"] for env in run["evals"][evaluation]["envs"].values()]
    return float(
        sum(score[figure] * score["tasks"] for score in scores)
        / sum(score["tasks"] for score in scores)
    )


def final(runs: Sequence[Run], figure: Figure = "success") -> Estimate:
    """The final result, with its interval over seeds, or over tasks with fewer than three seeds."""
    mean = _mean(result(run, -1, figure) for run in runs)
    if len(runs) >= ENOUGH_SEEDS:
        return over_runs([result(run, -1, figure) for run in runs]).within(0.0, 1.0)
    scores = scores_of(runs, -1)
    if len(scores) == 1:
        return Estimate(mean, *scores[0][f"{figure}_interval"], 1)
    if figure == "reward":  # no share: from the intervals of the runs
        intervals = [score["reward_interval"] for score in scores]
        half = math.hypot(*((high - low) / 2 for low, high in intervals)) / len(scores)
        return Estimate(mean, mean - half, mean + half, 1)
    tasks = sum(score["tasks"] for score in scores)
    return Estimate(mean, *wilson(round(mean * tasks), tasks), 1)


def has_collapsed(run: Run, figure: Figure = "success") -> bool:
    means = [row[drawn_figure(run, figure)] for row in run["curve"]]
    windows = [sum(means[end - WINDOW : end]) / WINDOW for end in range(WINDOW, len(means) + 1)]
    return bool(windows) and windows[-1] < COLLAPSED * max(windows)


def drawn_figure(run: Run, figure: Figure) -> Figure:
    """The figure of a curve: older runs have no rewards of training steps."""
    return figure if all(figure in row for row in run["curve"]) else "success"


def table(runs: Sequence[Run], figure: Figure = "success") -> str:
    arms = arms_of(runs)
    first = final(next(iter(arms.values())), figure)
    other: Figure = "reward" if figure == "success" else "success"
    lines = [
        f"| recipe | before | held-out {NAMES[figure]} (95%) | by seed | difference from the first "
        f"| {other} | turns | million tokens | minutes | collapsed |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, own in arms.items():
        end = final(own, figure)
        cells = [
            f"`{name}`",
            f"{_mean(result(run, 0, figure) for run in own):.1%}",
            with_interval(end.mean, (end.low, end.high)),
            ", ".join(f"{result(run, -1, figure):.1%}" for run in own),
            gap(end, first) if len(lines) > 2 else "",
            f"{mean_of(other, own, 0):.3f} to {mean_of(other, own, -1):.3f}",
            f"{mean_of('turns', own, -1):.1f}",
            f"{_mean(run['tokens'] for run in own) / 1e6:.2f}",
            f"{_mean(map(_minutes, own)):.1f}",
            f"{sum(has_collapsed(run, figure) for run in own)} of {len(own)}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def mean_of(figure: str, runs: Sequence[Run], evaluation: int) -> float:
    """The mean of a figure over all runs and their environments."""
    return _mean(score[figure] for score in scores_of(runs, evaluation))


def scores_of(runs: Sequence[Run], evaluation: int) -> list[dict[str, Any]]:
    """The scores of an evaluation, for each run and environment."""
    scores: list[dict[str, Any]] = []
    for run in runs:
        scores += [env["all"] for env in run["evals"][evaluation]["envs"].values()]
    return scores


def by_category(runs: Sequence[Run]) -> str:
    """One recipe's results by category, over all seeds."""
    lines = [
        f"| category (`{runs[0]['recipe']}`) | tasks | before | after (95%) | reward | turns |",
        "|---|---|---|---|---|---|",
    ]
    for env, scores in runs[0]["evals"][-1]["envs"].items():
        for category in sorted(scores.keys() - {"horizon", "all"}):
            before = [run["evals"][0]["envs"][env][category] for run in runs]
            after = [run["evals"][-1]["envs"][env][category] for run in runs]
            tasks, share = (
                sum(score["tasks"] for score in after),
                _mean(score["success"] for score in after),
            )
            cells = [
                *(category, f"{tasks:.0f}", f"{_mean(score['success'] for score in before):.1%}"),
                with_interval(share, wilson(round(share * tasks), int(tasks))),
                *(
                    f"{_mean(score['reward'] for score in after):.3f}",
                    f"{_mean(score['turns'] for score in after):.1f}",
                ),
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def by_environment(runs: Sequence[Run]) -> str:
    """Each recipe's result in each of its environments, compared with the first recipe there."""
    lines = [
        "| environment | recipe | before | held-out success (95%) | by seed | difference from the "
        "first | million tokens (total) | minutes |",
        "|---|---|---|---|---|---|---|---|",
    ]
    envs: dict[str, None] = {}
    for run in runs:
        envs |= dict.fromkeys(run["evals"][-1]["envs"])
    for env in envs:
        first: Estimate | None = None
        for name, own in arms_of([run for run in runs if env in run["evals"][-1]["envs"]]).items():
            alone = []
            for run in own:
                evals = [{**eval, "envs": {env: eval["envs"][env]}} for eval in run["evals"]]
                alone.append({**run, "evals": evals})
            end = final(alone)
            cells = [
                *(
                    env,
                    f"`{name}`",
                    f"{_mean(result(run, 0) for run in alone):.1%}",
                    with_interval(end.mean, (end.low, end.high)),
                ),
                ", ".join(f"{result(run, -1):.1%}" for run in alone),
                "" if first is None else gap(end, first),
                f"{_mean(run['tokens'] for run in own) / 1e6:.2f}",
                f"{_mean(map(_minutes, own)):.1f}",
            ]
            first = first or end
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def costs(everything: dict[str, Sequence[Run]]) -> str:
    """The cost of a point of held-out success (or score), over all seeds of a recipe."""
    lines = [
        "| comparison | recipe | points gained | thousand tokens per point | seconds per "
        "point | rollouts | updates | machine |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, runs in everything.items():
        for recipe, own in arms_of(runs).items():
            before = _mean(result(run, 0, figure_of(name)) for run in own)
            after = _mean(result(run, -1, figure_of(name)) for run in own)
            points = 100 * (after - before)
            seconds = 60 * _mean(map(_minutes, own))
            playing = (
                _mean(run["seconds"].get("collect", 0) for run in own) / seconds if seconds else 0.0
            )
            a_point = (
                [
                    f"{_mean(run['tokens'] for run in own) / 1e3 / points:.0f}",
                    f"{seconds / points:.1f}",
                ]
                if points > 0
                else ["", ""]
            )
            cells = [
                name,
                f"`{recipe}`",
                f"{points:.1f}",
                *a_point,
                f"{playing:.0%}",
                f"{1 - playing:.0%}",
                own[0]["machine"],
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _minutes(run: Run) -> float:
    """Minutes of training, without evaluation."""
    return float(run["seconds"].get("collect", 0) + run["seconds"].get("learn", 0)) / 60


def gap(one: Estimate, other: Estimate) -> str:
    """A difference in points, with a star if its interval excludes 0."""
    points = difference(one, other)
    low, high = 100 * points.low, 100 * points.high
    return (
        f"{100 * points.mean:+.1f} [{low:+.1f}, {high:+.1f}]{' *' if low > 0 or high < 0 else ''}"
    )


def _mean(numbers: Any) -> float:
    values = list(numbers)
    return sum(values) / len(values)


def provenance(runs: Sequence[Run]) -> str:
    dates = sorted({run["date"] for run in runs})
    machines = sorted({run["machine"] for run in runs})
    versions: set[str] = set()
    for run in runs:
        versions.add(", ".join(f"{name} {number}" for name, number in run["versions"].items()))
    seeds = ", ".join(map(str, sorted({run["seed"] for run in runs})))
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    return f"*Seeds {seeds}; {when}; {'; '.join(machines)}; {'; '.join(sorted(versions))}.*"


def draw(runs: Sequence[Run], path: Path, figure: Figure = "success") -> Path:
    """Draw success (or score) and turns over tokens.

    Thin lines are runs, thick lines means over seeds, dots held-out evaluations.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    picture, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4), layout="constrained")
    for axes, name in ((left, figure), (right, "turns")):
        for number, (recipe, own) in enumerate(arms_of(runs).items()):
            color = f"C{number}"
            axes.plot([], color=color, label=recipe)
            curves = [curve(run, name) for run in own if name in run["curve"][0]]
            for tokens, values in curves:
                axes.plot(tokens, values, color=color, alpha=0.25, linewidth=1)
            if curves:
                axes.plot(*mean_curve(curves), color=color)
            for run in own if axes is left else ():
                held_out = [
                    (measured["tokens"] / 1e6, result(run, place, figure))
                    for place, measured in enumerate(run["evals"])
                ]
                axes.plot(*zip(*held_out, strict=True), "o", color=color, markersize=4)
        axes.set(xlabel="million tokens")
        axes.grid(alpha=0.3)
    left.set_title(f"{NAMES[figure]} in training (lines) and held out (dots)")
    right.set_title("turns per episode")
    left.yaxis.set_major_formatter(matplotlib.ticker.PercentFormatter(1.0))
    left.legend(loc="best")
    picture.savefig(path, dpi=110)
    pyplot.close(picture)
    return path


def curve(run: Run, name: str) -> tuple[list[float], list[float]]:
    """Millions of tokens, and the smoothed metric at each of them."""
    return [row["tokens"] / 1e6 for row in run["curve"]], smoothed(
        [row[name] for row in run["curve"]]
    )


def mean_curve(
    curves: Sequence[tuple[Sequence[float], Sequence[float]]], points: int = 60
) -> tuple[list[float], list[float]]:
    """The mean of runs whose steps differ in tokens, over the range that all of them cover."""
    start, end = max(tokens[0] for tokens, _ in curves), min(tokens[-1] for tokens, _ in curves)
    places = [start + (end - start) * number / (points - 1) for number in range(points)]
    means = []
    for place in places:
        means.append(_mean(_at(tokens, values, place) for tokens, values in curves))
    return places, means


def _at(tokens: Sequence[float], values: Sequence[float], place: float) -> float:
    """Interpolate linearly between the two nearest points."""
    after = next((number for number, own in enumerate(tokens) if own >= place), len(tokens) - 1)
    if after == 0:
        return values[0]
    share = (place - tokens[after - 1]) / (tokens[after] - tokens[after - 1])
    return values[after - 1] + share * (values[after] - values[after - 1])
