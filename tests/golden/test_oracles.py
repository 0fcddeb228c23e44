"""Every algorithm against an independent oracle in plain numpy, trajectory by trajectory, on random
batches.
"""

import math

import numpy as np
import pytest
import torch

from palestra.algos import algos
from palestra.algos.base import PolicyOutput
from palestra.core.types import Stop
from tests.support.batches import ready, trajectory

POLICY = [
    *("grpo", "dr_grpo", "gspo", "cispo", "gigpo", "rloo", "reinforce_pp"),
    *("ppo", "remax", "mt_grpo"),
]
IMITATION = ["sft", "rft", "evol"]


def random_groups(rng, sizes=(2, 6)):
    """Trajectories of one turn, some of them cut by the horizon."""
    return [
        [
            trajectory(
                ("see", [3]), ("say", rng.integers(4, 9, int(rng.integers(1, 6))).tolist()), ("see",
                [5]),
                reward=float(rng.choice([0, 0.25, 1])),
                stop=Stop.HORIZON if rng.random() < 0.3 else Stop.DONE,
            )
            for _ in range(int(rng.integers(*sizes)))
        ]
        for _ in range(4)
    ]  # fmt: skip


def chosen(member):
    (segment,) = member.segments
    return np.array(
        [token for token, was_chosen in zip(segment.ids, segment.mask, strict=True) if was_chosen],
        dtype=float,
    )


SETTINGS = {"ppo": {"level": "token", "gamma": 0.9, "lam": 0.95}}


def oracle_gae(member, gamma=0.9, lam=0.95):
    """Backwards, one token at a time.

    Values and what comes after are those of `tests.support.batches.ready`.
    """
    values = 0.06 * chosen(member)
    after, trace, advantages = (0.3 if member.stop is Stop.HORIZON else 0.0), 0.0, []
    for place in reversed(range(len(values))):
        reward = member.reward if place == len(values) - 1 else 0.0
        trace = reward + gamma * after - values[place] + gamma * lam * trace
        after = values[place]
        advantages.insert(0, trace)
    return np.array(advantages)


def oracle_credit(name, groups):
    """The advantage of each token, by the formulas of the papers."""
    add_advantages = []
    for number, group in enumerate(groups):
        rewards = np.array([member.reward for member in group])
        centered, deviation = rewards - rewards.mean(), rewards.std(ddof=1) + 1e-6
        others = np.array([np.delete(rewards, i).mean() for i in range(len(rewards))])
        by_name = {
            "grpo": centered / deviation, "gspo": centered / deviation,
            "cispo": centered / deviation, "dr_grpo": centered,
            # one turn each, and all of a group begin alike: the step credit equals the episode's
            "gigpo": 2 * centered / deviation,
            # with one turn they are the same
            "rloo": rewards - others, "mt_grpo": rewards - others,
            "remax": rewards - (0.4 + 0.1 * number), "reinforce_pp": rewards,
        }  # fmt: skip
        for i, member in enumerate(group):
            add_advantages.append(
                oracle_gae(member)
                if name == "ppo"
                else np.full(len(chosen(member)), by_name[name][i])
            )
    return add_advantages


def oracle_loss(name, groups, new, old, new_value):
    """The loss of the whole batch, one trajectory at a time."""
    add_advantages = oracle_credit(name, groups)
    lengths = [len(own) for own in add_advantages]
    if name in ("reinforce_pp", "ppo"):
        together = np.concatenate(add_advantages)
        add_advantages = [
            (own - together.mean()) / (together.std(ddof=1) + 1e-8) for own in add_advantages
        ]
    per_trajectory, starts = [], np.cumsum([0, *lengths])
    members = [member for group in groups for member in group]
    for member, start, length, advantage in zip(
        members, starts, lengths, add_advantages, strict=False
    ):
        own = slice(start, start + length)
        log_ratio = new[own] - old[own]
        if name == "gspo":
            log_ratio = np.full(length, log_ratio.mean())
        ratio = np.exp(log_ratio)
        low, high = {"gspo": (3e-4, 4e-4), "cispo": (1.0, 0.28)}.get(name, (0.2, 0.2))
        clipped = np.clip(ratio, 1 - low, 1 + high)
        loss = (
            -clipped * advantage * new[own]
            if name == "cispo"
            else -np.minimum(ratio * advantage, clipped * advantage)
        )
        if name == "ppo":
            value, old_value = new_value[own], 0.06 * chosen(member)
            target = oracle_gae(member) + old_value
            kept = np.clip(value, old_value - 0.2, old_value + 0.2)
            loss = loss + 0.5 * np.maximum((value - target) ** 2, (kept - target) ** 2) / 2
        per_trajectory.append(loss)
    if name == "gspo":
        return np.mean([loss.mean() for loss in per_trajectory])
    if name in ("dr_grpo", "mt_grpo"):
        return np.sum([loss.sum() for loss in per_trajectory]) / (len(per_trajectory) * 256)
    return np.concatenate(per_trajectory).mean()


