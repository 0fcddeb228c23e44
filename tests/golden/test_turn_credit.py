"""Credit turn by turn: numbers worked out by hand, laws that hold of any batch, and the exact
gradient of a small game.
"""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from palestra.algos.advantages import (
    against_baseline,
    anchored,
    gae,
    group_relative,
    leave_one_out,
    returns_to_go,
    turn_relative,
)
from palestra.algos.batch import pack
from palestra.algos.gigpo import GiGPO
from palestra.core.types import Group, Stop
from tests.support.batches import trajectory

# ---- numbers worked out by hand ----


def test_gae_of_an_episode_that_ended_and_of_one_cut_short():
    # two owners, one after the other, with equal rewards 0, 1 and values .25, .5; gamma = lam =
    # 0.5, so the trace decays by 0.25
    # ended:     last: 1 + 0.5*0.0 - 0.5 = 0.5;  first: 0 + 0.5*0.5 - 0.25 + 0.25*0.5 = 0.125
    # cut short: last: 1 + 0.5*0.4 - 0.5 = 0.7;  first: 0 + 0.5*0.5 - 0.25 + 0.25*0.7 = 0.175
    advantages = gae(
        torch.tensor([0.0, 1.0, 0.0, 1.0]),
        torch.tensor([0.25, 0.5, 0.25, 0.5]),
        torch.tensor([0, 0, 1, 1]),
        torch.tensor([0.0, 0.4]),
        gamma=0.5,
        lam=0.5,
    )
    assert advantages.dtype == torch.float32
    assert advantages.tolist() == pytest.approx([0.125, 0.5, 0.175, 0.7])


def test_gae_with_the_whole_trace_is_return_minus_value():
    # gamma = lam = 1. Owner 0 ended: returns 1+2+4 = 7, 6, 4. Owner 1 was cut short at a value of
    # 10: 3 + 10 = 13
    reward, value, owner = (
        torch.tensor([1.0, 2.0, 4.0, 3.0]),
        torch.tensor([0.5, 1.5, 2.5, 3.5]),
        torch.tensor([0, 0, 0, 1]),
    )
    advantages = gae(reward, value, owner, torch.tensor([0.0, 10.0]), gamma=1.0, lam=1.0)
    assert advantages.tolist() == [7 - 0.5, 6 - 1.5, 4 - 2.5, 13 - 3.5]


def test_gae_without_a_trace_is_the_one_step_error():
    # lam = 0, gamma = 0.5: 1 + 0.5*1.5 - 0.5 = 1.25;  2 + 0.5*2.5 - 1.5 = 1.75;  4 + 0 - 2.5 = 1.5;
    # 3 + 0.5*10 - 3.5 = 4.5
    reward, value, owner = (
        torch.tensor([1.0, 2.0, 4.0, 3.0]),
        torch.tensor([0.5, 1.5, 2.5, 3.5]),
        torch.tensor([0, 0, 0, 1]),
    )
    assert gae(reward, value, owner, torch.tensor([0.0, 10.0]), gamma=0.5, lam=0.0).tolist() == [
        1.25,
        1.75,
        1.5,
        4.5,
    ]


def test_owners_come_in_any_order_and_some_have_no_items():
    # owner 3 first, then owner 1; 0 and 2 have none, and what they would be bootstrapped from is
    # not read. gamma = lam = 1
    # owner 3: 1 + 5 - 0 = 6; owner 1: 2 + 3 + 7 - 1 = 11, 3 + 7 - 1 = 9
    bootstrap = torch.tensor([torch.nan, 7.0, torch.nan, 5.0])
    advantages = gae(
        torch.tensor([1.0, 2.0, 3.0]),
        torch.tensor([0.0, 1.0, 1.0]),
        torch.tensor([3, 1, 1]),
        bootstrap,
        gamma=1.0,
        lam=1.0,
    )
    assert advantages.tolist() == [6.0, 11.0, 9.0]


