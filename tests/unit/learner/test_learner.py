"""Packing changes nothing, accumulation changes nothing,
and what is not a number is not learned.
"""

import copy
import random
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from palestra.algos.batch import pack
from palestra.algos.dpo import DPO
from palestra.algos.grpo import GRPO
from palestra.algos.gspo import GSPO
from palestra.algos.ppo import PPO
from palestra.algos.sft import SFT
from palestra.core.types import Group, Stop
from palestra.learner.learner import NonFiniteLoss, _gaps
from palestra.learner.logprobs import gather_rows, predict
from palestra.learner.parallel import Parallel
from tests.support.batches import trajectory
from tests.support.learners import in_two_segments, learner_with, some_groups, updated

IDS = st.lists(st.integers(2, 96), min_size=1, max_size=9)
EPISODE = st.lists(st.tuples(IDS, IDS), min_size=1, max_size=4)


@settings(max_examples=40, deadline=None)
@given(episodes=st.lists(st.tuples(EPISODE, IDS | st.just([])), min_size=1, max_size=6))
def test_packed_equals_alone_and_the_mask_is_exactly_the_sampled_tokens(model, episodes):
    trajectories = [
        trajectory(
            *(piece for seen, said in turns for piece in (("see", seen), ("say", said))),
            *([("see", tail)] if tail else []),
        )
        for turns, tail in episodes
    ]
    batch = pack([trajectories])
    said = [token for turns, _ in episodes for _, reply in turns for token in reply]
    assert batch.ids_T[batch.action_mask_T].tolist() == said
    with torch.no_grad():
        packed = predict(model, batch, 1.0)
        alone = [predict(model, pack([[one]]), 1.0) for one in trajectories]
    assert (packed.logp_C - torch.cat([p.logp_C for p in alone])).abs().max() < 1e-5
    assert (packed.entropy_C - torch.cat([p.entropy_C for p in alone])).abs().max() < 1e-4
    for one, prediction in zip(
        trajectories, alone, strict=True
    ):  # and alone equals transformers' own forward pass
        ids = torch.tensor(one.segments[0].ids)
        with torch.no_grad():
            logp = model(ids[None], attention_mask=None).logits[0].log_softmax(-1)
        chosen = torch.tensor(one.segments[0].mask).nonzero().flatten()
        assert (logp[chosen - 1, ids[chosen]] - prediction.logp_C).abs().max() < 1e-5


