"""What is recorded of each token is what the learner said of it first, and recording changes
nothing.
"""

from dataclasses import replace

import numpy
import pytest
import torch

from palestra.algos.batch import pack
from palestra.algos.grpo import GRPO
from palestra.algos.gspo import GSPO
from palestra.algos.ppo import PPO
from palestra.algos.rft import RFT
from palestra.core.types import Group
from palestra.learner.logprobs import predict
from palestra.learner.token_stats import TokenStats, rounded
from tests.support.batches import trajectory
from tests.support.learners import in_two_segments, learner_with, some_groups


def named(groups):
    """With an id for each trajectory."""
    return [
        Group(
            group.task,
            [replace(t, id=f"{g}-{n}") for n, t in enumerate(group.trajectories)],
            group.baseline,
        )
        for g, group in enumerate(groups)
    ]


def recorded(learner, algo, groups, **update):
    batch = algo.add_advantages(learner.prepare(groups, algo))
    learned = TokenStats(batch, [t.id for group in groups for t in algo.learnable(group)])
    learner.update(batch, algo, lr=1e-2, step=1, watch=learned, **update)
    return {episode.id: episode for episode in learned.episodes()}, batch


def close(one, other):
    """Equal up to the digits that are kept."""
    return one == pytest.approx(other, rel=6e-4, abs=1e-5)


ALGOS = [GRPO(), GSPO(), GRPO(kl=0.1, recompute_logprobs=True), PPO(), PPO(level="token")]


@pytest.mark.parametrize(
    "algo", ALGOS, ids=lambda algo: f"{algo.name}-{algo.unit}-{len(algo.needs)}"
)
@pytest.mark.parametrize("microbatch_tokens", [7, 10_000])
@pytest.mark.parametrize("segments", [1, 2])
def test_values_are_those_before_the_first_update(model, algo, microbatch_tokens, segments):
    """With one mini-batch, whatever the packing: the model as it was, asked about each trajectory
    alone.
    """
    groups = named(some_groups())
    if segments == 2:
        groups = [in_two_segments(group, pair=False) for group in groups]
    learner = learner_with(
        model, algo.critic_settings, microbatch_tokens=microbatch_tokens, minibatches=1, epochs=3
    )
    learner.remember_reference()
    found, batch = recorded(learner, algo, groups)
    trajectories = [t for group in groups for t in group.trajectories]
    assert list(found) == [t.id for t in trajectories]
    for number, one in enumerate(trajectories):
        with torch.no_grad():
            alone = predict(model, pack([[one]]), 1.0)
        assert close(found[one.id].logp, alone.logp_C.tolist())
        assert close(found[one.id].entropy, alone.entropy_C.tolist())
        assert close(
            found[one.id].advantage, batch.advantage_C[batch.trajectory_C == number].tolist()
        )
        assert len(found[one.id].logp) == one.sampled_tokens


def test_openings_in_common(model):
    """Replies that begin alike are computed once, and each trajectory has them all."""
    opening = [3 + i % 7 for i in range(40)]
    members = [
        trajectory(
            ("see", opening),
            ("say", [5, 6, 7 + i // 2]),
            ("see", [8, 9]),
            ("say", [4, i]),
            reward=float(i % 2),
        )
        for i in range(4)
    ]
    groups = named([Group(None, members)])
    found, batch = recorded(learner_with(model, minibatches=1), GRPO(), groups)
    assert batch.in_common_S == [0, 46, 42, 46]
    for one in groups[0].trajectories:
        with torch.no_grad():
            assert close(found[one.id].logp, predict(model, pack([[one]]), 1.0).logp_C.tolist())


def test_a_later_mini_batch_is_seen_with_the_weights_that_learned_from_it(model):
    """Each trajectory once, in the first epoch; those of the second mini-batch after the first has
    moved the weights.
    """
    groups = named(some_groups())
    found, _ = recorded(learner_with(model, minibatches=2, epochs=2), GRPO(), groups)
    stays = []
    for one in (t for group in groups for t in group.trajectories):
        with torch.no_grad():
            stays.append(
                close(found[one.id].logp, predict(model, pack([[one]]), 1.0).logp_C.tolist())
            )
    assert sorted(stays) == [False] * 6 + [True] * 6


def test_what_is_not_learned_from_is_not_there(model):
    groups = named(some_groups())
    dead = Group(
        None,
        [
            replace(t, turns=[replace(turn, reward=0.0) for turn in t.turns])
            for t in groups[1].trajectories
        ],
    )
    found, _ = recorded(learner_with(model), GRPO(), [groups[0], dead, groups[2]])
    assert list(found) == [t.id for t in (*groups[0].trajectories, *groups[2].trajectories)]


def test_a_segment_that_was_not_computed_is_null(model):
    """Its advantages were all 0, so that nothing was asked of the model; the lists stay parallel to
    the mask.
    """
    groups = [in_two_segments(group, pair=False) for group in named(some_groups())]
    learner, algo = learner_with(model, minibatches=1), GRPO()
    batch = learner.prepare(groups, algo)
    advantage_C = torch.ones_like(batch.sampled_logp_C)
    advantage_C[:2] = 0.0  # the first segment of the first trajectory
    batch = batch.with_(advantage_C=advantage_C)
    learned = TokenStats(batch, [t.id for group in groups for t in group.trajectories])
    learner.update(batch, algo, lr=1e-3, step=1, watch=learned)
    first = learned.episodes()[0]
    assert first.advantage[:2] == [0.0, 0.0]
    assert numpy.isnan(first.logp).tolist() == [True, True, *[False] * (len(first.logp) - 2)]
    assert numpy.isnan(first.entropy).tolist() == numpy.isnan(first.logp).tolist()


def test_to_imitate_is_to_credit_with_one(model):
    groups = named(some_groups())
    found, _ = recorded(learner_with(model), RFT(), groups)
    assert list(found) == [
        "0-1",
        "1-1",
        "2-1",
    ]  # of the two that succeeded, the one with fewer turns, then the first
    assert set(found["0-1"].advantage) == {1.0}


def test_rounding():
    values = numpy.array(
        [0.0, 1.0, -0.123456, 123456.0, 1.23449e-7, -10.10135, numpy.nan, numpy.inf, 0.99996]
    )
    assert rounded(values)[:6].tolist() == [0.0, 1.0, -0.1235, 123500.0, 1.234e-7, -10.1]
    assert [str(v) for v in rounded(values)[6:]] == ["nan", "inf", "1.0"]
