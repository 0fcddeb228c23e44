"""When a bound of the collapse guard is broken, with the means worked out by hand."""

import pytest

from palestra.config.config import build
from palestra.config.guard import GuardSettings
from palestra.core.errors import ConfigError
from palestra.runs.state import Memory
from palestra.training.guard import watch


def watched(settings, rows):
    """The bounds that each step breaks."""
    memory, broken = Memory(), []
    for row in rows:
        memory, found = watch(settings, memory, row)
        assert memory.broken == tuple(found)
        broken.append(list(found))
    return broken


def test_entropy_falls():
    # means over 3: (0.9+0.6+0.3)/3 = 0.6; (0.6+0.3+0.3)/3 = 0.4; (0.3+0.3+0.9)/3 = 0.5, which is
    # not below 0.5
    settings = GuardSettings(window=3, entropy_below=0.5)
    rows = [{"policy/entropy": value} for value in (0.9, 0.6, 0.3, 0.3, 0.9)]
    assert watched(settings, rows) == [[], [], [], ["entropy_below"], []]


def test_a_window_that_is_not_full_binds_nothing():
    assert watched(GuardSettings(window=3, grad_norm_above=1.0), [{"grad_norm": 100.0}] * 3) == [
        [],
        [],
        ["grad_norm_above"],
    ]


def test_dead_groups_and_mismatch_at_once():
    # dead: (0.5+1.0)/2 = 0.75, not above 0.75; (1.0+1.0)/2 = 1. mismatch: (0.01+0.03)/2 = 0.02
    # above 0.015; (0.03+0.0)/2 = 0.015 not
    settings = GuardSettings(window=2, zero_advantage_above=0.75, mismatch_above=0.015)
    rows = [
        {"groups/zero_advantage": d, "policy/mismatch_kl": m}
        for d, m in ((0.5, 0.01), (1.0, 0.03), (1.0, 0.0))
    ]
    assert watched(settings, rows) == [[], ["mismatch_above"], ["zero_advantage_above"]]


def test_success_falls_from_its_best():
    # means over 2: 0.3, 0.5 (the best), 0.45, 0.25 (0.25 below the best), 0.35 (0.15 below), 0.8
    # (the new best), 0.5 (0.3 below)
    settings = GuardSettings(window=2, success_fall=0.2)
    rows = [{"success": value} for value in (0.2, 0.4, 0.6, 0.3, 0.2, 0.5, 1.1, -0.1)]
    assert watched(settings, rows) == [[], [], [], [], ["success_fall"], [], [], ["success_fall"]]


@pytest.mark.parametrize("window", range(1, 12))
@pytest.mark.parametrize("tenths", range(1, 10))
def test_a_mean_of_exactly_the_bound_keeps_it(tenths, window):
    """Sums of floats are not exact: three times 0.1 is more than 0.3."""
    share = tenths / 10
    above = [{"groups/zero_advantage": share}] * window
    assert watched(GuardSettings(window=window, zero_advantage_above=share), above)[-1] == []
    fallen = [{"success": 1.0}] * window + [{"success": 1 - share}] * window
    assert watched(GuardSettings(window=window, success_fall=share), fallen)[-1] == []
    further = [*fallen[:-1], {"success": 0.99 - share}]
    settings = GuardSettings(window=window, success_fall=share)
    assert watched(settings, further)[-1] == ["success_fall"]


def test_a_step_without_the_figure_leaves_the_window_as_it_was():
    # the two that count: 0.1 and 0.2
    settings = GuardSettings(window=2, entropy_below=0.16)
    assert watched(settings, [{"policy/entropy": 0.1}, {}, {"policy/entropy": 0.2}, {}]) == [
        [],
        [],
        ["entropy_below"],
        ["entropy_below"],
    ]


def test_what_it_says():
    memory = Memory(recent={"success_fall": (0.5,)}, best_success=0.625, rollbacks=2)
    memory, broken = watch(GuardSettings(window=2, success_fall=0.25), memory, {"success": 0.125})
    assert broken == {
        "success_fall": "success was 0.3125 over 2 steps, below 0.375 (guard.success_fall)"
    }
    assert memory == Memory(
        recent={"success_fall": (0.5, 0.125)},
        best_success=0.625,
        broken=("success_fall",),
        rollbacks=2,
    )


@pytest.mark.parametrize(
    ("tree", "reason"),
    [
        ({"guard": {}}, "^guard.*: no bound is set, so it has no effect"),
        (
            {"guard": {"entropy_below": 0.1, "rollbacks": 2}},
            "guard.rollbacks = 2: has no effect with action = 'warn'",
        ),
        (
            {"guard": {"zero_advantage_above": 1.5}},
            "guard.zero_advantage_above = 1.5: expected a value less than 1",
        ),
        (
            {"guard": {"success_fall": 0.1}, "algo": {"name": "sft"}},
            "guard.success_fall = 0.1: has no effect, sft",
        ),
        (
            {"guard": {"mismatch_above": 0.1}, "rollout": {"prefetch": 1}},
            "guard.mismatch_above = 0.1: has no effect where all",
        ),
        (
            {"guard": {"entropy_below": 0.1, "action": "rollback"}, "algo": {"name": "sft"}},
            "sft would go the same way again",
        ),
        (
            {"guard": {"entropy_below": 0.1, "action": "rollback"}, "rollout": {"partial": 2}},
            "groups in flight .rollout.partial = 2. cannot",
        ),
        (
            {"guard": {"entropy_below": 0.1, "action": "rollback", "window": 60}},
            "guard.window = 60: .* and is 50",
        ),
        (
            {"guard": {"entropy_below": 0.1, "action": "rollback"}, "save": {"keep": 1}},
            "guard.window = 10: .* and is 0",
        ),
    ],
)
def test_what_has_no_effect_is_an_error(tree, reason):
    with pytest.raises(ConfigError, match=reason):
        build({"env": {"name": "tests.support.environments:Echo"}} | tree)
