import pytest
from pydantic import ValidationError

from palestra.horizon import Fixed, Linear, Progress, Stages, horizons

SCHEDULES = [
    Fixed(turns=7),
    Stages(turns=(10, 20, 30), every=100),
    Stages(turns=(6, 13, 20), every=1),
    Linear(first=5, last=30, steps=250),
    Linear(first=4, last=4, steps=3),
]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_resuming_at_any_step_gives_the_horizon_of_never_stopping(schedule):
    uninterrupted = [schedule(Progress(step)) for step in range(401)]
    for stopped_at in range(1, 401):
        fresh = type(schedule).model_validate(schedule.model_dump())  # a new process knows only the settings and the checkpoint
        assert [fresh(Progress(step)) for step in (stopped_at, min(stopped_at + 1, 400))] == [
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
