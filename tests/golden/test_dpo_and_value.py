"""The losses of pairs and of critics: numbers worked out by hand,
and laws that hold of any pairs.
"""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import logsigmoid

from palestra.algos.losses import clipped_value_loss, dpo_loss

# ---- critics ----


def test_clipped_value_loss():
    # returns 1, old values 0, clip 0.2
    # value 0.1, within:               (0.1 - 1)^2 / 2 = 0.405
    # value 0.8, nearer than allowed:  kept at 0.2: (0.2 - 1)^2 / 2 = 0.32 > (0.8 - 1)^2 / 2 = 0.02:
    # the clip binds
    # value -1, gone the wrong way:    (-1 - 1)^2 / 2 = 2 > (-0.2 - 1)^2 / 2 = 0.72: it does not
    value = torch.tensor([0.1, 0.8, -1.0], requires_grad=True)
    loss, stats = clipped_value_loss(value, torch.zeros(3), torch.ones(3), clip=0.2)
    assert loss.tolist() == pytest.approx([0.405, 0.32, 2.0])
    assert stats["value/clipped"].tolist() == [0.0, 1.0, 0.0]
    assert stats["value/error"].tolist() == pytest.approx([0.9, 0.2, 2.0])
    # the gradient is value - return, and 0 where the clip binds
    loss.sum().backward()
    assert value.grad.tolist() == pytest.approx([-0.9, 0.0, -2.0])
    assert not any(stat.requires_grad for stat in stats.values())


def test_value_loss_without_a_clip():
    # (0.8 - 1)^2 / 2 = 0.02, (-1 - 1)^2 / 2 = 2
    loss, stats = clipped_value_loss(
        torch.tensor([0.8, -1.0]), torch.zeros(2), torch.ones(2), clip=None
    )
    assert loss.tolist() == pytest.approx([0.02, 2.0])
    assert stats["value/clipped"].tolist() == [0.0, 0.0]


@settings(max_examples=100, deadline=None)
@given(
    value=st.floats(-8, 8, width=32),
    old=st.floats(-8, 8, width=32),
    target=st.floats(-8, 8, width=32),
    clip=st.floats(0.1, 2),
)
def test_the_clip_only_ever_adds_to_the_loss_and_never_within_it(value, old, target, clip):
    tensors = torch.tensor([value]), torch.tensor([old]), torch.tensor([target])
    (plain, _), (clipped, stats) = (
        clipped_value_loss(*tensors, clip=None),
        clipped_value_loss(*tensors, clip=clip),
    )
    assert clipped >= plain
    if abs(value - old) < clip - 1e-5:
        assert clipped == plain
        assert stats["value/clipped"] == 0


# ---- pairs ----


def pair_of_three_tokens():
    """Chosen tokens with log-ratios 0.5 and 0.25, a rejected one with -0.25."""
    reference = torch.tensor([-1.0, -2.0, -3.0])
    return (
        reference + torch.tensor([0.5, 0.25, -0.25]),
        reference,
        torch.tensor([0, 0, 0]),
        torch.tensor([True, True, False]),
    )


def test_dpo_loss():
    # margin 2 * (0.75 - -0.25) = 2; loss log(1 + e^-2) = 0.1269280, a third of it on each token
    loss, stats = dpo_loss(*pair_of_three_tokens(), beta=2.0)
    assert loss.tolist() == pytest.approx([0.1269280 / 3] * 3, rel=1e-6)
    # diagnostics are shared out like the loss, so that a pair counts once however many tokens it
    # has
    assert {name: stat.tolist() for name, stat in stats.items()} == {
        "dpo/accuracy": pytest.approx([1 / 3] * 3),
        "dpo/margin": pytest.approx([2 / 3] * 3),
        "dpo/chosen": pytest.approx([0.25] * 3),
        "dpo/rejected": pytest.approx([-0.25 / 3] * 3),
    }


def test_conservative_dpo():
    # margin 2: 0.9 * log(1 + e^-2) + 0.1 * log(1 + e^2) = 0.9 * 0.1269280 + 0.1 * 2.1269280 =
    # 0.3269280
    loss, _ = dpo_loss(*pair_of_three_tokens(), beta=2.0, label_smoothing=0.1)
    assert loss.sum().item() == pytest.approx(0.3269280)


def test_dpo_by_the_mean_of_each_side():
    # means 0.375 and -0.25: margin 2 * 0.625 = 1.25; loss log(1 + e^-1.25) = 0.2519290
    loss, stats = dpo_loss(*pair_of_three_tokens(), beta=2.0, length_normalized=True)
    assert loss.sum().item() == pytest.approx(0.2519290)
    assert stats["dpo/chosen"].tolist() == [0.125] * 3


