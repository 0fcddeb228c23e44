"""Every algorithm: blind to order, to how tokens are packed into rows, and to faults; each says
what it optimizes.
"""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from palestra.algos import algos
from palestra.algos.base import PolicyOutput
from palestra.algos.batch import pack
from palestra.core.types import Group, Stop, Task
from tests.support.batches import ready, trajectory

REQUIRED = {"dpo": {"data": ["somewhere"]}}


@pytest.fixture(
    params=[*algos.names(), "grpo+entropy", "gspo+entropy", "ppo+token", "reinforce_pp+baseline"]
)
def algo(request):
    name, _, variant = request.param.partition("+")
    changes = {
        "entropy": {"entropy": 0.1, "entropy_target": 2.0},
        "token": {"level": "token"},
        "baseline": {"baseline": True},
    }
    return algos[name](**REQUIRED.get(name, {}), **changes.get(variant, {}))


def members():
    return [
        trajectory(("see", [1]), ("say", [2, 3]), reward=1.0),
        trajectory(("see", [1]), ("say", [4]), ("see", [5, 6]), ("say", [7]), reward=0.0),
        trajectory(("see", [1, 2]), ("say", [8]), reward=0.5),
        trajectory(("see", [1]), ("say", [9, 2, 3]), ("see", [5]), reward=0.25, stop=Stop.HORIZON),
    ]


def some_batch(algo, order=(0, 1, 2, 3)):
    """Two pairs, or one group of four; what a model would say of a token depends on the token
    alone.
    """
    chosen = [members()[i] for i in order]
    return ready([chosen[:2], chosen[2:]] if algo.unit == "group" else [chosen], algo)


def losses(algo, batch):
    """The loss of each chosen token, by its place in its trajectory, and all of them added up."""
    batch = algo.add_advantages(batch)
    batch = batch.with_(weight_C=algo.weights(batch))
    loss_C, _ = algo.loss(prediction(batch), batch)
    return loss_C * batch.weight_C


def prediction(batch):
    ids_C = batch.ids_T[batch.action_mask_T].float()
    return PolicyOutput(-0.2 * ids_C, 0.1 * ids_C, 0.05 * ids_C)


def test_the_order_of_a_group_does_not_matter(algo):
    order = (
        (2, 3, 0, 1) if algo.unit == "group" else (2, 0, 3, 1)
    )  # a pair has an order, pairs have none
    straight, shuffled = some_batch(algo), some_batch(algo, order)
    by_token = [
        {int(i): v for i, v in zip(b.ids_T[b.action_mask_T], losses(algo, b).tolist(), strict=True)}
        for b in (straight, shuffled)
    ]
    assert by_token[0] == pytest.approx(by_token[1], rel=1e-5)


def test_rows_add_up_to_the_whole(algo):
    batch = algo.add_advantages(some_batch(algo))
    batch = batch.with_(weight_C=algo.weights(batch))

    def total(part):
        loss_C, _ = algo.loss(prediction(part), part)
        return (loss_C * part.weight_C).sum().item()

    rows = list(batch.microbatches(4, algo.unit))
    assert len(rows) > 1
    assert sum(total(row) for row in rows) == pytest.approx(total(batch), rel=1e-5)


def test_a_fault_in_the_group_changes_nothing(algo):
    if not algo.plays:
        pytest.skip("it plays no episodes")
    task = Task("env", "train", "t")
    greedy = trajectory(("see", [1]), ("say", [2]), reward=0.5)
    fault = trajectory(("see", [1]), ("say", [6, 6, 6]), reward=0.0, stop=Stop.ENV_FAULT)
    without, with_it = (
        Group(task, members(), greedy),
        Group(task, [*members()[:2], fault, *members()[2:]], greedy),
    )
    assert [t.segments for t in algo.learnable(with_it)] == [
        t.segments for t in algo.learnable(without)
    ]
    assert algo.has_signal(with_it) == algo.has_signal(without)
    assert not algo.learnable(Group(task, [fault, fault], greedy))


def test_it_explains_itself(algo):
    lines = algo.explain()
    assert len(lines) >= 2 or algo.name == "sft"
    assert not any("None" in line for line in lines)