def test_openings_in_common_are_computed_once_and_learned_from_by_all(model):
    """Episodes of a task begin alike, and so may their first replies: log-probs and gradients are
    those of each segment alone.
    """
    opening = [3 + i % 7 for i in range(40)]
    episodes = [
        trajectory(("see", opening), ("say", [5, 6, 7 + i // 2]), ("see", [8, 9]), ("say", [4, i]))
        for i in range(4)
    ]
    batch = pack([episodes])
    assert batch.in_common_S == [0, 46, 42, 46]

    def of(batches):
        model.zero_grad()
        logp_C = torch.cat([predict(model, each, 1.0).logp_C for each in batches])
        (logp_C * torch.linspace(-1, 1, len(logp_C))).sum().backward()
        return logp_C.detach(), [p.grad.clone() for p in model.parameters()]

    together, gradients = of([batch])
    alone, expected = of([batch.take(torch.tensor([segment])) for segment in range(4)])
    assert torch.allclose(together, alone, atol=1e-5)
    for one, other in zip(gradients, expected, strict=True):
        assert torch.allclose(one, other, atol=1e-5)
    model.zero_grad()


def test_gradients_are_the_same_bit_for_bit_each_time():
    """Tokens that many episodes have in common get many gradients, which several threads must not
    race to add up.
    """
    chance = torch.Generator().manual_seed(0)
    places = torch.randint(0, 300, (5000,), generator=chance)
    weights = torch.randn(5000, 64, generator=chance)

    def gradient():
        values = torch.ones(3000, 64, requires_grad=True)
        (gather_rows(values, places) * weights).sum().backward()
        return values.grad

    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        first = gradient()
        assert all(torch.equal(gradient(), first) for _ in range(30))
    finally:
        torch.set_num_threads(threads)


def new_reference(model):
    other = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(1.01)
    return other


@pytest.mark.parametrize(
    "algo",
    [
        *(
            GRPO(),
            GRPO(normalize="sequence"),
            GRPO(normalize="constant", constant=50),
            GRPO(entropy=0.3, entropy_target=5.0),
        ),
        *(
            GSPO(),
            GRPO(kl=0.1, recompute_logprobs=True, correction={"level": "sequence"}),
            PPO(),
            DPO(data=("x",)),
            SFT(),
        ),
    ],
    ids=lambda algo: algo.name,
)
def test_the_gradient_does_not_depend_on_how_tokens_are_packed(model, algo):
    gradients = []
    for microbatch_tokens, parts in ((7, 1), (20, 3), (10_000, 1)):
        learner = learner_with(
            model, microbatch_tokens=microbatch_tokens, clip_norm=1e9, critic=algo.critic_settings
        )
        learner.parallel = Parallel(parts=parts)
        learner.remember_reference(new_reference(model))
        updated(
            learner,
            algo,
            [in_two_segments(group, pair=algo.name == "dpo") for group in some_groups()],
        )
        gradients.append(torch.cat([p.grad.flatten() for p in learner.model.parameters()]))
    assert torch.allclose(gradients[0], gradients[2], atol=1e-7, rtol=1e-4)
    assert torch.allclose(gradients[1], gradients[2], atol=1e-7, rtol=1e-4)


def test_groups_without_a_signal_are_computed_only_for_an_entropy_below_its_target(model):
    alike = Group(
        None, [trajectory(("see", [3]), ("say", [token]), reward=1.0) for token in (5, 6)]
    )
    groups = [*some_groups(), alike]
    learner = learner_with(model)
    entropy = -float(learner.prepare(groups, GRPO()).sampled_logp_C.mean())
    gradients, seen = {}, {}
    for name, bonus in (
        ("none", {}),
        ("above", {"entropy": 0.3, "entropy_target": entropy / 2}),
        ("below", {"entropy": 0.3, "entropy_target": entropy * 2}),
    ):
        algo, learner, rows = GRPO(**bonus), learner_with(model, clip_norm=1e9), []
        learner.update(
            algo.add_advantages(learner.prepare(groups, algo)),
            algo,
            lr=1e-3,
            step=1,
            watch=lambda row, _, rows=rows: rows.append(row),
        )
        gradients[name] = torch.cat([p.grad.flatten() for p in learner.model.parameters()])
        seen[name] = sum(len(row.trajectory_C) for row in rows)
    assert torch.equal(gradients["above"], gradients["none"])
    assert not torch.allclose(gradients["below"], gradients["none"], rtol=1e-2)
    assert seen["above"] == seen["none"] == seen["below"] - 2


def test_rewarded_tokens_become_likelier(model):
    learner = learner_with(model)
    batch = learner.prepare(some_groups(), GRPO())
    before = predict(learner.model, batch, 1.0).logp_C.detach()
    for _ in range(5):
        updated(learner, GRPO())
    change = predict(learner.model, batch, 1.0).logp_C.detach() - before
    advantage = GRPO().advantages(batch)
    assert (change * advantage).mean() > 0.01


def test_faults_have_no_part_in_the_batch_nor_in_the_statistics(model):
    learner = learner_with(model)
    healthy = [
        trajectory(("see", [3]), ("say", [5]), reward=1.0),
        trajectory(("see", [3]), ("say", [6]), reward=0.0),
    ]
    faults = [
        trajectory(("see", [3]), ("say", [7]), reward=0.0, stop=stop)
        for stop in (Stop.ENV_FAULT, Stop.TIMEOUT, Stop.CANCELLED)
    ]
    batch = learner.prepare([Group(None, [healthy[0], *faults, healthy[1]])], GRPO())
    assert batch.ids_T[batch.action_mask_T].tolist() == [5, 6]
    # 1 and 0 against their own mean of .5; with the faults as failures it would be 1 against .2
    assert GRPO(scale=False).advantages(batch).tolist() == [0.5, -0.5]


def test_invalid_actions_can_cost_something(model):
    clumsy = trajectory(("see", [3]), ("say", [5]), ("see", [4]), ("say", [5]), reward=1.0)
    clumsy = replace(clumsy, turns=[replace(clumsy.turns[0], invalid=True), clumsy.turns[1]])
    neat = trajectory(("see", [3]), ("say", [6]), reward=1.0)
    group = Group(None, [clumsy, neat])
    assert not GRPO().has_signal(group)
    algo = GRPO(invalid_penalty=0.1, scale=False)
    assert algo.has_signal(group)
    # 0.9 and 1.0 against their mean of 0.95; the two chosen tokens of the first come first
    assert algo.advantages(learner_with(model).prepare([group], algo)).tolist() == pytest.approx(
        [-0.05, -0.05, 0.05]
    )
    assert clumsy.reward == 1.0


def test_of_two_successes_the_quicker_one_can_be_better(model):
    slow = trajectory(
        ("see", [3]),
        ("say", [5]),
        ("see", [4]),
        ("say", [5]),
        ("see", [4]),
        ("say", [5]),
        reward=1.0,
    )
    quick = trajectory(("see", [3]), ("say", [6]), reward=1.0)
    failed = trajectory(("see", [3]), ("say", [7]), reward=0.0)
    group = Group(None, [slow, quick])
    assert not GRPO().has_signal(group)
    algo = GRPO(turn_discount=0.8, scale=False)
    assert algo.has_signal(group)
    assert not algo.has_signal(Group(None, [failed, failed]))  # to fail quickly is no better
    # 0.64 and 1.0 against their mean of 0.82; the three chosen tokens of the first come first
    assert algo.advantages(learner_with(model).prepare([group], algo)).tolist() == pytest.approx(
        [-0.18, -0.18, -0.18, 0.18]
    )
    assert slow.reward == 1.0
    assert "reward_u = r_u * 0.8 ** turn_u" in algo.explain()


def test_what_is_taken_back_can_count_for_less(model):
    bold = trajectory(("see", [3]), ("say", [5]), ("see", [4]), ("say", [5]), reward=0.0)
    bold = replace(
        bold, turns=[replace(bold.turns[0], reward=0.5), replace(bold.turns[1], reward=-0.5)]
    )
    shy = trajectory(("see", [3]), ("say", [6]), reward=0.5)
    group = Group(None, [bold, shy])
    # all that was won is lost: 0 against 0.5
    assert GRPO(scale=False).advantages(
        learner_with(model).prepare([group], GRPO())
    ).tolist() == pytest.approx([-0.25, -0.25, 0.25])
    algo = GRPO(negative_reward_scale=0.2, scale=False)
    # 0.5 - 0.1 against 0.5
    assert algo.advantages(learner_with(model).prepare([group], algo)).tolist() == pytest.approx(
        [-0.05, -0.05, 0.05]
    )
    assert not GRPO(negative_reward_scale=0.0).has_signal(group)
    assert "reward_u = where(r_u < 0, 0.2 * r_u, r_u)" in algo.explain()


@pytest.mark.parametrize(("overlong", "trained"), [("train", [5, 6, 7]), ("mask", [5])])
def test_overlong_trajectories_are_trained_on_or_masked(model, overlong, trained):
    members = [
        trajectory(("see", [3]), ("say", [5])),
        trajectory(("see", [3]), ("say", [6]), stop=Stop.LENGTH),
        trajectory(("see", [3]), ("say", [7]), stop=Stop.CONTEXT),
    ]
    batch = learner_with(model).prepare([Group(None, members)], GRPO(overlong=overlong))
    assert batch.ids_T[batch.action_mask_T].tolist() == trained


def test_kl_is_measured_against_the_reference(model):
    learner = learner_with(model)
    learner.remember_reference()
    algo = GRPO(kl=0.1, recompute_logprobs=True)
    first = updated(learner, algo)
    assert first["policy/kl_reference"] == pytest.approx(0.0, abs=1e-6)
    assert first["policy/kl"] == pytest.approx(0.0, abs=1e-6)  # old log-probs are the learner's own
    assert updated(learner, algo)["policy/kl_reference"] > 1e-6


def test_an_update_that_is_not_a_number_is_left_out_and_three_end_the_run(model):
    learner = learner_with(model)
    before = copy.deepcopy(learner.model.state_dict())
    broken = [
        Group(
            None,
            [
                trajectory(("see", [3]), ("say", [5]), reward=float("nan")),
                trajectory(("see", [3]), ("say", [6])),
            ],
        )
    ]
    for _ in range(2):
        assert updated(learner, GRPO(), broken)["updates_skipped"] == 1.0
    assert all(
        torch.equal(before[name], value) for name, value in learner.model.state_dict().items()
    )
    with pytest.raises(NonFiniteLoss, match="three updates in a row"):
        updated(learner, GRPO(), broken)
    assert updated(learner_with(model), GRPO())["updates_skipped"] == 0.0


def test_long_batches_are_scored_in_chunks(model, monkeypatch):
    batch = learner_with(model).prepare(some_groups(), GRPO())
    whole = predict(model, batch, 1.0)
    whole.logp_C.sum().backward()
    expected = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    monkeypatch.setattr("palestra.learner.logprobs.FEW_LOGITS", 0)
    monkeypatch.setattr("palestra.learner.chunked_logprob.MOST_LOGITS", 5 * model.config.vocab_size)
    chunked = predict(model, batch, 1.0)
    chunked.logp_C.sum().backward()
    assert torch.allclose(chunked.logp_C, whole.logp_C, atol=1e-6)
    assert all(
        torch.allclose(p.grad, expected[name], atol=1e-5) for name, p in model.named_parameters()
    )
    model.zero_grad()


def test_a_mismatch_is_measured_before_the_first_update(model):
    """Four mini-batches, and a learning rate that moves the weights: only in the first are they
    those that sampled.
    """
    learner, algo = learner_with(model, minibatches=4), GRPO()
    batch = learner.prepare(some_groups(), algo)
    with torch.no_grad():
        own_C = predict(model, batch, 1.0).logp_C
    stats = learner.update(
        algo.add_advantages(batch.with_(sampled_logp_C=own_C, old_logp_C=own_C)),
        algo,
        lr=0.01,
        step=1,
    )
    assert stats["policy/mismatch"] < 1e-4 < stats["policy/kl"]
    assert stats["policy/mismatch_kl"] < 1e-6


def test_weights_that_have_moved_in_the_step_are_no_mismatch(model):
    """Whichever mini-batch has the only trajectory of the newest weights: if not the first one,
    nothing is measured.
    """
    learner, algo = learner_with(model, minibatches=4), GRPO()
    batch = learner.prepare(some_groups(), algo)
    measured = []
    for newest in range(len(batch)):
        with torch.no_grad():
            own_C = predict(learner.model, batch, 1.0).logp_C
        mixed = batch.with_(
            sampled_logp_C=own_C, old_logp_C=own_C, version_C=(batch.trajectory_C == newest).long()
        )
        stats = learner.update(algo.add_advantages(mixed), algo, lr=0.01, step=2)
        measured.append("policy/mismatch" in stats)
        assert stats.get("policy/mismatch", 0.0) < 1e-4
        assert stats["policy/drift"] < 1e-4
    assert any(measured)
    assert not all(measured)


def test_a_mismatch_is_that_of_the_newest_weights_and_the_age_of_others_is_told_apart():
    # gaps .1 .2 .4 .6; the first two tokens are of version 3, the newest: half of them
    # mismatch: (.1 + .2) / 2 = .15; drift: (.4 + .6) / 2 = .5; both are reported as means over all
    # four tokens
    (row,) = pack([[trajectory(("say", [1, 2, 3, 4]))]]).microbatches(100)
    row = row.with_(sampled_logp_C=torch.zeros(4), version_C=torch.tensor([3, 3, 2, 1]))
    logp_C = -torch.tensor([0.1, 0.2, 0.4, 0.6])
    means = {
        name: value_C.mean().item()
        for name, value_C in _gaps(logp_C, row, newest=3, share=0.5).items()
    }
    # KL: exp(-.1) - 1 + .1 = .00484 and exp(-.2) - 1 + .2 = .01873; the mean is .01178
    assert means == pytest.approx(
        {"policy/mismatch": 0.15, "policy/mismatch_kl": 0.01178, "policy/drift": 0.5}, abs=1e-5
    )
    assert list(_gaps(logp_C, row, newest=1, share=1.0)) == [
        "policy/mismatch",
        "policy/mismatch_kl",
    ]
    assert list(_gaps(logp_C, row, newest=4, share=0.0)) == ["policy/drift"]


def many_groups(count, *, dead):
    """Groups of two; of the first `dead` both members have the same reward."""
    chance = random.Random(0)

    def member(reward):
        said = [chance.randrange(2, 97) for _ in range(chance.randrange(1, 6))]
        return trajectory(("see", [chance.randrange(2, 97), 4]), ("say", said), reward=reward)

    return [Group(None, [member(float(n and g >= dead)) for n in range(2)]) for g in range(count)]


def figures_of_all_tokens(learner, batch):
    """Means over all action tokens, by one forward pass over everything."""
    with torch.no_grad():
        found = predict(learner.model, batch, 1.0)
    gap_C = found.logp_C - batch.sampled_logp_C
    kl_C = gap_C.exp() - 1 - gap_C  # of the sampler from the learner, estimated by k3
    return {
        "policy/entropy": found.entropy_C,
        "policy/kl": kl_C,
        "policy/mismatch": gap_C.abs(),
        "policy/mismatch_kl": kl_C,
    }


@pytest.mark.parametrize("minibatches", [1, 3])
@pytest.mark.parametrize(
    "algo",
    [GRPO(), GRPO(entropy=0.01), GRPO(kl=0.1), GRPO(kl=0.1, kl_in="reward")],
    ids=["", "entropy", "kl", "k1"],
)
def test_diagnostics_are_means_over_all_action_tokens(model, algo, minibatches):
    """Whatever else is set; where some are spared the forward pass, those are estimated.

    A learning rate of 0 keeps the weights.
    """
    learner = learner_with(model, minibatches=minibatches)
    learner.remember_reference(new_reference(model))
    batch = learner.prepare(many_groups(160, dead=140), algo)
    expected = figures_of_all_tokens(learner, batch)
    found = learner.update(algo.add_advantages(batch), algo, lr=0.0, step=1)
    is_spared = algo.kl == algo.entropy == 0
    for name, value_C in expected.items():
        if name.startswith("policy/mismatch") and minibatches > 1:
            continue  # of the first mini-batch alone
        error = value_C.std().item() / (len(value_C) / 8) ** 0.5 if is_spared else 0.0
        assert found[name] == pytest.approx(value_C.mean().item(), abs=3 * error + 1e-5), name


def test_the_clipped_share_is_of_all_action_tokens(model):
    """One group of two tokens that are both clipped, and three without a signal, which never are:
    2 of 8 tokens, though only 2 (and one of the others) are computed.
    """
    algo, learner = GRPO(), learner_with(model)

    def group(*rewards):
        members = [
            trajectory(("see", [3]), ("say", [5 + n]), reward=r) for n, r in enumerate(rewards)
        ]
        return Group(None, members)

    batch = learner.prepare([group(1.0, 0.0), *[group(1.0, 1.0)] * 3], algo)
    with torch.no_grad():
        own_C = predict(learner.model, batch, 1.0).logp_C
    # New to old: e for the token that won, 1 / e for the one that lost; both are beyond the clip.
    moved = torch.tensor([1.0, -1.0, *[0.0] * 6])
    found = learner.update(
        algo.add_advantages(batch.with_(old_logp_C=own_C - moved)), algo, lr=0.0, step=1
    )
    assert found["policy/clipped"] == pytest.approx(2 / 8)


def test_what_is_spared_is_estimated_by_one_trajectory_in_eight(model):
    algo, learner = GRPO(), learner_with(model)
    batch = algo.add_advantages(learner.prepare(many_groups(20, dead=20), algo))
    assert len(batch.with_signal().trajectory_C) == 0
    sample = batch.sample_without_signal(every=8)
    assert sample.trajectory_S.tolist() == [0, 8, 16, 24, 32]
    found = learner.update(batch, algo, lr=0.1, step=1)
    expected = figures_of_all_tokens(learner, sample)
    assert found["policy/entropy"] == pytest.approx(
        expected["policy/entropy"].mean().item(), rel=1e-5
    )
    assert found["grad_norm"] == 0.0


def test_mini_batches_weigh_by_their_tokens(model):
    """One long trajectory and three short ones, an optimizer step each."""
    algo = GRPO(kl=0.1)
    lengths = [40, 2, 2, 2]
    members = [
        trajectory(("see", [3]), ("say", [5 + n] * size), reward=float(n % 2))
        for n, size in enumerate(lengths)
    ]
    learner = learner_with(model, minibatches=4)
    learner.remember_reference()
    batch = learner.prepare([Group(None, members)], algo)
    expected = figures_of_all_tokens(learner, batch)["policy/entropy"].mean().item()
    assert learner.update(algo.add_advantages(batch), algo, lr=0.0, step=1)[
        "policy/entropy"
    ] == pytest.approx(expected, rel=1e-5)


def test_the_divergence_from_the_reference_is_logged_in_the_reward_as_in_the_loss(model):
    figures = []
    for place in ("loss", "reward"):
        learner = learner_with(model)
        learner.remember_reference(new_reference(model))
        figures.append(
            updated(learner, GRPO(kl=0.1, kl_in=place, recompute_logprobs=True))[
                "policy/kl_reference"
            ]
        )
    assert figures[0] == pytest.approx(figures[1], rel=1e-5)
    assert figures[0] > 1e-6


def test_the_accuracy_of_pairs_is_a_mean_over_pairs(model):
    """One pair of 40 tokens that is judged wrongly, and three of two tokens that are judged
    rightly: 3 of 4.
    """
    learner = learner_with(model)
    learner.remember_reference(new_reference(model))
    algo = DPO(data=("x",))

    def pair(number, size):
        sides = [trajectory(("see", [3]), ("say", [5 + number + side] * size)) for side in range(2)]
        batch = learner.prepare([Group(None, sides)], algo)
        with torch.no_grad():
            gap_C = predict(learner.model, batch, 1.0).logp_C - batch.reference_logp_C
        is_right = gap_C[:size].sum() > gap_C[size:].sum()
        return Group(None, sides if is_right == (size == 1) else sides[::-1])

    pairs = [pair(0, 20), pair(2, 1), pair(4, 1), pair(6, 1)]
    assert updated(learner, algo, pairs)["dpo/accuracy"] == pytest.approx(0.75)


@pytest.mark.parametrize("algo", [SFT(), DPO(data=("x",))], ids=["sft", "dpo"])
def test_imitation_and_preference_are_learned_at_temperature_1(model, algo):
    """However hot episodes are sampled: the loss is the same as where they are sampled at 1."""
    pairs = [Group(None, group.trajectories[:2]) for group in some_groups()]
    losses = []
    for temperature in (1.0, 0.5):
        learner = learner_with(model)
        learner.temperature = temperature
        learner.remember_reference(new_reference(model))
        losses.append(updated(learner, algo, pairs)["loss"])
    assert losses[0] == losses[1]
    hot, cold = learner_with(model), learner_with(model)
    cold.temperature = 0.5
    assert updated(hot, GRPO())["policy/entropy"] != updated(cold, GRPO())["policy/entropy"]