def test_no_items_have_no_credit():
    nothing, nobody = torch.zeros(0), torch.zeros(0, dtype=torch.long)
    assert gae(nothing, nothing, nobody, torch.zeros(2), gamma=0.9, lam=0.9).tolist() == []
    assert turn_relative(nothing, nobody, torch.tensor([0, 0]), gamma=0.9).tolist() == []
    assert returns_to_go(nothing, nobody, gamma=0.9).tolist() == []


def test_items_of_an_owner_that_stand_apart_are_refused():
    with pytest.raises(ValueError, match="2 owners came in 3 pieces"):
        returns_to_go(torch.ones(3), torch.tensor([0, 1, 0]), gamma=1.0)


def test_returns_to_go_leaves_its_input_alone():
    rewards = torch.tensor([1.0, 2.0], dtype=torch.float64)
    assert returns_to_go(rewards, torch.tensor([0, 0]), gamma=1.0).tolist() == [3.0, 2.0]
    assert rewards.tolist() == [1.0, 2.0]


def test_turn_relative():
    # gamma = 1. Returns to go: A 1+0+4 = 5, 4, 4;  B 0+2 = 2, 2;  C 3
    # turn 0: A 5 - (2+3)/2 = 2.5;  B 2 - (5+3)/2 = -2;  C 3 - (5+2)/2 = -0.5
    # turn 1, reached by A and B: A 4 - 2 = 2;  B 2 - 4 = -2
    # turn 2, reached by A alone: against the whole returns of B and C: 4 - 2.5 = 1.5
    # D plays another task by itself: nothing to compare with
    reward, owner = (
        torch.tensor([1.0, 0.0, 4.0, 0.0, 2.0, 3.0, 9.0, 9.0]),
        torch.tensor([0, 0, 0, 1, 1, 2, 3, 3]),
    )
    advantages = turn_relative(reward, owner, torch.tensor([0, 0, 0, 1]), gamma=1.0)
    assert advantages.dtype == torch.float32
    assert advantages.tolist() == [2.5, 2.0, 1.5, -2.0, -2.0, -0.5, 0.0, 0.0]


def test_turn_relative_discounts_by_the_turn():
    # gamma = 0.5. A: 0 + 0.5*4 = 2, 4;  B: 1. Turn 0: 2 - 1 = 1 and 1 - 2 = -1; turn 1, A alone: 4
    # - 1 = 3
    reward, owner = torch.tensor([0.0, 4.0, 1.0]), torch.tensor([0, 0, 1])
    assert turn_relative(reward, owner, torch.tensor([0, 0]), gamma=0.5).tolist() == [
        1.0,
        3.0,
        -1.0,
    ]


@pytest.mark.parametrize("reward", [0.7, 0.9, 1 / 3])
def test_turn_relative_finds_no_signal_among_equals(reward):
    # eight episodes of 1 to 8 turns, each with the reward at its end: every difference is 0, and
    # not some 1e-17
    turns = torch.arange(1, 9)
    reward_U = torch.zeros(36).index_fill(0, turns.cumsum(0) - 1, reward)
    trajectory_U = torch.arange(8).repeat_interleave(turns)
    assert (
        turn_relative(reward_U, trajectory_U, torch.zeros(8, dtype=torch.long), gamma=1.0).tolist()
        == [0.0] * 36
    )
    # seven alike of five turns: discounted returns use all bits of a float64, so that their sums
    # are rounded
    trajectory_U, group_N = torch.arange(7).repeat_interleave(5), torch.zeros(7, dtype=torch.long)
    assert (
        turn_relative(torch.full((35,), reward), trajectory_U, group_N, gamma=0.9).tolist()
        == [0.0] * 35
    )


def test_against_baseline():
    # the greedy episodes brought 0.5 and 1: 1 - 0.5, 0.25 - 1
    assert against_baseline(torch.tensor([1.0, 0.25]), torch.tensor([0.5, 1.0])).tolist() == [
        0.5,
        -0.75,
    ]