def test_nothing_is_changed_by_what_comes_after_the_last_chosen_token(algo):
    """Padding by observation: a tail is not a decision."""
    if "value" in algo.needs:
        pytest.skip("a critic looks at the tail on purpose")
    longer = [
        trajectory(("see", [1]), ("say", [2, 3]), ("see", [9] * n), reward=float(n == 0))
        for n in (0, 5)
    ]
    plain = [trajectory(("see", [1]), ("say", [2, 3]), reward=float(n == 0)) for n in (0, 5)]
    one, other = (losses(algo, ready([group], algo)) for group in (longer, plain))
    assert torch.equal(one, other)


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "gspo", "cispo", "rloo", "gigpo", "mt_grpo"])
@pytest.mark.parametrize("rewards", [(0, 0), (1, 1), (1, 0), (0.5, 0.5, 1), (1,)])
@pytest.mark.parametrize("turns", [(1, 1, 1), (1, 2, 3)])
def test_a_group_has_a_signal_exactly_where_it_has_an_advantage(name, rewards, turns):
    """Also where equal rewards came sooner in one trajectory than in another, which only credit by
    turns can tell.
    """
    algo = algos[name]()
    played = [
        trajectory(*[("see", [1]), ("say", [2])] * count, reward=reward)
        for reward, count in zip(rewards, turns, strict=False)
    ]
    batch = algo.add_advantages(ready([played], algo))
    assert algo.has_signal(Group(Task("env", "train", "t"), played)) == bool(
        (batch.advantage_C != 0).any()
    )


IN_PARTS = [[0.3], [0.1, 0.2], [0.2, 0.1], [0.1, 0.1, 0.1], [0.15, 0.15], [0.05, 0.2, 0.05]]
"""Ways to come to 0.3, which floats add up to 0.3, 0.30000000000000004 and 0.30000000000000002."""


def rewarded(parts):
    whole = trajectory(*[("see", [1]), ("say", [2])] * len(parts))
    return replace(
        whole,
        turns=[
            replace(turn, reward=reward) for turn, reward in zip(whole.turns, parts, strict=True)
        ],
    )


@pytest.mark.parametrize(
    "name", ["grpo", "dr_grpo", "gspo", "cispo", "rloo", "remax", "reinforce_pp+baseline"]
)
def test_the_same_score_by_another_way_is_no_signal(name):
    name, _, baseline = name.partition("+")
    algo = algos[name](**({"baseline": True} if baseline else {}))
    for one in IN_PARTS:
        for other in IN_PARTS:
            group = Group(
                Task("env", "train", "t"), [rewarded(one), rewarded(other)], rewarded([0.3])
            )
            assert not algo.has_signal(group), (one, other)
            batch = pack([group.trajectories], algo.turn_rewards).with_(
                baseline_N=torch.full((2,), algo.baseline_reward(group))
            )
            assert not algo.add_advantages(batch).advantage_C.any()
    assert algo.has_signal(
        Group(Task("env", "train", "t"), [rewarded([0.3]), rewarded([0.1, 0.21])], rewarded([0.3]))
    )


@settings(max_examples=300, deadline=None)
@given(
    rewards=st.lists(
        st.lists(st.sampled_from([0.0, 0.1, 0.2, 0.3, 0.6, 1 / 3, -0.1]), min_size=1, max_size=4),
        min_size=1,
        max_size=4,
    ),
    name=st.sampled_from(["grpo", "dr_grpo", "gspo", "cispo", "rloo", "remax", "gigpo", "mt_grpo"]),
    changes=st.sampled_from([{}, {"turn_discount": 0.9}, {"negative_reward_scale": 0.3}]),
)
def test_a_signal_is_an_advantage_and_an_advantage_a_signal(rewards, name, changes):
    algo = algos[name](**changes)
    group = Group(
        Task("env", "train", "t"), [rewarded(parts) for parts in rewards], rewarded([0.3])
    )
    batch = pack([group.trajectories], algo.turn_rewards)
    batch = batch.with_(baseline_N=torch.full_like(batch.reward_N, algo.baseline_reward(group)))
    assert algo.has_signal(group) == bool((algo.add_advantages(batch).advantage_C != 0).any())
