"""Comparison of runs: those that differ only in the seed are one group, and groups are compared
with confidence intervals.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from palestra.core.evaluation import Score
from palestra.core.intervals import student
from palestra.core.tables import scores
from palestra.runs.reader import group_names, settings_that_count
from palestra.tools.report.read import Record


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean with its 95% interval."""

    mean: float
    low: float
    high: float
    runs: int
    """1: the interval is over the tasks of one run; more: over runs."""
    variance: float = 0.0
    """Of the mean, over runs."""

    def within(self, low: float, high: float) -> Estimate:
        return Estimate(
            self.mean, max(self.low, low), min(self.high, high), self.runs, self.variance
        )


@dataclass(frozen=True)
class RunGroup:
    """Runs whose configurations differ in nothing but the seed."""

    name: str
    runs: list[Record]

    def finals(self) -> dict[tuple[str, str], Estimate]:
        """Success of the last evaluation, by environment and category ("" for all tasks)."""
        found: dict[tuple[str, str], list[Score]] = {}
        for run in self.runs:
            if run.last_eval is None:
                continue
            for env, _, category, score in scores(run.last_eval):
                found.setdefault((env, category), []).append(score)
        return {key: _of_scores(own) for key, own in found.items()}


def _of_scores(found: list[Score]) -> Estimate:
    if len(found) == 1:
        low, high = found[0].success_interval
        return Estimate(found[0].success, low, high, 1)
    return over_runs([score.success for score in found]).within(0.0, 1.0)


def over_runs(values: Sequence[float]) -> Estimate:
    """The mean and its t-interval. The interval of a single value is infinite."""
    n = len(values)
    mean = sum(values) / n
    if n == 1:
        return Estimate(mean, -math.inf, math.inf, n, math.inf)
    variance = sum((value - mean) ** 2 for value in values) / (n - 1) / n
    half = student(n - 1) * math.sqrt(variance)
    return Estimate(mean, mean - half, mean + half, n, variance)


def difference(one: Estimate, other: Estimate) -> Estimate:
    """`one` minus `other`, with Welch's interval over runs if both have several; else with an
    interval from the two intervals (Newcombe's method 10).
    """
    gap = one.mean - other.mean
    if one.runs > 1 and other.runs > 1:
        variance = one.variance + other.variance
        if variance == 0:
            return Estimate(gap, gap, gap, min(one.runs, other.runs))
        # The Welch-Satterthwaite equation.
        spread = one.variance**2 / (one.runs - 1) + other.variance**2 / (other.runs - 1)
        freedom = variance**2 / spread
        # Between whole degrees of freedom the lower one, which is the wider.
        half = student(max(1, int(freedom))) * math.sqrt(variance)
        return Estimate(gap, gap - half, gap + half, min(one.runs, other.runs), variance)
    low = gap - math.hypot(one.mean - one.low, other.high - other.mean)
    high = gap + math.hypot(one.high - one.mean, other.mean - other.low)
    return Estimate(gap, low, high, 1)


def runs_of(groups: list[RunGroup]) -> list[Record]:
    """The runs of all groups."""
    runs: list[Record] = []
    for group in groups:
        runs += group.runs
    return runs


def groups_of(runs: list[Record]) -> list[RunGroup]:
    """The groups, in the order of their first runs."""
    names = group_names([(run.name, run.config) for run in runs])
    groups: dict[str, RunGroup] = {}
    for run, name in zip(runs, names, strict=True):
        groups.setdefault(name, RunGroup(name, [])).runs.append(run)
    return list(groups.values())


def differing(groups: list[RunGroup]) -> list[tuple[str, list[str]]]:
    """The settings in which groups differ, with each group's value."""
    trees = [dict(_flat(settings_that_count(group.runs[0].config))) for group in groups]
    rows: list[tuple[str, list[str]]] = []
    for name in sorted(set().union(*trees)):
        values = [str(tree.get(name, "-")) for tree in trees]
        if len(set(values)) > 1:
            rows.append((name, values))
    return rows


def _flat(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
