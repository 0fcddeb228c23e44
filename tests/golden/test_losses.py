"""Numbers worked out by hand; the arithmetic is in the comments."""

import math

import pytest
import torch

from palestra.algos.base import PolicyOutput
from palestra.algos.batch import pack
from palestra.algos.cispo import CISPO
from palestra.algos.grpo import GRPO
from palestra.algos.gspo import GSPO
from palestra.algos.losses import (
    cispo_loss,
    clipped_policy_loss,
    importance_correction,
    kl_divergence,
    sequence_log_ratio,
    token_weights,
)
from palestra.algos.sft import SFT
from tests.support.batches import trajectory


def test_clipped_policy_loss():
    # ratios 2, 0.5, 1; advantages +1, -1, +1; clip 0.2
    # -min(2, 1.2) = -1.2;  -min(-0.5, -0.8) = 0.8;  -min(1, 1) = -1
    logp = torch.tensor([math.log(2), math.log(0.5), 0.0])
    loss, stats = clipped_policy_loss(
        logp, torch.tensor([1.0, -1.0, 1.0]), clip_low=0.2, clip_high=0.2
    )
    assert loss.tolist() == pytest.approx([-1.2, 0.8, -1.0])
    assert stats["policy/clipped"].tolist() == [1.0, 1.0, 0.0]


def test_the_clip_only_holds_back_what_would_go_further():
    # ratio 2 with advantage -1: -min(-2, -1.2) = 2, not clipped; ratio 0.5 with advantage +1:
    # -min(0.5, 0.8) = -0.5, not clipped
    logp = torch.tensor([math.log(2), math.log(0.5)])
    loss, stats = clipped_policy_loss(logp, torch.tensor([-1.0, 1.0]), clip_low=0.2, clip_high=0.2)
    assert loss.tolist() == pytest.approx([2.0, -0.5])
    assert stats["policy/clipped"].tolist() == [0.0, 0.0]


def test_clip_higher():
    # ratio 1.25: below 1.28, so -1.25 stands; with 0.2 it is -1.2
    logp, ones = torch.tensor([math.log(1.25)]), torch.ones(1)
    assert clipped_policy_loss(logp, ones, clip_low=0.2, clip_high=0.28)[0].item() == pytest.approx(
        -1.25
    )
    assert clipped_policy_loss(logp, ones, clip_low=0.2, clip_high=0.2)[0].item() == pytest.approx(
        -1.2
    )


def test_the_gradient_stops_where_the_clip_binds():
    # d/dlogp of -r*A is -r*A = -1.1 inside the clip and 0 beyond it
    logp = torch.tensor([math.log(1.1), math.log(2.0)], requires_grad=True)
    loss, _ = clipped_policy_loss(logp, torch.ones(2), clip_low=0.2, clip_high=0.2)
    loss.sum().backward()
    assert logp.grad.tolist() == pytest.approx([-1.1, 0.0])


def test_kl_divergence():
    # log(ref/new) = log 2: 2 - 1 - 0.6931 = 0.3069; equal: 0
    assert kl_divergence(
        torch.tensor([0.0, -1.0]), torch.tensor([math.log(2), -1.0])
    ).tolist() == pytest.approx([0.3068528, 0.0])


def test_token_weights():
    owners = torch.tensor([0, 0, 0, 1])  # three tokens and one
    # token: 1/4 each; sequence: 1/(2*3), 1/(2*1); constant 10: 1/(2*10)
    assert token_weights(owners, 2, normalize="token").tolist() == pytest.approx([0.25] * 4)
    assert token_weights(owners, 2, normalize="sequence").tolist() == pytest.approx(
        [1 / 6] * 3 + [0.5]
    )
    assert token_weights(owners, 2, normalize="constant", constant=10).tolist() == pytest.approx(
        [0.05] * 4
    )


def test_grpo_from_trajectories_to_loss():
    # one group: rewards 1 and 0, mean .5, std sqrt(.5) = .7071 -> advantages +.7071, -.7071 on
    # their 2 and 1 tokens
    good = trajectory(("see", [5, 6]), ("say", [7, 8]), reward=1.0)
    bad = trajectory(("see", [5, 6]), ("say", [9]), reward=0.0)
    batch = pack([[good, bad]])
    algo = GRPO()
    batch = batch.with_(advantage_C=algo.advantages(batch))
    assert batch.advantage_C.tolist() == pytest.approx(
        [0.70710678, 0.70710678, -0.70710678], abs=1e-5
    )
    # on policy all ratios are 1: loss is -A, weighted 1/3 each: -(.7071 + .7071 - .7071) / 3 =
    # -0.2357
    loss, _ = algo.loss(PolicyOutput(batch.old_logp_C, torch.zeros(3)), batch)
    assert (loss * algo.weights(batch)).sum().item() == pytest.approx(-0.23570, abs=1e-4)


