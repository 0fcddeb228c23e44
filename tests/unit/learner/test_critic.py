"""PPO's critic: what it is trained towards, who waits for whom, and what it looks at."""

import copy

import pytest
import torch

from palestra.algos.base import CriticSettings
from palestra.algos.batch import pack
from palestra.algos.grpo import GRPO
from palestra.algos.ppo import PPO
from palestra.config.optimizer import OptimizerConfig
from palestra.core.types import Group, Stop, Task
from palestra.learner.learner import Learner
from palestra.learner.logprobs import estimate, predict
from palestra.models.tiny import tiny_model
from tests.support.batches import trajectory


@pytest.fixture(scope="module")
def model():
    return tiny_model(
        vocabulary=16,
        width=16,
        layers=2,
        heads=2,
        context=64,
        stop_id=1,
        seed=0,
        device=torch.device("cpu"),
    )


def learner_with(model, algo):
    return Learner(
        copy.deepcopy(model),
        OptimizerConfig(lr=1e-2),
        temperature=1.0,
        seed=0,
        critic=algo.critic_settings,
    )


def groups():
    won = trajectory(("see", [3]), ("say", [5, 1]), ("see", [7, 2]), ("say", [6, 1]), reward=1.0)
    cut = trajectory(("see", [3]), ("say", [8, 1]), ("see", [9, 2]), stop=Stop.HORIZON)
    return [Group(Task("env", "train", "t"), [won, cut])]


def two_turns(**fields):
    """Two turns of two tokens, the second rewarded; values .1 .2 | .3 .4;
    .5 after the last token.
    """
    turns = [("see", [3]), ("say", [5, 1]), ("see", [7]), ("say", [6, 1])]
    last = [("see", fields.pop("last"))] if "last" in fields else []
    one = trajectory(*turns, *last, reward=1.0, stop=fields.pop("stop", Stop.DONE))
    return pack([[one]], keep_tail=True).with_(
        value_C=torch.tensor([0.1, 0.2, 0.3, 0.4]), value_after_N=torch.tensor([0.5]), **fields
    )


def test_credit_by_tokens():
    batch = PPO(level="token", gamma=0.5, lam=0.5, whiten=False).add_advantages(two_turns())
    # surprises: 0 + .5*.2 - .1 = 0;  0 + .5*.3 - .2 = -.05;  0 + .5*.4 - .3 = -.1;  1 + 0 - .4 = .6
    # (the observation is passed over)
    # traces, .25 a token: .6;  -.1 + .15 = .05;  -.05 + .0125 = -.0375;  0 - .009375 = -.009375
    assert batch.advantage_C.tolist() == pytest.approx([-0.009375, -0.0375, 0.05, 0.6])
    assert batch.return_C.tolist() == pytest.approx([0.090625, 0.1625, 0.35, 1.0])


def test_credit_by_turns():
    batch = PPO(level="turn", gamma=0.5, lam=0.5, whiten=False).add_advantages(two_turns())
    # a turn's value is that of its first token: .1 and .3. Surprises: 0 + .5*.3 - .1 = .05;  1 + 0
    # - .3 = .7
    # traces, .25 a turn: .7;  .05 + .175 = .225. Both tokens of a turn share them, and are to
    # expect .325 and 1
    assert batch.advantage_C.tolist() == pytest.approx([0.225, 0.225, 0.7, 0.7])
    assert batch.return_C.tolist() == pytest.approx([0.325, 0.325, 1.0, 1.0])


@pytest.mark.parametrize("stop", [Stop.HORIZON, Stop.TRUNCATED])
def test_what_a_time_limit_cut_off_is_expected_still_to_come(stop):
    cut = two_turns(stop=stop, last=[8])
    # the last surprise of the turns has .5 * .5 more: 1 + .25 - .3 = .95
    assert PPO(gamma=0.5, lam=0.0, whiten=False).add_advantages(cut).advantage_C[
        -1
    ].item() == pytest.approx(0.95)
    assert PPO(gamma=0.5, lam=0.0, whiten=False, bootstrap=False).add_advantages(cut).advantage_C[
        -1
    ].item() == pytest.approx(0.7)
    ended = two_turns(last=[8])
    assert PPO(gamma=0.5, lam=0.0, whiten=False).add_advantages(ended).advantage_C[
        -1
    ].item() == pytest.approx(0.7)


def test_where_the_last_observation_did_not_fit_the_critic_is_asked_where_it_has_learned():
    """After a reply's own last token it never learns anything: the estimate before the last reply
    stands in.
    """
    cut = two_turns(stop=Stop.HORIZON)
    # .5 * .3 more instead of .5 * .5: 1 + .15 - .3 = .85 by turns; by tokens the last surprise is 1
    # + .5 * .3 - .4 = .75
    assert PPO(gamma=0.5, lam=0.0, whiten=False).add_advantages(cut).advantage_C[
        -1
    ].item() == pytest.approx(0.85)
    by_tokens = PPO(level="token", gamma=0.5, lam=0.0, bootstrap=True, whiten=False)
    assert by_tokens.add_advantages(cut).advantage_C[-1].item() == pytest.approx(0.75)


def test_credit_by_turns_in_float64_with_kl_in_the_reward():
    reference = two_turns().old_logp_C.double() - torch.tensor([0.0, 0.0, 0.0, 0.2])
    batch = two_turns(reference_logp_C=reference, old_logp_C=two_turns().old_logp_C.double())
    algo = PPO(gamma=0.5, lam=0.5, whiten=False, kl=0.1, kl_in="reward")
    assert algo.add_advantages(batch).advantage_C[-1].item() == pytest.approx(0.7 - 0.02)