@pytest.mark.parametrize("turns", [1, 20, 100_000])

# ---- laws ----
# A batch is a list of groups of episodes of turns, and a turn is a triple of reward, value and
# place. Credit has the same shape;
# what belongs to an episode as a whole stands in a list of one.


def flat(groups):
    episodes = [episode for group in groups for episode in group]
    turns = [turn for episode in episodes for turn in episode]
    return {
        "reward_U": torch.tensor([reward for reward, _, _ in turns], dtype=torch.float32),
        "value_U": torch.tensor([value for _, value, _ in turns], dtype=torch.float32),
        "owner_U": torch.tensor(
            [n for n, episode in enumerate(episodes) for _ in episode], dtype=torch.long
        ),
        "anchor_U": torch.tensor(
            [9 * g + place for g, group in enumerate(groups) for e in group for _, _, place in e],
            dtype=torch.long,
        ),
        "reward_N": torch.tensor(
            [sum(reward for reward, _, _ in episode) for episode in episodes], dtype=torch.float32
        ),
        "bootstrap_N": torch.tensor(
            [episode[-1][1] / 2 if len(episode) % 2 else 0.0 for episode in episodes]
        ),
        "group_N": torch.tensor(
            [g for g, group in enumerate(groups) for _ in group], dtype=torch.long
        ),
    }


def by_gae(b):
    return gae(b["reward_U"], b["value_U"], b["owner_U"], b["bootstrap_N"], gamma=0.9, lam=0.8)


def by_anchor(b, scale):
    return anchored(
        returns_to_go(b["reward_U"], b["owner_U"], gamma=0.5), b["anchor_U"], scale=scale
    )


OF_TURNS = {
    "gae": by_gae,
    "turn_relative": lambda b: turn_relative(b["reward_U"], b["owner_U"], b["group_N"], gamma=0.9),
    "returns_to_go": lambda b: returns_to_go(b["reward_U"], b["owner_U"], gamma=0.9),
    "anchored": lambda b: by_anchor(b, False),
    "anchored, scaled": lambda b: by_anchor(b, True),
}
OF_EPISODES = {
    "group_relative": lambda b: group_relative(b["reward_N"], b["group_N"], scale=False),
    "group_relative, scaled": lambda b: group_relative(b["reward_N"], b["group_N"]),
    "leave_one_out": lambda b: leave_one_out(b["reward_N"], b["group_N"]),
}
every_credit = pytest.mark.parametrize("name", [*OF_TURNS, *OF_EPISODES])


def add_advantages(name, groups):
    numbers = iter((OF_TURNS | OF_EPISODES)[name](flat(groups)).tolist())
    return [
        [[next(numbers) for _ in (episode if name in OF_TURNS else "1")] for episode in group]
        for group in groups
    ]


def same(found, expected, rel=1e-5):
    assert [[len(e) for e in g] for g in found] == [[len(e) for e in g] for g in expected]
    numbers = [
        [x for group in batch for episode in group for x in episode] for batch in (found, expected)
    ]
    assert numbers[0] == pytest.approx(numbers[1], rel=rel, abs=1e-6)


quarters = st.integers(-8, 8).map(
    lambda n: n / 4
)  # so that who is equal to whom is no matter of rounding
turn = st.tuples(quarters, quarters, st.integers(0, 2))
episode = st.lists(turn, min_size=1, max_size=5)
group = st.lists(episode, min_size=1, max_size=5)
groups = st.lists(group, min_size=1, max_size=4)