def test_grpo_with_kl_adds_the_penalty():
    # advantages 0 (equal rewards), so only kl * (2 - 1 - log 2) = 0.5 * 0.3069 is left
    batch = pack([[trajectory(("see", [5]), ("say", [7])), trajectory(("see", [5]), ("say", [7]))]])
    algo = GRPO(kl=0.5)
    batch = batch.with_(
        advantage_C=algo.advantages(batch), reference_logp_C=batch.old_logp_C + math.log(2)
    )
    loss, _ = algo.loss(PolicyOutput(batch.old_logp_C, torch.zeros(2)), batch)
    assert loss.tolist() == pytest.approx([0.1534264] * 2)


def test_sft_is_the_mean_negative_log_prob_of_chosen_tokens():
    # log-probs -1 and -3 over two chosen tokens: loss 2
    batch = pack([[trajectory(("see", [5, 6]), ("say", [7, 8]))]])
    algo = SFT()
    loss, _ = algo.loss(PolicyOutput(torch.tensor([-1.0, -3.0]), torch.zeros(2)), batch)
    assert (loss * algo.weights(batch)).sum().item() == pytest.approx(2.0)


def test_kl_estimators():
    # log(p/q) = log 2 for samples of p: k1 = 0.6931, k2 = 0.6931^2 / 2 = 0.2402, k3 = 0.5 - 1 +
    # 0.6931 = 0.1931
    p, q = torch.tensor([0.0]), torch.tensor([-math.log(2)])
    found = [kl_divergence(p, q, estimator).item() for estimator in ("k1", "k2", "k3")]
    assert found == pytest.approx([0.6931472, 0.2402265, 0.1931472])


def test_dual_clip():
    # ratio 10 with advantage -1 costs 10; bounded at 3 it costs 3. Ratio 10 with advantage +1 is
    # clipped at 1.2 as before
    log_ratio = torch.tensor([math.log(10), math.log(10)])
    loss, _ = clipped_policy_loss(
        log_ratio, torch.tensor([-1.0, 1.0]), clip_low=0.2, clip_high=0.2, dual_clip=3.0
    )
    assert loss.tolist() == pytest.approx([3.0, -1.2])


def test_cispo():
    # ratio 2, clipped to 1.28: loss -1.28 * A * logp = -1.28 * 1 * -0.5 = 0.64, gradient -1.28;
    # unlike PPO's it is not 0
    logp = torch.tensor([-0.5], requires_grad=True)
    loss, stats = cispo_loss(
        logp + 0.5 + math.log(2), logp, torch.tensor([1.0]), clip_low=1.0, clip_high=0.28
    )
    loss.sum().backward()
    assert loss.item() == pytest.approx(0.64)
    assert logp.grad.item() == pytest.approx(-1.28)
    assert stats["policy/clipped"].item() == 1.0


def test_gspo_has_one_ratio_for_each_trajectory():
    # trajectory 0: log-ratios 0.2 and 0.4, mean 0.3; trajectory 1: 0.1. Each token's gradient is
    # the ratio: e^0.3, e^0.3, e^0.1
    logp = torch.tensor([0.2, 0.4, 0.1], requires_grad=True)
    log_ratio = sequence_log_ratio(logp, torch.tensor([0, 0, 1]), logp)
    assert log_ratio.tolist() == pytest.approx([0.3, 0.3, 0.1])
    log_ratio.exp().sum().backward()
    assert logp.grad.tolist() == pytest.approx([math.exp(0.3), math.exp(0.3), math.exp(0.1)])


def test_importance_correction():
    # the learner says e^0.5 = 1.65 times and e^1 = 2.72 times what the engine said; cap 2. Over the
    # trajectory: e^1.5 = 4.48
    learner, engine, owners = (
        torch.tensor([0.5, 1.0, -1.0]),
        torch.zeros(3),
        torch.tensor([0, 0, 1]),
    )
    token = {"level": "token", "cap": 2.0}
    sequence = {"level": "sequence", "cap": 5.0}
    assert importance_correction(
        learner, engine, owners, **token, mask=False
    ).tolist() == pytest.approx([1.6487213, 2.0, 0.3678794])
    assert importance_correction(
        learner, engine, owners, **token, mask=True
    ).tolist() == pytest.approx([1.6487213, 0.0, 0.3678794])
    # the geometric mean over the first one's tokens: e^0.75 = 2.117; e^-1 = 0.37 is below 0.5 and
    # left out
    geometric = {"level": "geometric", "cap": 5.0, "mask": False, "mask_below": 0.5}
    assert importance_correction(learner, engine, owners, **geometric).tolist() == pytest.approx(
        [2.1170000, 2.1170000, 0.0]
    )
    assert importance_correction(
        learner, engine, owners, **sequence, mask=True
    ).tolist() == pytest.approx([4.4816891, 4.4816891, 0.3678794])