def test_by_tokens_nothing_is_discounted_unless_said():
    algo = PPO(level="token")
    assert (algo.gamma, algo.lam, algo.bootstrap) == (1.0, 1.0, False)
    assert (PPO().gamma, PPO().lam, PPO().bootstrap) == (0.95, 0.95, True)
    assert PPO(level="token", gamma=0.99).bootstrap
    with pytest.raises(ValueError, match="never teaches to finish"):
        PPO(level="token", bootstrap=True)
    # a reward of 1 at the last of four tokens, values of 0: each token is credited with all of it
    batch = two_turns().with_(value_C=torch.zeros(4))
    assert PPO(level="token", whiten=False).add_advantages(
        batch
    ).advantage_C.tolist() == pytest.approx([1.0] * 4)


def test_kl_is_part_of_the_reward_and_reaches_earlier_tokens():
    reference = two_turns().old_logp_C - torch.tensor(
        [0.0, 0.0, 0.0, 0.2]
    )  # k1 of the last token: .2
    for level, expected in (
        ("token", [0.6 - 0.02, 0.05 - 0.02 * 0.25]),
        ("turn", [0.7 - 0.02, 0.7 - 0.02]),
    ):
        algo = PPO(
            level=level, gamma=0.5, lam=0.5, whiten=False, kl=0.1, kl_estimator="k1", kl_in="reward"
        )
        found = algo.add_advantages(two_turns(reference_logp_C=reference)).advantage_C
        assert [found[3].item(), found[2].item()] == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["head", "model"])
def test_the_critic_looks_at_the_state_after_the_last_observation(model, kind):
    algo = PPO(critic=CriticSettings(kind=kind))
    learner = learner_with(model, algo)
    learner.critic.output.weight.data.normal_(generator=torch.Generator().manual_seed(1))
    batch = learner.prepare(groups(), algo)
    assert batch.ids_T.tolist() == [
        3,
        5,
        1,
        7,
        2,
        6,
        1,
        3,
        8,
        1,
        9,
        2,
    ]  # with the tail of the one that was cut
    alone = [pack([[member]], keep_tail=True) for member in groups()[0].trajectories]
    found = [estimate(learner.model, learner.critic, one) for one in alone]
    assert batch.value_C.tolist() == pytest.approx(
        [v for value_C, _ in found for v in value_C.tolist()], abs=1e-5
    )
    assert batch.value_after_N.tolist() == pytest.approx(
        [after_S[-1].item() for _, after_S in found], abs=1e-5
    )
    while_learning = predict(learner.model, batch, 1.0, critic=learner.critic).value_C
    assert while_learning.tolist() == pytest.approx(batch.value_C.tolist(), abs=1e-5)


def test_a_critic_that_is_not_a_number_is_not_stepped(model):
    algo = PPO(critic=CriticSettings(warmup=5))
    learner = learner_with(model, algo)
    learner.critic.output.weight.register_hook(lambda gradient: gradient * float("inf"))
    before = learner.critic.output.weight.detach().clone()
    learner.update(algo.add_advantages(learner.prepare(groups(), algo)), algo, lr=1e-2, step=1)
    assert learner.updates_skipped == 1
    assert torch.equal(learner.critic.output.weight, before)


@pytest.mark.parametrize("kind", ["head", "model"])
def test_while_the_critic_warms_up_the_policy_waits(model, kind):
    algo = PPO(critic=CriticSettings(kind=kind, warmup=2, lr=1e-2))
    learner = learner_with(model, algo)
    start = copy.deepcopy(learner.model.state_dict())

    def step(number):
        learner.update(
            algo.add_advantages(learner.prepare(groups(), algo)), algo, lr=1e-2, step=number
        )
        return all(
            torch.equal(value, start[name]) for name, value in learner.model.state_dict().items()
        )

    assert step(1)
    assert step(2)
    assert learner.critic.output.weight.abs().max() > 0
    assert not step(3)


@pytest.mark.parametrize("kind", ["head", "model"])
def test_the_critic_learns_what_to_expect(model, kind):
    algo = PPO(
        critic=CriticSettings(kind=kind, warmup=1000),
        value_clip=None,
        bootstrap=False,
        gamma=1,
        lam=1,
    )
    learner = learner_with(model, algo)
    for number in range(1, 150):
        batch = algo.add_advantages(learner.prepare(groups(), algo))
        learner.update(batch, algo, lr=1e-2, step=number)
    # in sight of the second reply of the one that won, 1 is expected; in sight of the first
    # observation both are possible
    assert batch.value_C[2:4].tolist() == pytest.approx([1.0, 1.0], abs=0.1)
    assert batch.value_C[0].item() == pytest.approx(0.5, abs=0.25)


def test_algorithms_without_a_critic_compute_none(model):
    learner = learner_with(model, PPO())
    batch = learner.prepare(groups(), GRPO())
    assert batch.value_C is None
    learner.update(GRPO().add_advantages(batch), GRPO(), lr=1e-2, step=1)
    assert learner.critic.output.weight.abs().max() == 0


def test_a_critic_of_its_own_begins_as_the_policy_is_after_the_warm_start(model):
    learner = learner_with(model, PPO(critic=CriticSettings(kind="model")))
    with torch.no_grad():
        for parameter in learner.model.parameters():
            parameter.add_(0.1)
    learner.reset_optimizer()
    policy = dict(learner.model.base_model.named_parameters())
    assert all(
        torch.equal(value, policy[name]) for name, value in learner.critic.trunk.named_parameters()
    )
