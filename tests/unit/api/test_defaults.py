"""What is chosen for a run without a recipe."""

import dataclasses

import pytest

import palestra
from tests.support.environments import Echo


def test_flags_of_a_table_are_not_replaced_by_what_is_chosen_for_it():
    flags = {
        "horizon.kind": "stages",
        "horizon.turns": [3, 6],
        "horizon.every": 5,
        "warm_start.noise": 0.5,
    }
    config = palestra.configure("guess", **flags)
    assert config.horizon == palestra.Stages(turns=[3, 6], every=5)
    assert config.warm_start == palestra.WarmStart(noise=0.5)


def test_a_table_without_flags_is_chosen():
    config = palestra.configure("guess", steps=3)
    assert config.horizon == palestra.Fixed(turns=20)
    assert config.warm_start == palestra.WarmStart(
        episodes=300, batch=8, updates=200, check_every=20
    )


def test_a_context_alone_leaves_room_for_a_reply():
    config = palestra.configure("guess", **{"agent.context_tokens": 16})
    assert (config.agent.context_tokens, config.agent.reply_tokens) == (16, 8)
    config = palestra.configure("guess", agent={"context_tokens": 200})
    assert config.agent.reply_tokens < 100
    with pytest.raises(palestra.UserError, match="must be below context_tokens"):
        palestra.configure("guess", agent={"context_tokens": 200, "reply_tokens": 300})


class Unsolvable(Echo):
    """Its tasks never end with success = True."""

    def step(self, action):
        return dataclasses.replace(super().step(action), success=None)


def test_an_expert_that_solves_nothing_is_one_line_that_says_what_to_check(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(palestra.UserError, match="vocabulary.* must have the words of its actions"):
        palestra.train(Unsolvable, steps=1, display="none")