def test_grpo_weighs_tokens_of_older_weights():
    # the learner's probabilities before its update are 1.5, 3 and 0.5 times those that sampled:
    # weights 1.5, 2 (the cap) and 0.5
    # ratios of the update 1.1, 1 and 0.9, advantages 1, 1 and -1, none clipped: -1.5 x 1.1 = -1.65,
    # -2 x 1 = -2, 0.5 x 0.9 = 0.45
    sampled_C = torch.tensor([-1.0, -2.0, -3.0])
    old_C = sampled_C + torch.tensor([1.5, 3.0, 0.5]).log()
    new_C = (old_C + torch.tensor([1.1, 1.0, 0.9]).log()).requires_grad_()
    batch = pack([[trajectory(("see", [1]), ("say", [2, 3, 4]))]])
    batch = batch.with_(
        sampled_logp_C=sampled_C, old_logp_C=old_C, advantage_C=torch.tensor([1.0, 1.0, -1.0])
    )
    algo = GRPO(recompute_logprobs=True, correction={"cap": 2.0})
    loss_C, stats = algo.loss(PolicyOutput(new_C, torch.zeros(3)), batch)
    assert loss_C.tolist() == pytest.approx([-1.65, -2.0, 0.45])
    assert stats["policy/correction"].tolist() == pytest.approx([1.5, 2.0, 0.5])
    loss_C.sum().backward()  # the weight itself has no gradient: d/d log p of -w r A is -w r A
    assert new_C.grad.tolist() == pytest.approx([-1.65, -2.0, 0.45])


@pytest.mark.parametrize(
    "algo",
    [GRPO(), GRPO(dual_clip=3.0), CISPO(), GSPO(), GRPO(kl=0.1), GRPO(kl=0.1, kl_estimator="k2")],
)
@pytest.mark.parametrize("gap", [-200.0, -89.0, 89.0, 200.0])
def test_log_ratios_of_any_size_have_a_finite_loss_and_gradient(algo, gap):
    """exp(89) is infinite in float32, and where the clip holds infinity back its gradient would be
    0 x infinity.
    """
    batch = pack(
        [
            [
                trajectory(("see", [5]), ("say", [7]), reward=1.0),
                trajectory(("see", [5]), ("say", [7])),
            ]
        ]
    )
    batch = algo.add_advantages(batch.with_(reference_logp_C=batch.old_logp_C))
    new_C = (batch.old_logp_C + gap).requires_grad_()
    loss_C, stats = algo.loss(PolicyOutput(new_C, torch.zeros(2)), batch)
    loss_C.sum().backward()
    assert new_C.grad.isfinite().all()
    assert all(stat.isfinite().all() for stat in stats.values())


@pytest.mark.parametrize("estimator", ["k2", "k3"])
@pytest.mark.parametrize("gap", [-200.0, -25.0, -1.0, 1.0, 25.0, 200.0])
def test_a_divergence_of_any_size_never_drives_further_away(estimator, gap):
    """The gradient of k3 is 1 - q/p: beyond the bound it is 0, and below it never turns round."""
    logp_C = torch.tensor([-300.0 + gap], requires_grad=True)
    kl_divergence(logp_C, torch.tensor([-300.0]), estimator).sum().backward()
    exact = {"k2": gap, "k3": 1 - math.exp(-gap)}[estimator]
    is_held = estimator == "k3" and gap < -20
    assert logp_C.grad.item() == pytest.approx(0.0 if is_held else exact, rel=1e-5)


def test_the_logged_divergence_is_that_of_the_policy_that_sampled():
    # of two actions the sampler took them with .9 and .1, the policy would with .5 and .5: KL = .9
    # log 1.8 + .1 log .2 = .3681
    # ten samples in just these proportions: k3 is r - 1 - log r with r = .5 / .9 and .5 / .1; its
    # mean is the divergence exactly
    batch = pack([[trajectory(("see", [1]), ("say", [2])) for _ in range(10)]])
    old_C = torch.tensor([0.9] * 9 + [0.1]).log()
    batch = batch.with_(sampled_logp_C=old_C, old_logp_C=old_C, advantage_C=torch.zeros(10))
    _, stats = GRPO().loss(PolicyOutput(torch.full((10,), 0.5).log(), torch.zeros(10)), batch)
    assert stats["policy/kl"].mean().item() == pytest.approx(
        0.9 * math.log(1.8) + 0.1 * math.log(0.2), rel=1e-5
    )
