"""95% intervals of proportions and of means of a few values."""

from __future__ import annotations

import math
from collections.abc import Sequence

Z = 1.959963984540054
"""Of a two-sided interval of 95%."""

T_95 = (
    12.706,
    4.303,
    3.182,
    2.776,
    2.571,
    2.447,
    2.365,
    2.306,
    2.262,
    2.228,
    2.201,
    2.179,
    2.160,
    2.145,
    2.131,
    2.120,
)
"""Student's t of a two-sided interval of 95%, for 1 to 16 degrees of freedom."""

Interval = tuple[float, float]


def student(freedom: float) -> float:
    """The quantile for a 95% interval; between whole degrees of freedom the lower one, which is the
    wider.
    """
    if freedom < 1:
        return math.inf
    if freedom <= len(T_95):
        return T_95[int(freedom) - 1]
    n, z = freedom, Z  # Cornish and Fisher's expansion: right to 1e-3 from here on
    return z + (z**3 + z) / (4 * n) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)


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
