import pytest

from palestra.config.optimizer import OptimizerConfig
from palestra.core.seeds import derive_seed
from palestra.core.types import Task
from palestra.rollout.evaluation import held_out
from palestra.training.task_sampler import ShuffledStream


def test_derived_seeds_are_fixed_numbers():
    # the same on every machine and Python version: written down once
    assert derive_seed(0, "episode", 1, 2) == 3_378_810_005_193_648_331
    assert derive_seed(1) != derive_seed("1")
    assert derive_seed(1, 2) != derive_seed(12)
    assert 0 <= derive_seed("x") < 2**63


def test_learning_rate():
    # 2 steps of warm-up: 0.5, 1; then from 1 down to 0.1 over the 4 that are left
    optim = OptimizerConfig(lr=1.0, warmup=2, schedule="linear", final=0.1)
    assert [optim.lr_at(step, 6) for step in range(6)] == pytest.approx(
        [0.5, 1.0, 1.0, 0.775, 0.55, 0.325]
    )
    # cosine half way: (1 + cos(pi / 2)) / 2 = 0.5
    assert OptimizerConfig(lr=2.0, schedule="cosine").lr_at(5, 10) == pytest.approx(1.0)
    assert OptimizerConfig(lr=2.0).lr_at(500, 10) == 2.0


def test_the_stream_of_tasks_has_every_task_once_an_epoch_and_depends_on_the_position_alone():
    tasks = [Task("e", "train", str(i)) for i in range(10)]
    stream = ShuffledStream(tasks, seed=1)
    first, second = stream.slice(0, 10), stream.slice(10, 10)
    assert sorted(first, key=str) == sorted(second, key=str) == sorted(tasks, key=str)
    assert first != second
    assert ShuffledStream(tasks, seed=1).slice(7, 6) == [*first[7:], *second[:3]]
    assert ShuffledStream(tasks, seed=2).slice(0, 10) != first


def test_held_out_is_the_same_in_every_run():
    tasks = [Task("e", "test", str(i)) for i in range(50)]
    assert held_out(tasks, 10) == held_out(tasks, 10)
    assert held_out(tasks, 99) == tasks