@every_credit
@settings(max_examples=40, deadline=None)
@given(batch=groups, chance=st.randoms())
def test_reordering_the_episodes_of_a_group_reorders_their_credit(name, batch, chance):
    orders = [chance.sample(range(len(group)), len(group)) for group in batch]
    found = add_advantages(
        name, [[group[i] for i in order] for group, order in zip(batch, orders, strict=True)]
    )
    same(
        found,
        [
            [own[i] for i in order]
            for own, order in zip(add_advantages(name, batch), orders, strict=True)
        ],
    )


@every_credit
@settings(max_examples=40, deadline=None)
@given(batch=groups, another=group, data=st.data())
def test_another_group_leaves_the_others_as_they_are(name, batch, another, data):
    place = data.draw(st.integers(0, len(batch)))
    found = add_advantages(name, [*batch[:place], another, *batch[place:]])
    same(found[:place] + found[place + 1 :], add_advantages(name, batch))


@pytest.mark.parametrize("name", OF_TURNS)
@settings(max_examples=40, deadline=None)
@given(batch=groups, data=st.data())
def test_an_owner_without_turns_leaves_the_others_as_they_are(name, batch, data):
    places = [data.draw(st.integers(0, len(group))) for group in batch]
    padded = [
        [*group[:place], [], *group[place:]] for group, place in zip(batch, places, strict=True)
    ]
    found = add_advantages(name, padded)
    same([[own for own in group if own] for group in found], add_advantages(name, batch))


@pytest.mark.parametrize(
    "name", [name for name in (*OF_TURNS, *OF_EPISODES) if "scaled" not in name]
)
@settings(max_examples=40, deadline=None)
@given(batch=groups, power=st.integers(-8, 8))
def test_credit_is_in_the_unit_of_rewards(name, batch, power):
    factor = 2.0**power
    found = add_advantages(
        name, [[[(factor * r, factor * v, p) for r, v, p in e] for e in g] for g in batch]
    )
    assert found == [[[factor * x for x in e] for e in g] for g in add_advantages(name, batch)]


@pytest.mark.parametrize("name", ["group_relative, scaled", "anchored, scaled"])
@settings(max_examples=40, deadline=None)
@given(batch=groups, power=st.integers(1, 8))
def test_credit_in_deviations_has_no_unit(name, batch, power):
    # returns differ by 1/4 * 0.5^4 = 1/64 or not at all, so eps = 1e-6 is less than a thousandth of
    # any deviation
    found = add_advantages(
        name, [[[(2.0**power * r, v, p) for r, v, p in e] for e in g] for g in batch]
    )
    same(found, add_advantages(name, batch), rel=1e-3)


def played(episode, stop=Stop.DONE):
    pieces = [piece for _ in episode for piece in (("see", [1]), ("say", [2, 3]))]
    bare = trajectory(*pieces, stop=stop)
    turns = [
        replace(turn, reward=r, observation=str(p))
        for turn, (r, _, p) in zip(bare.turns, episode, strict=True)
    ]
    return replace(bare, turns=turns)


OF_BATCHES = {
    "gae": lambda b: gae(
        b.reward_U,
        torch.linspace(0, 1, len(b.reward_U)),
        b.trajectory_U,
        torch.zeros(len(b)),
        gamma=0.9,
        lam=0.8,
    ),
    "turn_relative": lambda b: turn_relative(b.reward_U, b.trajectory_U, b.group_N, gamma=0.9),
    "returns_to_go": lambda b: returns_to_go(b.reward_U, b.trajectory_U, gamma=0.9),
    "anchored": lambda b: anchored(
        returns_to_go(b.reward_U, b.trajectory_U, gamma=0.5), b.anchor_U, scale=False
    ),
    "group_relative": lambda b: group_relative(b.reward_N, b.group_N),
    "leave_one_out": lambda b: leave_one_out(b.reward_N, b.group_N),
    "gigpo": GiGPO().advantages,
}