def total_loss(algo, batch, new, new_value):
    batch = algo.add_advantages(batch)
    loss_C, _ = algo.loss(
        PolicyOutput(torch.tensor(new), torch.zeros(len(new)), torch.tensor(new_value)), batch
    )
    return (loss_C * algo.weights(batch)).sum().item()


def noise(rng, batch):
    old = rng.normal(-1, 0.3, len(batch.trajectory_C))
    return old, old + rng.normal(0, 0.3, len(old)), rng.normal(0.3, 0.4, len(old))


@pytest.mark.parametrize("name", POLICY)
@pytest.mark.parametrize("seed", range(5))
def test_agrees_with_the_oracle(name, seed):
    rng = np.random.default_rng(seed)
    groups = random_groups(rng)
    algo = algos[name](**SETTINGS.get(name, {}))
    batch = ready(groups, algo)
    old, new, new_value = noise(rng, batch)
    found = total_loss(algo, batch.with_(old_logp_C=torch.tensor(old)), new, new_value)
    assert math.isclose(
        found, oracle_loss(name, groups, new, old, new_value), rel_tol=1e-6, abs_tol=1e-6
    )


@pytest.mark.parametrize("name", IMITATION)
def test_imitation_agrees_with_the_oracle(name):
    rng = np.random.default_rng(3)
    algo = algos[name]()
    batch = ready(random_groups(rng), algo)
    _, new, new_value = noise(rng, batch)
    assert total_loss(algo, batch, new, new_value) == pytest.approx(-new.mean(), abs=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_dpo_agrees_with_the_oracle(seed):
    rng = np.random.default_rng(seed)
    pairs = random_groups(rng, sizes=(2, 3))
    algo = algos["dpo"](data=["somewhere"], beta=0.3, imitation=0.5)
    batch = ready(pairs, algo)
    _, new, new_value = noise(rng, batch)
    start, losses = 0, []
    for pair in pairs:
        sides, first = [], start
        for member in pair:
            ids = chosen(member)
            sides.append(
                (new[start : start + len(ids)] + 0.1 * ids).sum()
            )  # the reference says -0.1 x id
            start += len(ids)
        imitated = new[first : first + len(chosen(pair[0]))].mean()
        losses.append(math.log(1 + math.exp(-0.3 * (sides[0] - sides[1]))) - 0.5 * imitated)
    assert total_loss(algo, batch, new, new_value) == pytest.approx(
        np.mean(losses), rel=1e-6, abs=1e-6
    )


def test_every_algorithm_has_an_oracle():
    assert sorted([*POLICY, *IMITATION, "dpo"]) == algos.names()


@pytest.mark.parametrize("name", POLICY)
def test_a_terminal_reward_after_trailing_observation_tokens_tells_success_from_failure(name):
    won = trajectory(("see", [1]), ("say", [2, 3]), ("see", [4, 5, 6]), reward=1.0)
    lost = trajectory(("see", [1]), ("say", [2, 3]), ("see", [4, 5, 6]), reward=0.0)
    algo = algos[name]()
    batch = algo.add_advantages(ready([[won, lost]], algo))
    assert (
        batch.advantage_C[batch.trajectory_C == 0].min()
        > batch.advantage_C[batch.trajectory_C == 1].max()
    )


@pytest.mark.parametrize("name", POLICY)
def test_the_scale_of_rewards_does_not_change_who_is_credited(name):
    """Rewards, and the estimates that go with them, times three."""
    algo = algos[name]()
    batch = ready(random_groups(np.random.default_rng(1)), algo)
    thrice = {
        field: 3 * getattr(batch, field)
        for field in ("reward_N", "reward_U", "value_C", "value_after_N", "baseline_N")
    }
    assert torch.equal(algo.advantages(batch).sign(), algo.advantages(batch.with_(**thrice)).sign())