def test_pairs_are_judged_apart_and_their_numbers_may_have_gaps():
    # pair 2: 1 against 0, margin 1: log(1 + e^-1) = 0.3132617; pair 5: 0 against 3, margin -3:
    # log(1 + e^3) = 3.0485874. Two tokens each
    log_ratio, pair, is_chosen = (
        torch.tensor([1.0, 0.0, 0.0, 3.0]),
        torch.tensor([2, 5, 2, 5]),
        torch.tensor([1, 1, 0, 0]),
    )
    loss, stats = dpo_loss(log_ratio, torch.zeros(4), pair, is_chosen, beta=1.0)
    assert loss.tolist() == pytest.approx([0.3132617 / 2, 3.0485874 / 2] * 2)
    assert stats["dpo/accuracy"].tolist() == [0.5, 0.0, 0.5, 0.0]


def test_a_pair_without_one_of_its_sides_is_refused():
    with pytest.raises(ValueError, match=r"missing in pairs \[1\]"):
        dpo_loss(
            torch.zeros(3),
            torch.zeros(3),
            torch.tensor([0, 0, 1]),
            torch.tensor([True, False, True]),
            beta=1.0,
        )


def test_margins_of_any_size_have_a_finite_loss():
    # margins -1000 and 1000: losses 1000 and 0
    logp = torch.tensor([-1000.0, 0.0, 0.0, -1000.0], requires_grad=True)
    loss, _ = dpo_loss(
        logp,
        torch.zeros(4),
        torch.tensor([0, 0, 1, 1]),
        torch.tensor([True, False, True, False]),
        beta=1.0,
    )
    loss.sum().backward()
    assert loss.tolist() == [500.0, 500.0, 0.0, 0.0]
    assert logp.grad.tolist() == [-1.0, 1.0, 0.0, 0.0]


@st.composite
def pairs(draw):
    """Some pairs, 1 to 4 tokens on each side: log-probs, those of the reference, pair numbers and
    sides.
    """
    sides = [(pair, chosen) for pair in range(draw(st.integers(1, 4))) for chosen in (True, False)]
    tokens = [side for side in sides for _ in range(draw(st.integers(1, 4)))]
    logps = st.lists(st.floats(-5, 0, width=32), min_size=len(tokens), max_size=len(tokens))
    logp, reference = (
        torch.tensor(draw(logps), dtype=torch.float64),
        torch.tensor(draw(logps), dtype=torch.float64),
    )
    return (
        logp,
        reference,
        torch.tensor([pair for pair, _ in tokens]),
        torch.tensor([chosen for _, chosen in tokens]),
    )


variants = st.fixed_dictionaries(
    {
        "beta": st.floats(0.01, 2),
        "label_smoothing": st.floats(0, 0.5),
        "length_normalized": st.booleans(),
    }
)


@settings(max_examples=50, deadline=None)
@given(batch=pairs(), options=variants)
def test_the_loss_is_log_2_where_the_policy_is_the_reference(batch, options):
    _, reference, pair, is_chosen = batch
    loss, stats = dpo_loss(reference, reference, pair, is_chosen, **options)
    for number in pair.unique():
        assert loss[pair == number].sum().item() == pytest.approx(math.log(2))
    assert stats["dpo/margin"].abs().max() == 0


@settings(max_examples=50, deadline=None)
@given(batch=pairs(), options=variants)
def test_loss_and_gradient_are_those_of_the_plain_formula(batch, options):
    logp, reference, pair, is_chosen = batch
    logp.requires_grad_()
    beta, smoothing = options["beta"], options["label_smoothing"]
    add_up = torch.mean if options["length_normalized"] else torch.sum
    plain = torch.zeros((), dtype=torch.float64)
    for number in pair.unique():
        chosen, rejected = (
            add_up((logp - reference)[(pair == number) & (is_chosen == side)])
            for side in (True, False)
        )
        margin = beta * (chosen - rejected)
        plain = plain - (1 - smoothing) * logsigmoid(margin) - smoothing * logsigmoid(-margin)
    loss, stats = dpo_loss(logp, reference, pair, is_chosen, **options)
    torch.testing.assert_close(loss.sum(), plain)
    torch.testing.assert_close(
        torch.autograd.grad(loss.sum(), logp)[0], torch.autograd.grad(plain, logp)[0]
    )
    assert not any(stat.requires_grad for stat in stats.values())


@settings(max_examples=50, deadline=None)
@given(batch=pairs(), options=variants, chance=st.randoms())
def test_the_order_of_tokens_is_no_matter(batch, options, chance):
    order = torch.tensor(chance.sample(range(len(batch[0])), len(batch[0])))
    loss, stats = dpo_loss(*batch, **options)
    reordered_loss, reordered_stats = dpo_loss(*(tensor[order] for tensor in batch), **options)
    torch.testing.assert_close(reordered_loss, loss[order])
    for name in ("dpo/margin", "dpo/chosen", "dpo/rejected"):
        torch.testing.assert_close(reordered_stats[name], stats[name][order])
