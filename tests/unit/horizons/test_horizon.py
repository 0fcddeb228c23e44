import itertools
import random

import pytest
from pydantic import ValidationError

from palestra.horizons import horizons
from palestra.horizons.adaptive import Adaptive
from palestra.horizons.base import Progress
from palestra.horizons.fixed import Fixed
from palestra.horizons.linear import Linear
from palestra.horizons.scaling_inter import Stages

SCHEDULES = [
    Fixed(turns=7),
    Stages(turns=(10, 20, 30), every=100),
    Stages(turns=(6, 13, 20), every=1),
    Linear(first=5, last=30, steps=250),
    Linear(first=4, last=4, steps=3),
    Adaptive(turns=(5, 10, 20), window=5, gate=0.6, fall=0.3),
]

SUCCESS = tuple(
    random.Random(7).betavariate(2, 2) * min(1.0, 0.4 + step / 300) for step in range(401)
)
"""A run that rises, with ups and downs."""


def at(step):
    return Progress(step, SUCCESS[:step])


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_resuming_at_any_step_gives_the_horizon_of_never_stopping(schedule):
    uninterrupted = [schedule(at(step)) for step in range(401)]
    for stopped_at in range(1, 401):
        fresh = type(schedule).model_validate(
            schedule.model_dump()
        )  # a new process knows only the settings and the checkpoint
        assert [fresh(at(step)) for step in (stopped_at, min(stopped_at + 1, 400))] == [
            uninterrupted[stopped_at],
            uninterrupted[min(stopped_at + 1, 400)],
        ]


def test_every_schedule_is_tried_above():
    assert {schedule.kind for schedule in SCHEDULES} == set(horizons.names())


def test_stages_of_the_paper():
    schedule = Stages(turns=(10, 20, 30), every=100)
    # steps done:   0   99   100  101  199  200  5000
    assert [schedule(Progress(step)) for step in (0, 99, 100, 101, 199, 200, 5000)] == [
        10,
        10,
        20,
        20,
        20,
        30,
        30,
    ]
    assert [schedule.stage(Progress(step)) for step in (0, 100, 200)] == [1, 2, 3]
    assert schedule.full == 30


def test_linear_grows_in_equal_strides():
    schedule = Linear(first=2, last=6, steps=8)
    assert [schedule(Progress(step)) for step in range(10)] == [2, 2, 3, 3, 4, 4, 5, 5, 6, 6]


@pytest.mark.parametrize(
    "bad", [{"turns": (3, 2), "every": 1}, {"turns": (), "every": 1}, {"turns": (3,), "every": 0}]
)
def test_stages_refuse(bad):
    with pytest.raises(ValidationError):
        Stages(**bad)


def stages(schedule, *success):
    """The stage before each step and after the last one."""
    return [schedule.stage(Progress(step, success[:step])) for step in range(len(success) + 1)]


def test_adaptive_goes_on_at_the_gate_and_back_at_a_breakdown():
    schedule = Adaptive(turns=(5, 10, 20), window=2, gate=0.6, fall=0.2, plateau=None)
    # means of two: .55 no, .65 on (2); .7 on (3), the last; .6 and .5 stay, .4 is less than .7 -
    # .2: back (2)
    # the gate of stage 2 is now (.7 + 1) / 2 = .85: .75 is not enough, .9 is
    success = (0.5, 0.6, 0.7, 0.7, 0.7, 0.6, 0.6, 0.4, 0.4, 0.7, 0.8, 1.0, 0.9)
    assert stages(schedule, *success) == [1, 1, 1, 2, 2, 3, 3, 3, 3, 2, 2, 2, 3, 3]
    assert set(stages(schedule, *[0.45] * 50)) == {1}  # time alone does nothing
    assert schedule.full == 20


def test_adaptive_goes_on_at_a_plateau_but_never_by_time_alone():
    schedule = Adaptive(turns=(5, 10), window=2, gate=0.9, plateau=0.01)
    # windows of two: .2 then .2 differ by nothing -> on after four steps; rising ones (.1 -> .3) do
    # not count
    assert stages(schedule, 0.2, 0.2, 0.2, 0.2) == [1, 1, 1, 1, 2]
    assert set(stages(schedule, *[0.02 * step for step in range(40)])) == {1}


def test_adaptive_passes_a_stage_too_short_to_succeed_in():
    """Hardly anything can be done in few turns: plateaus lead to where it can."""
    schedule = Adaptive(turns=(5, 10, 20), window=3, gate=0.9)
    success, found = [], []
    for step in range(40):
        found.append(schedule.stage(Progress(step, tuple(success))))
        success.append((0.10, 0.15, 0.5)[found[-1] - 1])
    assert found[-1] == 3


@pytest.mark.parametrize("by_stage", [(0.7, 0.1), (0.5, 0.1), (0.95, 0.2)])
def test_adaptive_does_not_swing_for_ever(by_stage):
    """The longer horizon breaks the agent down: each time it takes more to go there again."""
    schedule = Adaptive(turns=(5, 10), window=4, gate=0.6)
    success, found = [], []
    for step in range(300):
        found.append(schedule.stage(Progress(step, tuple(success))))
        success.append(by_stage[found[-1] - 1])
    assert sum(now != then for now, then in itertools.pairwise(found)) <= 4
    assert set(found[-100:]) == {1}


@pytest.mark.parametrize("bad", [{"turns": (5,)}, {"turns": (5, 5)}, {"turns": (5, 9), "fall": 0}])
def test_adaptive_refuses(bad):
    with pytest.raises(ValidationError):
        Adaptive(**bad)


GATES = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]


@pytest.mark.parametrize("window", [3, 6, 7, 10])
@pytest.mark.parametrize("gate", GATES)
def test_a_success_of_exactly_the_gate_opens_it(gate, window):
    """Ten times 0.6 add up to 5.999999999999999 in floats."""
    schedule = Adaptive(turns=(5, 10), window=window, gate=gate, plateau=None)
    assert schedule.stage(Progress(window, (gate,) * window)) == 2
    uneven = (gate - 0.05, gate + 0.05) * (window // 2) + (gate,) * (window % 2)
    assert schedule.stage(Progress(window, uneven)) == 2
    below = (gate,) * (window - 1) + (gate - 0.001,)
    assert schedule.stage(Progress(window, below)) == 1


def test_a_fall_of_exactly_the_bound_is_none_and_a_plateau_of_exactly_the_bound_is_one():
    schedule = Adaptive(turns=(5, 10), window=1, gate=0.9, fall=0.3, plateau=None)
    assert schedule.stage(Progress(2, (0.9, 0.6))) == 2  # 0.9 - 0.3 is 0.6000000000000001
    assert schedule.stage(Progress(2, (0.9, 0.599))) == 1
    flat = Adaptive(turns=(5, 10), window=1, gate=0.9, fall=0.3, plateau=0.1)
    assert flat.stage(Progress(2, (0.3, 0.4))) == 2  # 0.4 - 0.3 is 0.10000000000000003
    assert flat.stage(Progress(2, (0.3, 0.402))) == 1
