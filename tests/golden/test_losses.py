"""Numbers worked out by hand; the arithmetic is in the comments."""

import math

import pytest
import torch

from palestra.algos.base import Prediction
from palestra.algos.grpo import GRPO
from palestra.algos.losses import clipped_policy_loss, kl_to_reference, token_weights
from palestra.algos.sft import SFT
from palestra.batch import pack
from tests.helpers import trajectory


def test_clipped_policy_loss():
    # ratios 2, 0.5, 1; advantages +1, -1, +1; clip 0.2
    # -min(2, 1.2) = -1.2;  -min(-0.5, -0.8) = 0.8;  -min(1, 1) = -1
    logp = torch.tensor([math.log(2), math.log(0.5), 0.0])
    loss, stats = clipped_policy_loss(logp, torch.zeros(3), torch.tensor([1.0, -1.0, 1.0]), clip_low=0.2, clip_high=0.2)
    assert loss.tolist() == pytest.approx([-1.2, 0.8, -1.0])
    assert stats["policy/clipped"].tolist() == [1.0, 1.0, 0.0]
    # k3: r - 1 - log r = 2 - 1 - 0.6931, 0.5 - 1 + 0.6931, 0
    assert stats["policy/kl"].tolist() == pytest.approx([0.3068528, 0.1931472, 0.0])


def test_the_clip_only_holds_back_what_would_go_further():
    # ratio 2 with advantage -1: -min(-2, -1.2) = 2, not clipped; ratio 0.5 with advantage +1: -min(0.5, 0.8) = -0.5, not clipped
    logp = torch.tensor([math.log(2), math.log(0.5)])
    loss, stats = clipped_policy_loss(logp, torch.zeros(2), torch.tensor([-1.0, 1.0]), clip_low=0.2, clip_high=0.2)
    assert loss.tolist() == pytest.approx([2.0, -0.5])
    assert stats["policy/clipped"].tolist() == [0.0, 0.0]


def test_clip_higher():
    # ratio 1.25: below 1.28, so -1.25 stands; with 0.2 it is -1.2
    logp, zeros, ones = torch.tensor([math.log(1.25)]), torch.zeros(1), torch.ones(1)
    assert clipped_policy_loss(logp, zeros, ones, clip_low=0.2, clip_high=0.28)[0].item() == pytest.approx(-1.25)
    assert clipped_policy_loss(logp, zeros, ones, clip_low=0.2, clip_high=0.2)[0].item() == pytest.approx(-1.2)


def test_the_gradient_stops_where_the_clip_binds():
    # d/dlogp of -r*A is -r*A = -1.1 inside the clip and 0 beyond it
    logp = torch.tensor([math.log(1.1), math.log(2.0)], requires_grad=True)
    loss, _ = clipped_policy_loss(logp, torch.zeros(2), torch.ones(2), clip_low=0.2, clip_high=0.2)
    loss.sum().backward()
    assert logp.grad.tolist() == pytest.approx([-1.1, 0.0])


def test_kl_to_reference():
    # log(ref/new) = log 2: 2 - 1 - 0.6931 = 0.3069; equal: 0
    assert kl_to_reference(torch.tensor([0.0, -1.0]), torch.tensor([math.log(2), -1.0])).tolist() == pytest.approx([0.3068528, 0.0])


def test_token_weights():
    owners = torch.tensor([0, 0, 0, 1])  # three tokens and one
    # token: 1/4 each; sequence: 1/(2*3), 1/(2*1); constant 10: 1/(2*10)
    assert token_weights(owners, 2, normalise="token").tolist() == pytest.approx([0.25] * 4)
    assert token_weights(owners, 2, normalise="sequence").tolist() == pytest.approx([1 / 6] * 3 + [0.5])
    assert token_weights(owners, 2, normalise="constant", constant=10).tolist() == pytest.approx([0.05] * 4)


def test_grpo_from_trajectories_to_loss():
    # one group: rewards 1 and 0, mean .5, std sqrt(.5) = .7071 -> advantages +.7071, -.7071 on their 2 and 1 tokens
    good = trajectory(("see", [5, 6]), ("say", [7, 8]), reward=1.0)
    bad = trajectory(("see", [5, 6]), ("say", [9]), reward=0.0)
    batch = pack([[good, bad]])
    algo = GRPO()
    batch = batch.with_(advantage_C=algo.advantages(batch))
    assert batch.advantage_C.tolist() == pytest.approx([0.70710678, 0.70710678, -0.70710678], abs=1e-5)
    # on policy all ratios are 1: loss is -A, weighted 1/3 each: -(.7071 + .7071 - .7071) / 3 = -0.2357
    loss, _ = algo.loss(Prediction(batch.old_logp_C, torch.zeros(3)), batch)
    assert (loss * algo.weights(batch)).sum().item() == pytest.approx(-0.23570, abs=1e-4)


def test_grpo_with_kl_adds_the_penalty():
    # advantages 0 (equal rewards), so only kl * (2 - 1 - log 2) = 0.5 * 0.3069 is left
    batch = pack([[trajectory(("see", [5]), ("say", [7])), trajectory(("see", [5]), ("say", [7]))]])
    algo = GRPO(kl=0.5)
    batch = batch.with_(advantage_C=algo.advantages(batch), reference_logp_C=batch.old_logp_C + math.log(2))
    loss, _ = algo.loss(Prediction(batch.old_logp_C, torch.zeros(2)), batch)
    assert loss.tolist() == pytest.approx([0.1534264] * 2)


def test_sft_is_the_mean_negative_log_prob_of_chosen_tokens():
    # log-probs -1 and -3 over two chosen tokens: loss 2
    batch = pack([[trajectory(("see", [5, 6]), ("say", [7, 8]))]])
    algo = SFT()
    loss, _ = algo.loss(Prediction(torch.tensor([-1.0, -3.0]), torch.zeros(2)), batch)
    assert (loss * algo.weights(batch)).sum().item() == pytest.approx(2.0)
