"""What `palestra explain` prints is what is minimized: its text, computed by
`benchmarks/objective.py`, gives the loss and its gradient.
"""

from dataclasses import replace

import pytest
import torch

from benchmarks.objective import Facts, Objective
from palestra.algos import algos
from palestra.algos.base import PolicyOutput
from palestra.algos.batch import pack
from palestra.config.config import build
from palestra.core.types import Stop
from palestra.runs.explain import explain
from tests.support.batches import trajectory

REWARDS = [0.0, 1.0, 0.25, -0.5, 0.3]
POLICY = [
    "grpo",
    "dr_grpo",
    "gspo",
    "cispo",
    "gigpo",
    "rloo",
    "reinforce_pp",
    "mt_grpo",
    "remax",
    "ppo",
]
OFF_POLICY = {"recompute_logprobs": True}
SHARED = [
    {},
    {"normalize": "sequence", "constant": None},
    {"normalize": "constant", "constant": 50},
    {"kl": 0.1},
    {"kl": 0.1, "kl_estimator": "k2"},
    {"kl": 0.1, "kl_in": "reward"},
    {"entropy": 0.05},
    {"entropy": 0.05, "entropy_target": 3.0},
    {
        "invalid_penalty": 0.2,
        "overlong_penalty": 0.1,
        "turn_discount": 0.9,
        "negative_reward_scale": 0.3,
    },
    {**OFF_POLICY, "kl": 0.1, "kl_in": "reward"},
    {**OFF_POLICY, "correction": {"cap": 1.2}},
    {**OFF_POLICY, "correction": {"cap": 1.2, "mask": True, "mask_below": 0.7}},
    {**OFF_POLICY, "correction": {"level": "sequence", "cap": 1.5}},
    {**OFF_POLICY, "correction": {"level": "geometric", "cap": 1.1, "mask_below": 0.8}},
    {"overlong": "mask"},
    {"ratio": "sequence", "dual_clip": None, "objective": "clip"},
    {"objective": "cispo", "ratio": "token", "dual_clip": None},
    {"clip_low": 0.1, "clip_high": 0.3, "dual_clip": 1.5, "ratio": "token", "objective": "clip"},
]
OWN = [
    *[(name, {"scale": False}) for name in ("grpo", "dr_grpo", "gspo", "cispo")],
    ("dr_grpo", {"scale": True}),
    ("gigpo", {"scale": False, "step_weight": 0.5, "gamma": 0.8}),
    *[
        ("reinforce_pp", {"baseline": True}),
        ("reinforce_pp", {"baseline": True, "kl": 0.2, "kl_in": "reward"}),
    ],
    *[
        ("mt_grpo", {"gamma": 0.7}),
        ("ppo", {"level": "token"}),
        ("ppo", {"level": "token", "gamma": 0.9, "lam": 0.8}),
    ],
    *[
        ("ppo", {"level": "token", "kl": 0.1, "kl_in": "reward"}),
        ("ppo", {"whiten": False, "value_clip": None}),
    ],
    *[("ppo", {"bootstrap": False, "value_weight": 2.0}), ("ppo", {"gamma": 0.5, "lam": 0.3})],
    *[("sft", {}), ("rft", {}), ("evol", {})],
    *[
        ("dpo", {}),
        ("dpo", {"label_smoothing": 0.2, "beta": 0.4}),
        ("dpo", {"length_normalized": True, "imitation": 0.5}),
    ],
]


CASES = [*((name, settings) for name in POLICY for settings in SHARED), *OWN]

NOT_IN_A_FORMULA = {
    "name",
    *("data", "min_reward", "min_gap", "per_task", "best", "batch", "episodes", "noise", "round"),
    "critic",
}
"""Settings that say what is learned from, where V comes from, and when: the text has them in
comments."""


def a_trajectory(chance, stop):
    """One to three turns, some of them refused, with rewards all along."""
    turns = int(torch.randint(1, 4, (), generator=chance))
    pieces = []
    for turn in range(turns):
        ids = torch.randint(
            3, 9, (int(torch.randint(1, 4, (), generator=chance)),), generator=chance
        )
        pieces += [("see", [3 + turn]), ("say", ids.tolist())]
    tail = [("see", [2])] if torch.rand((), generator=chance) < 0.5 else []
    whole = trajectory(*pieces, *tail, stop=stop)
    rewards = [
        REWARDS[int(torch.randint(0, len(REWARDS), (), generator=chance))] for _ in range(turns)
    ]
    played = [
        replace(
            turn,
            reward=reward,
            invalid=bool(torch.rand((), generator=chance) < 0.3),
            observation=f"place {number % 2}",
        )
        for number, (turn, reward) in enumerate(zip(whole.turns, rewards, strict=True))
    ]
    return replace(whole, turns=played)


