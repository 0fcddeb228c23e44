"""95% intervals of proportions and of means of a few values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

Z = 1.959963984540054
"""Of a two-sided interval of 95%."""

Interval = tuple[float, float]


@cache
def student(freedom: int) -> float:
    """The quantile of Student's t distribution for a two-sided interval of 95%.

    Computed here, since scipy takes 143 MB on the disk, and transformers imports it wherever it
    finds it: 0.4 s of processor time in every process that loads a model.
    """
    low, high = 0.0, math.pi / 2  # of the angle whose tangent is t / sqrt(freedom)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _share_within(middle, freedom) < 0.95 else (low, middle)
    return math.tan(low) * math.sqrt(freedom)


def _share_within(angle: float, freedom: int) -> float:
    """P(|T| < t): Abramowitz and Stegun, 26.7.3 for odd and 26.7.4 for even degrees of freedom."""
    is_odd = freedom % 2
    term = math.cos(angle) if is_odd else 1.0
    total = 0.0
    for k in range(2 + is_odd, freedom + 1, 2):
        total += term
        term *= math.cos(angle) ** 2 * (k - 1) / k
    total *= math.sin(angle)
    return 2 / math.pi * (angle + total) if is_odd else total


def wilson(successes: float, n: int) -> Interval:
    """Wilson's score interval of a proportion: sound for small n and near 0 and 1."""
    if n == 0:
        return (0.0, 1.0)
    p = successes / n
    center = (p + Z * Z / (2 * n)) / (1 + Z * Z / n)
    half = Z / (1 + Z * Z / n) * math.sqrt(p * (1 - p) / n + Z * Z / (4 * n * n))
    return (max(0.0, center - half), min(1.0, center + half))


def t_interval(values: Sequence[float]) -> Interval:
    """Of the mean of two values or more: Student's t, since five tasks at a normal quantile cover
    87% and not 95%.
    """
    n = len(values)
    mean = sum(values) / n
    variance = sum((value - mean) ** 2 for value in values) / (n - 1)
    half = student(n - 1) * math.sqrt(variance / n)
    return (mean - half, mean + half)


def clustered(means: Sequence[float]) -> Interval:
    """The interval of a share over tasks, each of them a mean over its own episodes (which are not
    independent).
    """
    n = len(means)
    if n < 2:
        return (0.0, 1.0)
    if len(set(means)) == 1:  # all alike: that says little about the tasks not tried
        return wilson(sum(means), n)
    low, high = t_interval(means)
    return (max(0.0, low), min(1.0, high))


def unbounded(means: Sequence[float]) -> Interval | None:
    """The same of what has no bounds, such as rewards.

    None of one task alone, and where all are alike: the others may be anything.
    """
    return t_interval(means) if len(set(means)) > 1 else None
