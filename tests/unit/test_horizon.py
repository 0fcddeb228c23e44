import random

import pytest
from pydantic import ValidationError

from palestra.horizon import Adaptive, Fixed, Linear, Progress, Stages, horizons

SCHEDULES = [
    Fixed(turns=7),
    Stages(turns=(10, 20, 30), every=100),
    Stages(turns=(6, 13, 20), every=1),
    Linear(first=5, last=30, steps=250),
    Linear(first=4, last=4, steps=3),
    Adaptive(turns=(5, 10, 20), window=5, gate=0.6, fall=0.3),
]

SUCCESS = tuple(random.Random(7).betavariate(2, 2) * min(1.0, 0.4 + step / 300) for step in range(401))
"""A run that rises, with ups and downs."""


def at(step):
    return Progress(step, SUCCESS[:step])


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_resuming_at_any_step_gives_the_horizon_of_never_stopping(schedule):
    uninterrupted = [schedule(at(step)) for step in range(401)]
    for stopped_at in range(1, 401):
        fresh = type(schedule).model_validate(schedule.model_dump())  # a new process knows only the settings and the checkpoint
        assert [fresh(at(step)) for step in (stopped_at, min(stopped_at + 1, 400))] == [
            uninterrupted[stopped_at],
            uninterrupted[min(stopped_at + 1, 400)],
        ]


def test_every_schedule_is_tried_above():
    assert {schedule.kind for schedule in SCHEDULES} == set(horizons.names())


def test_stages_of_the_paper():
    schedule = Stages(turns=(10, 20, 30), every=100)
    # steps done:   0   99   100  101  199  200  5000
    assert [schedule(Progress(step)) for step in (0, 99, 100, 101, 199, 200, 5000)] == [10, 10, 20, 20, 20, 30, 30]
    assert [schedule.stage(Progress(step)) for step in (0, 100, 200)] == [0, 1, 2]
    assert schedule.full == 30


def test_linear_grows_in_equal_strides():
    schedule = Linear(first=2, last=6, steps=8)
    assert [schedule(Progress(step)) for step in range(10)] == [2, 2, 3, 3, 4, 4, 5, 5, 6, 6]


@pytest.mark.parametrize("bad", [{"turns": (3, 2), "every": 1}, {"turns": (), "every": 1}, {"turns": (3,), "every": 0}])
def test_stages_refuse(bad):
    with pytest.raises(ValidationError):
        Stages(**bad)


def stages(schedule, *success):
    """The stage before each step and after the last one."""
    return [schedule.stage(Progress(step, success[:step])) for step in range(len(success) + 1)]


def test_adaptive_goes_on_at_the_gate_and_back_at_a_breakdown():
    schedule = Adaptive(turns=(5, 10, 20), window=2, gate=0.6, fall=0.3, plateau=None)
    # means of two: .55 no, .65 yes; then .7 yes (last stage); then .4 stays, .2 back; .45 stays, .8 on again
    assert stages(schedule, 0.5, 0.6, 0.7, 0.7, 0.7, 0.5, 0.3, 0.1, 0.4, 0.5, 1.0, 0.6) == [0, 0, 0, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2]
    # between fall and gate nothing moves, however long it lasts
    assert set(stages(schedule, *[0.45] * 50)) == {0}
    assert schedule.full == 20


def test_adaptive_goes_on_at_a_plateau_but_never_by_time_alone():
    schedule = Adaptive(turns=(5, 10), window=2, gate=0.9, fall=0.1, plateau=0.01)
    # windows of two: .2 then .2 differ by nothing -> on after four steps; rising ones (.1 -> .3) do not count
    assert stages(schedule, 0.2, 0.2, 0.2, 0.2) == [0, 0, 0, 0, 1]
    assert set(stages(schedule, *[0.02 * step for step in range(40)])) == {0}


def test_adaptive_does_not_swing_on_a_plateau():
    """The longer horizon breaks the agent down: after going back, only success leads there again."""
    schedule = Adaptive(turns=(5, 10), window=2, gate=0.9, fall=0.3, plateau=0.01)
    found = stages(schedule, *[0.5] * 4, *[0.1] * 2, *[0.5] * 30, 0.95, 0.95)
    assert (found[4], found[6], set(found[6:-1]), found[-1]) == (1, 0, {0}, 1)


@pytest.mark.parametrize("bad", [{"turns": (5,)}, {"turns": (5, 5)}, {"turns": (5, 9), "gate": 0.3, "fall": 0.3}])
def test_adaptive_refuses(bad):
    with pytest.raises(ValidationError):
        Adaptive(**bad)