@pytest.mark.parametrize("name", OF_BATCHES)
@settings(max_examples=40, deadline=None)
@given(batch=groups, faulted=episode, data=st.data())
def test_a_fault_is_as_if_it_had_never_been_played(name, batch, faulted, data):
    stop = data.draw(st.sampled_from([stop for stop in Stop if stop.is_fault]))
    valid = [[played(episode) for episode in group] for group in batch]
    place = data.draw(st.integers(0, len(valid[0])))
    broken = [*valid[0][:place], played(faulted, stop), *valid[0][place:]]
    kept = [GiGPO().learnable(Group(group[0].task, group)) for group in [broken, *valid[1:]]]
    assert torch.equal(OF_BATCHES[name](pack(kept)), OF_BATCHES[name](pack(valid)))


# ---- oracles: the definitions, written out ----


def oracle_gae(episodes, bootstraps, gamma, lam):
    """Every advantage as the whole sum of discounted errors that the paper has in eq. 16."""
    found = []
    for (reward, value), bootstrap in zip(episodes, bootstraps, strict=True):
        error = reward + gamma * np.append(value[1:], bootstrap) - value if len(reward) else reward
        found += [
            sum((gamma * lam) ** k * error[t + k] for k in range(len(error) - t))
            for t in range(len(error))
        ]
    return np.array(found)


def oracle_turn_relative(groups, gamma):
    found = []
    for rewards in groups:
        after = [
            [sum(gamma**k * r for k, r in enumerate(own[t:])) for t in range(len(own))]
            for own in rewards
        ]
        for i, own in enumerate(after):
            others = [other for j, other in enumerate(after) if j != i and len(other)]
            for t, value in enumerate(own):
                reached = [other[t] for other in others if len(other) > t]
                against = reached or [other[0] for other in others] or [value]
                found.append(value - np.mean(against))
    return np.array(found)


@pytest.mark.parametrize("seed", range(10))
def test_gae_agrees_with_the_oracle(seed):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 40, 12)
    episodes = [(rng.normal(size=n), rng.normal(size=n)) for n in lengths]
    bootstraps = rng.normal(size=12) * rng.integers(0, 2, 12)
    gamma, lam = rng.uniform(0.5, 1, 2)
    found = gae(
        torch.tensor(np.concatenate([reward for reward, _ in episodes])),
        torch.tensor(np.concatenate([value for _, value in episodes])),
        torch.tensor(np.repeat(np.arange(12), lengths)),
        torch.tensor(bootstraps),
        gamma=gamma,
        lam=lam,
    )
    np.testing.assert_allclose(
        found, oracle_gae(episodes, bootstraps, gamma, lam), rtol=1e-6, atol=1e-6
    )


@pytest.mark.parametrize("seed", range(10))
def test_turn_relative_agrees_with_the_oracle(seed):
    rng = np.random.default_rng(seed)
    groups = [
        [rng.normal(size=rng.integers(0, 9)) for _ in range(rng.integers(1, 7))] for _ in range(6)
    ]
    episodes = [own for group in groups for own in group]
    gamma = rng.uniform(0.5, 1)
    found = turn_relative(
        torch.tensor(np.concatenate(episodes)),
        torch.tensor(np.repeat(np.arange(len(episodes)), [len(own) for own in episodes])),
        torch.tensor([number for number, group in enumerate(groups) for _ in group]),
        gamma=gamma,
    )
    np.testing.assert_allclose(found, oracle_turn_relative(groups, gamma), rtol=1e-6, atol=1e-6)


# ---- the gradient of a small game, exactly ----
# Two turns. The first has three actions; the third of them ends the game, the others lead to two
# places with two actions each.
# Five episodes in all, so every group of two or three can be played, and weighed by how likely it
# is. Rewards are multiples of
# 1/8: the advantages are exact in float32.

GAMES = {
    "rewards at the end": {
        (0, 0): [0, 1],
        (0, 1): [0, 0],
        (1, 0): [0, 0.5],
        (1, 1): [0, -1],
        (2,): [0.25],
    },
    "rewards at each turn": {
        (0, 0): [0.5, 1],
        (0, 1): [0.5, -0.75],
        (1, 0): [-0.25, 2],
        (1, 1): [-0.25, 0.125],
        (2,): [0.75],
    },
}