def some_groups(algo, chance):
    size = 2 if algo.unit == "group" else 4
    stops = [Stop.DONE, Stop.HORIZON, Stop.LENGTH, Stop.TRUNCATED]
    groups = [[a_trajectory(chance, stops[n % 4]) for n in range(size)] for _ in range(3)]
    kept = [
        [
            t
            for t in group
            if getattr(algo, "overlong", "train") == "train" or not t.stop.is_overlong
        ]
        for group in groups
    ]
    return kept


def given_batch(algo, groups, chance):
    batch = pack(groups, algo.turn_rewards, keep_tail="value" in algo.needs)
    count = len(batch.trajectory_C)

    def noise(size=count, mean=0.0, spread=0.3):
        return mean + spread * torch.randn(size, dtype=torch.float64, generator=chance)

    sampled_C = noise(mean=-1.0)
    old_C = sampled_C + noise(spread=0.2) if "old" in algo.needs else sampled_C
    return batch.with_(
        sampled_logp_C=sampled_C,
        old_logp_C=old_C,
        reference_logp_C=sampled_C + noise(),
        value_C=noise(mean=0.3),
        value_after_N=noise(len(batch)),
        baseline_N=torch.tensor([0.5, 0.1, 0.7])[batch.group_N],
    )


def facts_of(batch, groups, algo, new):
    """What the formulas are about, read off the trajectories:
    rewards as the environment gave them.
    """
    turns = [
        (t, number, turn) for group in groups for t in group for number, turn in enumerate(t.turns)
    ]
    ends = [t.stop in (Stop.HORIZON, Stop.TRUNCATED) for group in groups for t in group]
    was_shown = [not t.segments[-1].mask[-1] for group in groups for t in group]
    first_C = [int((batch.turn_C == turn).nonzero()[0]) for turn in range(len(turns))]
    last_turn = [int((batch.trajectory_U == i).nonzero()[-1]) for i in range(len(batch))]
    value_end = [
        (batch.value_after_N[i] if was_shown[i] else batch.value_C[first_C[last_turn[i]]])
        if ends[i]
        else torch.tensor(0.0)
        for i in range(len(batch))
    ]
    given = {
        "r_u": torch.tensor([t.reward_scale * turn.reward for t, _, turn in turns]),
        "turn_u": torch.tensor([float(number) for _, number, _ in turns]),
        "invalid_u": torch.tensor([float(turn.invalid) for _, _, turn in turns]),
        "overlong_u": torch.tensor(
            [float(t.stop.is_overlong and number + 1 == len(t.turns)) for t, number, _ in turns]
        ),
        "logp_sampled_c": batch.sampled_logp_C,
        "logp_learner_c": batch.old_logp_C,
        "logp_ref_c": batch.reference_logp_C,
        "V_old_c": batch.value_C,
        "V_end_i": torch.stack([value.double() for value in value_end]),
        "baseline_i": batch.baseline_N,
        "logp_c": new.logp_C,
        "entropy_c": new.entropy_C,
        "V_c": new.value_C,
    }
    return Facts(batch.turn_C, batch.trajectory_U, batch.group_N, batch.anchor_U, given)


@pytest.mark.parametrize(
    ("name", "settings"),
    CASES,
    ids=lambda value: value if isinstance(value, str) else ",".join(value) or "plain",
)
def test_the_text_gives_the_loss_and_its_gradient(name, settings):
    algo = algos[name](**({"data": ["x"]} if name == "dpo" else {}), **settings)
    chance = torch.Generator().manual_seed(7)
    groups = some_groups(algo, chance)
    batch = algo.add_advantages(given_batch(algo, groups, chance))
    count = len(batch.trajectory_C)
    new = PolicyOutput(
        (
            batch.old_logp_C + 0.3 * torch.randn(count, dtype=torch.float64, generator=chance)
        ).requires_grad_(),
        torch.rand(count, dtype=torch.float64, generator=chance).requires_grad_(),
        torch.randn(count, dtype=torch.float64, generator=chance).requires_grad_(),
    )
    inputs = [new.logp_C, new.entropy_C, new.value_C]
    loss_C, _ = algo.loss(new, batch)
    loss = (loss_C * algo.weights(batch)).sum()
    text = Objective(algo.explain())(facts_of(batch, groups, algo, new))
    assert -text.item() == pytest.approx(loss.item(), rel=1e-5, abs=1e-7)
    expected = torch.autograd.grad(-text, inputs, allow_unused=True)
    found = torch.autograd.grad(loss, inputs, allow_unused=True)
    for one, other, like in zip(found, expected, inputs, strict=True):
        one, other = (
            torch.zeros_like(like) if gradient is None else gradient for gradient in (one, other)
        )
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-7)
    assert found[0].abs().max() > 0


