"""Intervals and differences of a report, worked out by hand; runs that belong together."""

import math

import pytest

from palestra.core.intervals import student
from palestra.core.tables import Table, markdown_text
from palestra.rollout.evaluation import wilson
from palestra.tools.report.compare import (
    Estimate,
    difference,
    differing,
    groups_of,
    over_runs,
)
from palestra.tools.report.content import clock
from palestra.tools.report.read import Record


def test_over_runs():
    # mean 0.6; deviations -.1 0 .1; variance .02/2 = .01, of the mean .01/3; half 4.303 *
    # sqrt(.0033333) = .24843
    estimate = over_runs([0.5, 0.6, 0.7])
    assert (estimate.mean, estimate.runs) == (pytest.approx(0.6), 3)
    assert (estimate.low, estimate.high) == (
        pytest.approx(0.35157, abs=1e-4),
        pytest.approx(0.84843, abs=1e-4),
    )
    assert math.isinf(over_runs([0.5]).high)


def test_student():
    # from tables of 97.5% quantiles; 1.962 is the one of 1,000 degrees of freedom
    known = {1: 12.7062, 2: 4.3027, 3: 3.1824, 16: 2.1199, 17: 2.1098, 30: 2.0423, 100: 1.9840}
    for freedom, quantile in {**known, 1000: 1.9623}.items():
        assert student(freedom) == pytest.approx(quantile, abs=5e-5)


def test_between_whole_degrees_of_freedom_the_wider_interval_is_taken():
    # variances .01/2 and .04/2: freedom .025^2 / (.005^2 + .02^2) = 1.47, so that of 1, 12.7062
    one, other = over_runs([0.1, 0.1 + 0.02**0.5]), over_runs([0.5, 0.5 + 0.08**0.5])
    gap = difference(one, other)
    half = 12.7062 * math.sqrt(one.variance + other.variance)
    assert (gap.high - gap.low) / 2 == pytest.approx(half, rel=1e-4)


def test_welch():
    # variances of the means: .01/3 each, together .0066667; freedom 4; half 2.776 * .0816497 =
    # .22666
    gap = difference(over_runs([0.7, 0.8, 0.9]), over_runs([0.5, 0.6, 0.7]))
    assert (gap.mean, gap.low, gap.high) == pytest.approx((0.2, -0.02666, 0.42666), abs=1e-4)


def test_newcombe():
    # Newcombe 1998, table II, method 10, example (a): 56/70 - 48/80 = 0.2, [0.0524, 0.3339]
    gap = difference(Estimate(0.8, *wilson(56, 70), 1), Estimate(0.6, *wilson(48, 80), 1))
    assert (gap.mean, gap.low, gap.high) == pytest.approx((0.2, 0.0524, 0.3339), abs=1e-4)


def record(tmp_path, name, **config):
    return Record(tmp_path / name, {"steps": 3, "optim": {"lr": 0.1}, **config}, "", [], [], [])


def test_groups(tmp_path):
    runs = [
        record(tmp_path, "a-0", seed=0),
        record(tmp_path, "b-0", seed=0, optim={"lr": 0.2}),
        record(tmp_path, "a-1", seed=1, track={"names": ["wandb"]}),
        record(tmp_path, "a-0", seed=0, steps=4),
    ]
    groups = groups_of(runs)
    assert [(group.name, [run.name for run in group.runs]) for group in groups] == [
        ("a", ["a-0", "a-1"]), ("b-0", ["b-0"]), ("a-0", ["a-0"]),
    ]  # fmt: skip
    assert differing(groups) == [("optim.lr", ["0.1", "0.2", "0.1"]), ("steps", ["3", "3", "4"])]
    same = groups_of([record(tmp_path, "a", steps=n) for n in (1, 2, 3)])
    assert [group.name for group in same] == ["a", "a (2)", "a (3)"]


def test_markdown_cannot_be_broken_out_of():
    assert (
        markdown_text("a|b\n<script> [x](javascript:1) `")
        == "a&#124;b &lt;script&gt; [x]&#40;javascript:1) &#96;"
    )
    assert Table(["a"], [["1|2"]]).markdown() == "| a |\n| --- |\n| 1&#124;2 |"


def test_clock():
    assert clock(3723.4) == "1:02:03"