def likelihoods(logits):
    """The log-probability of each turn of each episode: logits of the first turn, and of each of
    the two places it leads to.
    """
    first, left, right = (
        logits[:3].log_softmax(0),
        logits[3:5].log_softmax(0),
        logits[5:].log_softmax(0),
    )
    return {
        **{(a, b): [first[a], place[b]] for a, place in ((0, left), (1, right)) for b in (0, 1)},
        (2,): [first[2]],
    }


def exact_and_expected(game, size, advantages):
    """The gradient of the expected return, and what the policy gradient with these advantages is on
    average over all groups.
    """
    logits = torch.tensor(
        [0.3, -0.5, 0.1, 0.7, -0.2, -0.4, 0.9], dtype=torch.float64, requires_grad=True
    )
    logp = likelihoods(logits)
    chance = {e: sum(logp[e]).exp() for e in game}
    assert sum(chance.values()).item() == pytest.approx(1)
    exact = torch.autograd.grad(
        sum(chance[e] * sum(game[e]) for e in game), logits, retain_graph=True
    )[0]
    score = {
        e: [torch.autograd.grad(turn, logits, retain_graph=True)[0] for turn in logp[e]]
        for e in game
    }

    played = list(itertools.product(game, repeat=size))
    episodes = [e for group in played for e in group]
    advantage = iter(
        advantages(
            torch.tensor([float(r) for e in episodes for r in game[e]]),
            torch.tensor([n for n, e in enumerate(episodes) for _ in game[e]]),
            torch.arange(len(played)).repeat_interleave(size),
        ).tolist()
    )
    expected = torch.zeros_like(exact)
    for group in played:
        likely = np.prod([chance[e].item() for e in group])
        for e in group:
            expected += likely / size * sum(next(advantage) * turn for turn in score[e])
    return exact, expected


def of_episodes(advantage, **options):
    """Each turn gets what its episode gets."""

    def advantages(reward_U, trajectory_U, group_N):
        reward_N = torch.zeros(len(group_N)).index_add(0, trajectory_U, reward_U)
        return advantage(reward_N, group_N, **options)[trajectory_U]

    return advantages


def of_turns(reward_U, trajectory_U, group_N):
    return turn_relative(reward_U, trajectory_U, group_N, gamma=1.0)


every_game = pytest.mark.parametrize("game", GAMES.values(), ids=GAMES)
every_size = pytest.mark.parametrize("size", [2, 3])


@every_game
@every_size
@pytest.mark.parametrize(
    "advantages", [of_turns, of_episodes(leave_one_out)], ids=["turn_relative", "leave_one_out"]
)
def test_the_policy_gradient_is_unbiased(game, size, advantages):
    exact, expected = exact_and_expected(game, size, advantages)
    assert exact.norm() > 0.1
    torch.testing.assert_close(expected, exact, rtol=0, atol=1e-9)


@every_game
@every_size
def test_a_mean_that_holds_oneself_only_shortens_the_gradient(game, size):
    # Dr. GRPO: R_i - mean = (size - 1) / size * (R_i - mean of the others). Thirds are not exact in
    # float32
    exact, expected = exact_and_expected(game, size, of_episodes(group_relative, scale=False))
    torch.testing.assert_close(expected, exact * (size - 1) / size, rtol=0, atol=1e-7)


@every_game
@every_size
def test_dividing_by_the_deviation_bends_the_gradient(game, size):
    # GRPO: the expectation is not the gradient, nor a multiple of it
    exact, expected = exact_and_expected(game, size, of_episodes(group_relative, scale=True))
    assert (expected - exact).norm() > 0.01
    assert torch.cosine_similarity(expected, exact, dim=0) < 0.999
