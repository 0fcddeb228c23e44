"""A divergence that is asked for regularizes: a bandit ends where the closed form says, in every
combination that is accepted.
"""

import math

import pytest
import torch

from palestra.algos import algos
from palestra.algos.base import PolicyOutput
from palestra.algos.batch import pack
from palestra.core.types import Group, Task
from tests.support.batches import trajectory

REWARD = torch.tensor([1.5, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0], dtype=torch.float64)
REFERENCE = torch.tensor([0.10, 0.20, 0.05, 0.15, 0.10, 0.10, 0.20, 0.10], dtype=torch.float64)
PULLS = 2000


def of_reverse_kl(kl):
    """argmax of E[R] - kl KL(p, reference): p is in proportion to reference x exp(R / kl)."""
    return (REFERENCE.log() + REWARD / kl).softmax(0)


def of_forward_kl(kl):
    """argmax of E[R] - kl KL(reference, p): R + kl reference / p is the same for all actions, so p
    = kl reference / (x - R).
    """
    low, high = REWARD.max(), REWARD.max() + kl
    for _ in range(200):
        middle = (low + high) / 2
        is_too_much = (kl * REFERENCE / (middle - REWARD)).sum() > 1
        low, high = (middle, high) if is_too_much else (low, middle)
    return kl * REFERENCE / (high - REWARD)


def pulls_of(policy):
    """Each action as often as the policy takes it: a sample without noise."""
    exact = policy * PULLS
    counts = exact.floor().long()
    rest = PULLS - int(counts.sum())
    counts[(exact - counts).argsort(descending=True)[:rest]] += 1
    return torch.arange(len(policy)).repeat_interleave(counts)


def trained(algo, updates=600, lr=1.0):
    """The policy in the end, and the divergence that was logged last."""
    batch = pack([[trajectory(("see", [1]), ("say", [2])) for _ in range(PULLS)]])
    logits = REFERENCE.log().clone().requires_grad_()
    for update in range(updates):
        logp = logits.log_softmax(0)
        actions = pulls_of(logp.detach().exp())
        old_C = logp.detach()[actions]
        earned = REWARD[actions].float()
        step = batch.with_(
            reward_N=earned,
            reward_U=earned,
            sampled_logp_C=old_C,
            old_logp_C=old_C,
            reference_logp_C=REFERENCE.log()[actions],
            value_C=torch.zeros(PULLS),
            value_after_N=torch.zeros(PULLS),
            baseline_N=torch.full((PULLS,), 0.4),
        )
        step = algo.add_advantages(step)
        entropy = -(logp.exp() * logp).sum().expand(PULLS)
        loss_C, stats = algo.loss(PolicyOutput(logp[actions], entropy, torch.zeros(PULLS)), step)
        (gradient,) = torch.autograd.grad((loss_C * algo.weights(step)).sum(), logits)
        logits.data -= (
            lr * (1 - update / updates) * gradient
        )  # whitened advantages never become small
    return logits.detach().softmax(0), stats["policy/kl_reference"].mean().item()


def divergence(policy, other=REFERENCE):
    return (policy * (policy / other).log()).sum().item()


@pytest.mark.parametrize(
    ("name", "settings", "optimum"),
    [
        ("grpo", {"scale": False, "kl_in": "reward"}, of_reverse_kl),
        ("grpo", {"scale": False, "kl_estimator": "k2"}, of_reverse_kl),
        ("grpo", {"scale": False}, of_forward_kl),
        ("rloo", {"kl_in": "reward"}, of_reverse_kl),
        ("rloo", {"kl_estimator": "k2"}, of_reverse_kl),
        ("mt_grpo", {"constant": 1, "kl_in": "reward"}, of_reverse_kl),
        ("remax", {"kl_in": "reward"}, of_reverse_kl),
        ("reinforce_pp", {"kl_in": "reward"}, of_reverse_kl),
        ("ppo", {"kl_in": "reward", "whiten": False}, of_reverse_kl),
    ],
)
@pytest.mark.parametrize("kl", [0.5, 1.0])
def test_a_bandit_ends_at_the_optimum(name, settings, optimum, kl):
    policy, logged = trained(algos[name](kl=kl, **settings))
    best = optimum(kl)
    assert policy[0].item() == pytest.approx(best[0].item(), rel=0.02)
    assert divergence(policy) == pytest.approx(divergence(best), rel=0.02)
    assert logged == pytest.approx(divergence(policy), rel=0.02)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"kl_in": "reward", "kl_estimator": "k3"}, "use k1"),
        ({"kl_in": "reward", "kl_estimator": "k2"}, "use k1"),
        ({"kl_estimator": "k1"}, "use k3, or k2"),
    ],
)
def test_what_would_not_regularize_is_refused(settings, reason):
    with pytest.raises(ValueError, match=reason):
        algos["grpo"](kl=0.1, **settings)


def test_the_default_estimator_fits_the_place():
    assert algos["grpo"](kl=0.1).kl_estimator == "k3"
    assert algos["grpo"](kl=0.1, kl_in="reward").kl_estimator == "k1"


def test_kl_in_the_reward_is_the_sum_over_the_tokens_that_follow():
    # k1 of the tokens of the first: .1, .2 | .4; of the second: .5. kl = 2
    one = trajectory(("see", [1]), ("say", [2, 3]), ("see", [4]), ("say", [5]), reward=1.0)
    other = trajectory(("see", [1]), ("say", [6]), reward=0.0)
    batch = pack([[one, other]])
    batch = batch.with_(reference_logp_C=batch.old_logp_C - torch.tensor([0.1, 0.2, 0.4, 0.5]))
    # GRPO without the deviation: +-.5, less 2 x (.7, .6, .4) and 2 x .5
    found = algos["grpo"](scale=False, kl=2.0, kl_in="reward").advantages(batch)
    assert found.tolist() == pytest.approx([0.5 - 1.4, 0.5 - 1.2, 0.5 - 0.8, -0.5 - 1.0])
    # RLOO: +-1, and the baseline has the other's whole divergence: 2 x .5 for the first, 2 x .7 for
    # the second
    found = algos["rloo"](kl=2.0, kl_in="reward").advantages(batch)
    assert found.tolist() == pytest.approx(
        [1 - 1.4 + 1.0, 1 - 1.2 + 1.0, 1 - 0.8 + 1.0, -1 - 1.0 + 1.4]
    )
    # REINFORCE++: (1, 1, 1, 0) less the same, whitened: mean and deviation of (-.4, -.2, .2, -1)
    # are -.35 and .50
    found = algos["reinforce_pp"](kl=2.0, kl_in="reward").advantages(batch)
    deviation = math.sqrt((0.05**2 + 0.15**2 + 0.55**2 + 0.65**2) / 3)
    assert found.tolist() == pytest.approx(
        [x / deviation for x in (-0.05, 0.15, 0.55, -0.65)], rel=1e-5
    )


def test_kl_in_the_reward_is_no_signal_of_its_own():
    alike = [trajectory(("see", [1]), ("say", [2]), reward=1.0) for _ in range(2)]
    assert not algos["grpo"](kl=0.1, kl_in="reward").has_signal(
        Group(Task("env", "train", "t"), alike)
    )
