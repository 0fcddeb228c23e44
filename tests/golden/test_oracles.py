"""Every algorithm against an independent oracle in plain numpy, trajectory by trajectory, on random batches."""

import math

import numpy as np
import pytest
import torch

from palestra.algos import algos
from palestra.algos.base import Prediction
from palestra.batch import pack
from tests.helpers import trajectory


def random_groups(rng):
    return [
        [
            trajectory(("see", [3]), ("say", [4] * int(rng.integers(1, 6))), ("see", [5]), reward=float(rng.choice([0, 0.25, 1])))
            for _ in range(int(rng.integers(2, 6)))
        ]
        for _ in range(4)
    ]


def oracle_credit(name, groups):
    """One number for each trajectory, by the formulas of the papers."""
    credit = []
    for group in groups:
        rewards = np.array([t.reward for t in group])
        for i, reward in enumerate(rewards):
            others = np.delete(rewards, i)
            deviation = rewards.std(ddof=1)
            by_name = {
                "grpo": (reward - rewards.mean()) / (deviation + 1e-6),
                "gspo": (reward - rewards.mean()) / (deviation + 1e-6),
                "cispo": (reward - rewards.mean()) / (deviation + 1e-6),
                "dr_grpo": reward - rewards.mean(),
                "rloo": reward - others.mean(),
                "gigpo": (reward - rewards.mean()) / (deviation + 1e-6),
                "reinforce_pp": reward,
            }
            credit.append(by_name[name])
    return np.array(credit)


def oracle_loss(name, groups, new, old):
    """The loss of the whole batch, one trajectory at a time."""
    lengths = [t.sampled_tokens for group in groups for t in group]
    credit = np.repeat(oracle_credit(name, groups), lengths)
    if name == "gigpo":  # every trajectory has one turn, and all of a group begin alike: the step credit equals the episode's
        credit = 2 * credit
    if name == "reinforce_pp":
        credit = (credit - credit.mean()) / (credit.std(ddof=1) + 1e-8)
    per_trajectory, start = [], 0
    for length in lengths:
        own = slice(start, start + length)
        log_ratio, advantage = new[own] - old[own], credit[own]
        if name == "gspo":
            log_ratio = np.full(length, log_ratio.mean())
        ratio = np.exp(log_ratio)
        low, high = {"gspo": (3e-4, 4e-4), "cispo": (1.0, 0.28)}.get(name, (0.2, 0.2))
        clipped = np.clip(ratio, 1 - low, 1 + high)
        if name == "cispo":
            per_trajectory.append(-clipped * advantage * new[own])
        else:
            per_trajectory.append(-np.minimum(ratio * advantage, clipped * advantage))
        start += length
    if name == "gspo":
        return np.mean([loss.mean() for loss in per_trajectory])
    if name == "dr_grpo":
        return np.sum([loss.sum() for loss in per_trajectory]) / (len(per_trajectory) * 256)
    return np.concatenate(per_trajectory).mean()


@pytest.mark.parametrize("name", algos.names())
@pytest.mark.parametrize("seed", range(5))
def test_agrees_with_the_oracle(name, seed):
    rng = np.random.default_rng(seed)
    groups = random_groups(rng)
    algo = algos[name]()
    batch = pack(groups)
    old = rng.normal(-1, 0.3, len(batch.owner_C))
    new = old + rng.normal(0, 0.3, len(old))
    batch = batch.with_(old_logp_C=torch.tensor(old), advantage_C=algo.advantages(batch).double())
    loss_C, _ = algo.loss(Prediction(torch.tensor(new), torch.zeros(len(new))), batch)
    assert math.isclose((loss_C * algo.weights(batch)).sum().item(), oracle_loss(name, groups, new, old), rel_tol=1e-6, abs_tol=1e-6)


@pytest.mark.parametrize("name", algos.names())
def test_a_terminal_reward_after_trailing_observation_tokens_tells_success_from_failure(name):
    won = trajectory(("see", [1]), ("say", [2, 3]), ("see", [4, 5, 6]), reward=1.0)
    lost = trajectory(("see", [1]), ("say", [2, 3]), ("see", [4, 5, 6]), reward=0.0)
    batch = pack([[won, lost]])
    advantage = algos[name]().advantages(batch)
    assert advantage[batch.owner_C == 0].min() > advantage[batch.owner_C == 1].max()


@pytest.mark.parametrize("name", algos.names())
def test_the_scale_of_rewards_does_not_change_who_is_credited(name):
    rng = np.random.default_rng(1)
    groups = random_groups(rng)
    algo = algos[name]()
    once, thrice = algo.advantages(pack(groups)), algo.advantages(pack(groups, lambda turn: 3 * turn.reward))
    assert torch.equal(once.sign(), thrice.sign())