def test_every_setting_is_tried():
    """For each algorithm: what it can be told is told it in a case above."""
    tried = {name: set() for name in algos.names()}
    for name, settings in CASES:
        tried[name] |= set(settings)
    untried = {
        name: set(algos[name].model_fields) - settings - NOT_IN_A_FORMULA
        for name, settings in tried.items()
    }
    assert not any(untried.values()), untried


BOUNDED = [
    ("grpo", {}),
    ("grpo", {"dual_clip": 1e12}),
    ("cispo", {"clip_high": 1e12}),
    ("gspo", {}),
    ("ppo", {"kl": 0.1}),
    *(
        ("grpo", {**OFF_POLICY, "correction": {"level": level, "cap": 1e9}})
        for level in ("token", "sequence", "geometric")
    ),
]


@pytest.mark.parametrize(("name", "settings"), BOUNDED)
@pytest.mark.parametrize("gap", [-30.0, 30.0])
def test_the_bound_on_log_ratios_is_in_the_text(name, settings, gap):
    """Log-ratios of 30 are held at 20: without the bound their exp is 22,000 times as much."""
    algo = algos[name](**settings)
    chance = torch.Generator().manual_seed(7)
    groups = some_groups(algo, chance)
    batch = given_batch(algo, groups, chance)
    batch = algo.add_advantages(
        batch.with_(
            sampled_logp_C=batch.old_logp_C - (gap if "old" in algo.needs else 0.0),
            reference_logp_C=batch.old_logp_C - gap,
        )
    )
    other = batch.old_logp_C + (0.0 if "old" in algo.needs else gap)
    new = PolicyOutput(other, torch.ones_like(other), torch.ones_like(other))
    loss_C, _ = algo.loss(new, batch)
    loss = (loss_C * algo.weights(batch)).sum().item()
    lines, facts = algo.explain(), facts_of(batch, groups, algo, new)
    assert -Objective(lines)(facts).item() == pytest.approx(loss, rel=1e-5, abs=1e-7)
    unbounded = [
        line.replace(", -20, 20)", ", -99, 99)").replace(", 20)", ", 99)") for line in lines
    ]
    assert unbounded != lines
    if gap > 0 or "kl" in settings:
        assert -Objective(unbounded)(facts).item() != pytest.approx(loss, rel=1e-3)


def test_the_scale_of_an_environments_rewards_stands_where_the_environment_is_told():
    mixture = [{"name": "guess"}, {"name": "textcraft", "reward_scale": 0.25}]
    config = build({"mixture": mixture, "algo": {"name": "mt_grpo", "invalid_penalty": 0.1}})
    head, text = explain(config).split("\n\n")
    of_env = {line.split(":")[0]: line for line in head.splitlines()}
    assert of_env["textcraft"].endswith("r_u = 0.25 x its rewards")
    assert "r_u" not in of_env["guess"]
    chance = torch.Generator().manual_seed(7)
    groups = some_groups(config.algo, chance)
    groups[1] = [replace(t, reward_scale=0.25) for t in groups[1]]
    batch = config.algo.add_advantages(given_batch(config.algo, groups, chance))
    zeros = torch.zeros_like(batch.old_logp_C)
    facts = facts_of(batch, groups, config.algo, PolicyOutput(zeros, zeros, zeros))
    found = Objective(text.splitlines()).named("A_u", facts)[batch.turn_C]
    torch.testing.assert_close(batch.advantage_C.double(), found, rtol=1e-5, atol=1e-7)


def test_what_is_done_besides_stands_in_the_text():
    def said(**changes):
        return explain(build({"rollout": {"temperature": 0.7}}, changes))

    assert "log-probs at temperature 0.7:" in said()
    assert "log-probs at temperature 1:" in said(**{"algo.name": "sft"})
    assert "more than 4 steps ago are dropped" in said(**{"rollout.partial": 2})
    assert "is skipped at 70%" in said(**{"rollout.skip_solved": 0.7})


def test_another_text_gives_another_objective():
    """The check above can fail: a number in the text that is not the algorithm's shows."""
    algo = algos["grpo"](kl=0.1)
    chance = torch.Generator().manual_seed(7)
    groups = some_groups(algo, chance)
    batch = algo.add_advantages(given_batch(algo, groups, chance))
    new = PolicyOutput(
        batch.old_logp_C - 0.3, torch.ones_like(batch.old_logp_C), torch.ones_like(batch.old_logp_C)
    )
    facts = facts_of(batch, groups, algo, new)
    lines = algo.explain()
    changed = [line.replace("0.1 * KL_c", "0.2 * KL_c") for line in lines]
    assert changed != lines
    assert Objective(changed)(facts).item() != pytest.approx(
        Objective(lines)(facts).item(), rel=1e-3
    )
