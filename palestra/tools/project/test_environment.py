"""Run with: python -m pytest"""

from environment import Treasure

import palestra


def test_the_environment_keeps_the_contract():
    broken = [check for check in palestra.check_environment(Treasure) if not check.ok]
    assert broken == []


def test_the_expert_finds_every_treasure():
    env = Treasure()
    for task in env.tasks("test"):
        env.reset(task)
        for _ in range(env.max_turns):
            step = env.step(env.expert())
            if step.terminated:
                break
        assert step.success, task.id
