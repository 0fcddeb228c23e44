"""Recomputes training steps from run folders alone, and compares: loss, gradient norm, diagnostics,
weights and moments.

    python benchmarks/oracle.py [--only WORD] [--out FOLDER] [--json FILE]     trains short runs of
    many settings, then recomputes them
    python benchmarks/oracle.py --run RUN --steps 2 3                          recomputes steps of
    a run

Nothing of the learner is used: the forward pass, the mini-batches and AdamW are written here a
second time, in float64, and the objective is computed from the text that `palestra explain` prints
(`objective.py`). A run must have been trained with `dtype = "float64"` and `save.every = 1`, on a
model in Llama's layout, by an algorithm that plays every step.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from benchmarks.objective import Facts, Objective
from palestra.config.config import build, load
from palestra.core.types import Step, Task
from palestra.envs import Environment
from palestra.runs.run import Run
from palestra.training.display import Display
from palestra.training.loop import run_training

Weights = dict[str, Tensor]

WORDS = ("red", "blue", "green", "up", "down", "stay")


class Rambling(Environment):
    """Everything that credit depends on, in episodes of one to four turns: rewards of both signs on
    the way, refused actions, an end, a time limit, and observations that come again."""

    name = "rambling"
    max_turns = 4

    def tasks(self, split: str) -> list[Task]:
        return [Task(self.name, split, f"{split}-{number}") for number in range(40)]

    def reset(self, task: Task) -> str:
        self.number = int(task.id.rpartition("-")[2])
        return f"see {WORDS[self.number % 6]} {WORDS[self.number // 6 % 6]}"

    def step(self, action: str) -> Step:
        said = action.split()
        score = sum(3 * WORDS.index(word) + self.number for word in said if word in WORDS)
        return Step(
            f"see {WORDS[score % 3]}",
            reward=(score % 7 - 2) / 4,
            terminated=score % 5 == 0,
            truncated=score % 5 == 1,
            success=score % 5 == 0 and score % 2 == 0,
            invalid=len(said) % 2 == 0,
        )

    def vocabulary(self) -> list[str]:
        return ["see", *WORDS]


BASE: dict[str, Any] = {
    "steps": 3,
    "device": "cpu",
    "dtype": "float64",
    "threads": 1,
    "model": {"width": 32, "layers": 2, "heads": 2},
    "env": {"name": "benchmarks.oracle:Rambling"},
    "agent": {"format": "plain", "context_tokens": 48, "reply_tokens": 12},
    "engine": {"slots": 16},
    "rollout": {"tasks": 4, "group": 4},
    "optim": {"lr": 1e-3, "minibatches": 2, "epochs": 2},
    "horizon": {"kind": "fixed", "turns": 3},
    "eval": {"tasks": 4},
    "save": {"every": 1, "keep": 4},
}

RECOMPUTED = {"algo.recompute_logprobs": True}
KL_IN_REWARD = {"algo.kl": 0.1, "algo.kl_in": "reward"}
OF_GRPO: list[dict[str, Any]] = [
    {},
    {"algo.scale": False},
    {"algo.normalize": "sequence"},
    {"algo.normalize": "constant", "algo.constant": 50},
    {"algo.kl": 0.1},
    {"algo.kl": 0.1, "algo.kl_estimator": "k2"},
    KL_IN_REWARD,
    {"algo.entropy": 0.05},
    {"algo.entropy": 0.05, "algo.entropy_target": 3.0},
    {
        "algo.invalid_penalty": 0.2,
        "algo.overlong_penalty": 0.1,
        "algo.turn_discount": 0.9,
        "algo.negative_reward_scale": 0.3,
    },
    {"algo.overlong": "mask"},
    {"algo.clip_low": 0.001, "algo.clip_high": 0.002, "algo.dual_clip": 1.0005},
    {**RECOMPUTED, **KL_IN_REWARD},
    {**RECOMPUTED, "algo.correction.cap": 1.0001, "rollout.prefetch": 1},
    {
        **RECOMPUTED,
        "algo.correction": {"cap": 1.002, "mask": True, "mask_below": 0.998},
        "rollout.prefetch": 1,
    },
    {**RECOMPUTED, "algo.correction": {"level": "sequence", "cap": 1.0001}, "rollout.prefetch": 1},
    {
        **RECOMPUTED,
        "algo.correction": {"level": "geometric", "cap": 1.0001, "mask_below": 0.9},
        "rollout.prefetch": 1,
    },
    {
        "rollout.temperature": 1.3,
        "optim.weight_decay": 0.1,
        "optim.clip_norm": 0.01,
        "optim.schedule": "linear",
    },
    {"optim.microbatch_tokens": 64, "optim.accumulation_parts": 2},
]
OF_OTHERS: list[dict[str, Any]] = [
    *[
        {"algo.name": name}
        for name in (
            "dr_grpo",
            "gspo",
            "cispo",
            "gigpo",
            "rloo",
            "reinforce_pp",
            "mt_grpo",
            "remax",
            "ppo",
            "rft",
        )
    ],
    {"algo.name": "gigpo", "algo.scale": False, "algo.step_weight": 0.5, "algo.gamma": 0.8},
    {"algo.name": "rloo", **KL_IN_REWARD},
    {"algo.name": "reinforce_pp", "algo.baseline": True},
    {"algo.name": "reinforce_pp", **KL_IN_REWARD},
    {"algo.name": "mt_grpo", "algo.gamma": 0.7},
    {"algo.name": "ppo", "algo.gamma": 0.5, "algo.lam": 0.3, "algo.whiten": False},
    {"algo.name": "ppo", "algo.level": "token", "algo.gamma": 0.9, "algo.lam": 0.8},
    {"algo.name": "ppo", "algo.level": "token", **KL_IN_REWARD},
    {"algo.name": "ppo", **KL_IN_REWARD},
    {
        "algo.name": "ppo",
        "algo.critic.kind": "model",
        "algo.critic.lr": 5e-3,
        "algo.value_clip": 0.001,
    },
    {
        "algo.name": "ppo",
        "algo.critic.warmup": 2,
        "algo.bootstrap": False,
        "algo.value_weight": 2.0,
    },
]
OWN_DEFAULTS = {"rft": {"rollout.temperature": 1.0, "algo.min_reward": 0.0}}
"""Of algorithms for which `BASE` alone would leave little to learn from."""


def settings() -> Iterator[tuple[str, dict[str, Any]]]:
    """What is trained and recomputed, with a title for each."""
    for given in (*OF_GRPO, *OF_OTHERS):
        overrides = {**OWN_DEFAULTS.get(given.get("algo.name", ""), {}), **given}
        yield (
            " ".join(f"{name.removeprefix('algo.')}={value}" for name, value in given.items())
            or "grpo",
            overrides,
        )


LEAST = 0.01
"""What differences of smaller figures are held against: a loss is a sum of many terms that nearly
cancel.
"""


# The run folder


@dataclass(frozen=True)
class Episode:
    """A line of a trajectory file: one segment, and what its tokens are."""

    line: dict[str, Any]

    @property
    def ids(self) -> Tensor:
        return torch.tensor(self.line["segments"][0]["ids"])

    @property
    def actions(self) -> list[int]:
        """Where its action tokens are."""
        return [place for place, chosen in enumerate(self.line["segments"][0]["mask"]) if chosen]

    @property
    def sampled_logps(self) -> list[float]:
        return [self.line["segments"][0]["logprobs"][place] for place in self.actions]

    @property
    def turns(self) -> list[dict[str, Any]]:
        return self.line["turns"]

    @property
    def reward(self) -> float:
        return sum(turn["reward"] for turn in self.turns)


def groups_of(folder: Path, step: int, size: int) -> Iterator[tuple[list[Episode], Episode | None]]:
    """The groups of a step, each with the greedy episode that it is compared with, where there is
    one.
    """
    lines = (folder / "trajectories" / f"step-{step:06d}.jsonl").read_text().splitlines()
    episodes = [Episode(json.loads(line)) for line in lines]
    while episodes:
        group, episodes = episodes[:size], episodes[size:]
        assert len({episode.line["task"]["id"] for episode in group}) == 1
        has_baseline = bool(episodes) and episodes[0].line["is_baseline"]
        yield group, episodes.pop(0) if has_baseline else None


def learned_from(group: list[Episode], algo: dict[str, Any]) -> list[Episode]:
    """Those that have a part, as `explain` says below its formulas."""
    left_out = {"env_fault", "timeout", "cancelled"}
    if algo.get("overlong") == "mask":
        left_out |= {"context", "length"}
    kept = [
        episode for episode in group if episode.line["stop"] not in left_out and episode.actions
    ]
    if algo["name"] == "rft":
        kept = [episode for episode in kept if episode.reward >= algo["min_reward"]]
        kept = sorted(kept, key=lambda episode: -episode.reward)[: algo["best"]]
    return kept


# The model, as Llama's paper and its successors describe it


@dataclass(frozen=True)
class Shape:
    layers: int
    heads: int
    theta: float
    eps: float

    @classmethod
    def read(cls, folder: Path) -> Shape:
        config = json.loads((folder / "config.json").read_text())
        theta = config.get("rope_theta") or config["rope_parameters"]["rope_theta"]
        return cls(
            config["num_hidden_layers"],
            config["num_attention_heads"],
            theta,
            config["rms_norm_eps"],
        )


def normalized(x_TD: Tensor, weight_D: Tensor, eps: float) -> Tensor:
    return x_TD / (x_TD.square().mean(-1, keepdim=True) + eps).sqrt() * weight_D


def rotated(x_THK: Tensor, theta: float) -> Tensor:
    """Each pair of coordinates k and k + K/2 is turned by an angle that grows with the position."""
    tokens, _, width = x_THK.shape
    speed = theta ** (-torch.arange(0, width, 2).double() / width)
    angle_T1K = torch.outer(torch.arange(tokens).double(), speed)[:, None]
    one, other = x_THK.chunk(2, dim=-1)
    return torch.cat(
        [
            one * angle_T1K.cos() - other * angle_T1K.sin(),
            other * angle_T1K.cos() + one * angle_T1K.sin(),
        ],
        dim=-1,
    )


def hidden_states(weights: Weights, shape: Shape, ids_T: Tensor, prefix: str = "model.") -> Tensor:
    x_TD = weights[f"{prefix}embed_tokens.weight"][ids_T]
    tokens, width = x_TD.shape
    is_later = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
    for number in range(shape.layers):
        layer = f"{prefix}layers.{number}"
        normal_TD = normalized(x_TD, weights[f"{layer}.input_layernorm.weight"], shape.eps)
        query, key, value = (
            normal_TD @ weights[f"{layer}.self_attn.{part}_proj.weight"].T for part in "qkv"
        )
        query, key, value = (part.view(tokens, shape.heads, -1) for part in (query, key, value))
        query, key = rotated(query, shape.theta), rotated(key, shape.theta)
        scores_HTT = torch.einsum("thk,shk->hts", query, key) / query.shape[-1] ** 0.5
        attention_HTT = scores_HTT.masked_fill(is_later, -torch.inf).softmax(-1)
        seen_TD = torch.einsum("hts,shk->thk", attention_HTT, value).reshape(tokens, width)
        x_TD = x_TD + seen_TD @ weights[f"{layer}.self_attn.o_proj.weight"].T
        normal_TD = normalized(x_TD, weights[f"{layer}.post_attention_layernorm.weight"], shape.eps)
        gate, up = (
            normal_TD @ weights[f"{layer}.mlp.{part}_proj.weight"].T for part in ("gate", "up")
        )
        x_TD = (
            x_TD
            + (torch.nn.functional.silu(gate) * up) @ weights[f"{layer}.mlp.down_proj.weight"].T
        )
    return normalized(x_TD, weights[f"{prefix}norm.weight"], shape.eps)


@dataclass(frozen=True)
class Said:
    """What a model says of the action tokens of some episodes."""

    logp_c: Tensor
    entropy_c: Tensor
    value_c: Tensor
    value_end_i: Tensor
    """Of what still follows each episode's last token."""


@dataclass
class Model:
    """A policy, and its critic where there is one."""

    weights: Weights
    shape: Shape
    temperature: float

    def of(self, episodes: Sequence[Episode]) -> Said:
        return Said(*(torch.cat(parts) for parts in zip(*map(self._of_one, episodes), strict=True)))

    def _of_one(self, episode: Episode) -> tuple[Tensor, ...]:
        weights, before = self.weights, torch.tensor(episode.actions) - 1
        hidden_TD = hidden_states(weights, self.shape, episode.ids)
        logp_CV = (
            hidden_TD[before] @ weights["model.embed_tokens.weight"].T / self.temperature
        ).log_softmax(-1)
        entropy_C = -(logp_CV.exp() * logp_CV).sum(-1)
        value_T = torch.zeros(len(hidden_TD), dtype=torch.float64)
        if "critic.output.weight" in weights:
            if "critic.trunk.norm.weight" in weights:
                hidden_TD = hidden_states(weights, self.shape, episode.ids, "critic.trunk.")
            value_T = (
                hidden_TD @ weights["critic.output.weight"].T + weights["critic.output.bias"]
            )[:, 0]
        chosen = episode.ids[torch.tensor(episode.actions)]
        return logp_CV.gather(1, chosen[:, None])[:, 0], entropy_C, value_T[before], value_T[-1:]


def weights_at(checkpoint: Path) -> Weights:
    found = load_file(checkpoint / "model.safetensors")
    if (checkpoint / "critic.safetensors").exists():
        found |= {
            f"critic.{name}": value
            for name, value in load_file(checkpoint / "critic.safetensors").items()
        }
    return {name: value.double() for name, value in found.items()}


# The step


def facts_of(
    groups: list[list[Episode]],
    baselines: list[Episode | None],
    before: Said,
    given: dict[str, Tensor],
) -> Facts:
    """What the formulas are about, read off the episodes, and what the weights before the step
    said.
    """
    episodes = list(itertools.chain(*groups))
    turns: list[tuple[int, Any, Any]] = []
    turn_c: list[int] = []
    episode_u: list[int] = []
    last_u: list[int] = []
    """The last turn of each episode."""
    for i, episode in enumerate(episodes):
        first = len(turns)
        turn_c += [first + turn_at(episode, place) for place in episode.actions]
        turns += [(number, episode, turn) for number, turn in enumerate(episode.turns)]
        episode_u += [i] * len(episode.turns)
        last_u.append(len(turns) - 1)
    group_i: list[int] = []
    for number, group in enumerate(groups):
        group_i += [number] * len(group)
    seen = [
        (group_i[i], turn["observation"]) for i, (_, _, turn) in zip(episode_u, turns, strict=True)
    ]
    value_end = []
    for i, episode in enumerate(episodes):
        value = torch.zeros((), dtype=torch.float64)
        if episode.line["stop"] in ("horizon", "truncated"):
            # The first token of the episode's last turn.
            last_turn = turn_c.index(last_u[i])
            was_shown = not episode.line["segments"][0]["mask"][-1]
            value = before.value_end_i[i] if was_shown else before.value_c[last_turn]
        value_end.append(value)
    is_last = [number + 1 == len(episode.turns) for number, episode, _ in turns]
    overlong = [
        last and episode.line["stop"] in ("context", "length")
        for last, (_, episode, _) in zip(is_last, turns, strict=True)
    ]
    facts = {
        "r_u": torch.tensor([turn["reward"] for _, _, turn in turns], dtype=torch.float64),
        "turn_u": torch.tensor([float(number) for number, _, _ in turns]),
        "invalid_u": torch.tensor([float(turn["invalid"]) for _, _, turn in turns]),
        "overlong_u": torch.tensor([float(is_so) for is_so in overlong]),
        "logp_sampled_c": torch.tensor(
            list(itertools.chain(*(episode.sampled_logps for episode in episodes))),
            dtype=torch.float64,
        ),
        "logp_learner_c": before.logp_c,
        "V_old_c": before.value_c,
        "V_end_i": torch.stack(value_end),
    }
    if baselines[0] is not None:
        facts["baseline_i"] = torch.tensor(
            [baselines[number].reward for number in group_i], dtype=torch.float64
        )  # type: ignore[union-attr]
    trajectory_u = torch.tensor(episode_u)
    observation_u = torch.tensor([seen.index(place) for place in seen])
    return Facts(
        torch.tensor(turn_c), trajectory_u, torch.tensor(group_i), observation_u, facts | given
    )


def turn_at(episode: Episode, place: int) -> int:
    """The turn that an action token belongs to."""
    (found,) = [
        number
        for number, turn in enumerate(episode.turns)
        if turn["span"][0] <= place < turn["span"][1]
    ]
    return found


def part_of(facts: Facts, members: list[int], credit: dict[str, Tensor]) -> Facts:
    """The same of some of the trajectories, with the credit that was computed over all of them."""
    is_in = torch.zeros(len(facts.group_i), dtype=torch.bool)
    is_in[members] = True
    keeps = {"i": is_in, "u": is_in[facts.trajectory_u], "c": is_in[facts.trajectory_c]}
    renumbered_i = is_in.cumsum(0) - 1
    renumbered_u = keeps["u"].cumsum(0) - 1
    given = {
        name: value[keeps[name[-1]]] if value.dim() else value
        for name, value in (facts.given | credit).items()
    }
    return Facts(
        renumbered_u[facts.turn_c[keeps["c"]]],
        renumbered_i[facts.trajectory_u[keeps["u"]]],
        facts.group_i[is_in],
        facts.observation_u[keeps["u"]],
        given,
    )


def minibatches(
    config: dict[str, Any], step: int, epoch: int, trajectories: int
) -> Iterator[list[int]]:
    """In random order, from a seed that is made of what it is for."""
    parts = (config["seed"], "minibatches", step, epoch)
    words = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    seed = int.from_bytes(hashlib.blake2b(words.encode(), digest_size=8).digest(), "big") >> 1
    order = torch.randperm(trajectories, generator=torch.Generator().manual_seed(seed))
    for part in order.tensor_split(min(config["optim"]["minibatches"], trajectories)):
        yield sorted(part.tolist())


@dataclass
class AdamW:
    """arXiv:1711.05101, with the gradient of each of the two networks clipped by its norm."""

    config: dict[str, Any]
    moments: dict[str, Tensor]

    def clipped(self, gradients: Weights, of_critic: bool) -> tuple[Weights, float]:
        own = {
            name: value
            for name, value in gradients.items()
            if name.startswith("critic.") == of_critic
        }
        norm = sum(float(value.square().sum()) for value in own.values()) ** 0.5
        factor = min(1.0, self.config["clip_norm"] / (norm + 1e-6))
        return {name: value * factor for name, value in own.items()}, norm

    def step(self, weights: Weights, gradients: Weights, lr: float) -> None:
        (one, two), decay = self.config["betas"], self.config["weight_decay"]
        for name, gradient in gradients.items():
            count = self.moments.get(f"{name}/step", torch.zeros(())) + 1
            mean = self.moments.get(f"{name}/exp_avg", torch.zeros_like(gradient)).double()
            square = self.moments.get(f"{name}/exp_avg_sq", torch.zeros_like(gradient)).double()
            mean, square = one * mean + (1 - one) * gradient, two * square + (1 - two) * gradient**2
            self.moments |= {
                f"{name}/step": count,
                f"{name}/exp_avg": mean,
                f"{name}/exp_avg_sq": square,
            }
            n = float(count)
            change = mean / (1 - one**n) / ((square / (1 - two**n)).sqrt() + 1e-8)
            weights[name] = weights[name] * (1 - lr * decay) - lr * change


def of_kind(tensors: Mapping[str, torch.Tensor], kind: str) -> dict[str, torch.Tensor]:
    return {name: value for name, value in tensors.items() if name.endswith(f"/{kind}")}


def recomputed(folder: Path, step: int) -> dict[str, float]:
    """How far a step of the run is from this program's: relative differences,
    by what is compared.
    """
    config = tomllib.loads((folder / "config.toml").read_text())
    assert config["dtype"] == "float64", "only runs in float64 can be compared to so many digits"
    lines, algo = load(folder / "config.toml").algo.explain(), config["algo"]
    start, end = (folder / "checkpoints" / f"step-{number:06d}" for number in (step - 1, step))
    found = list(groups_of(folder, step, config["rollout"]["group"]))
    kept = [(own, baseline) for group, baseline in found if (own := learned_from(group, algo))]
    groups, baselines = [own for own, _ in kept], [baseline for _, baseline in kept]
    episodes = list(itertools.chain(*groups))
    # imitation is of what was said, whatever it was sampled at
    temperature = 1.0 if algo["name"] == "rft" else config["rollout"]["temperature"]
    model = Model(weights_at(start), Shape.read(start), temperature)
    begun_with, given = dict(model.weights), {}
    with torch.no_grad():
        before = model.of(episodes)
        if "logp_ref_c" in " ".join(lines):
            given["logp_ref_c"] = (
                replace(model, weights=weights_at(folder / "reference")).of(episodes).logp_c
            )
        facts = facts_of(groups, baselines, before, given)
    whole = Objective(lines)
    credit = {
        name: whole.named(name, facts) for name in ("A_c", "G_c", "bonus") if name in whole.formulas
    }
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    (row,) = [row for row in rows if row["step"] == step and "loss" in row]
    optimizer = AdamW(config["optim"], load_file(start / "optimizer.safetensors"))
    figures: dict[str, list[tuple[float, int]]] = {}
    for epoch in range(config["optim"]["epochs"]):
        for members in minibatches(config, step, epoch, len(episodes)):
            part = part_of(facts, members, credit)
            objective = Objective(lines)
            for name in credit:
                del objective.formulas[name]
            critic = algo.get("critic", {})
            own = [episodes[i] for i in members]
            of_part = gradient_step(
                model,
                optimizer,
                objective,
                part,
                own,
                critic,
                is_warming_up=step <= critic.get("warmup", 0),
                lr=row["lr"],
            )
            for name, pair in of_part.items():
                figures.setdefault(name, []).append(pair)
    means: dict[str, float] = {}
    for name, pairs in figures.items():
        total = sum(count for _, count in pairs)
        means[name] = sum(value * count for value, count in pairs) / total
    differences = {
        name: abs(row[name] - mean) / max(abs(mean), LEAST)
        for name, mean in means.items()
        if name in row
    }
    differences["weights"] = distance(model.weights, weights_at(end), begun_with)
    moments = load_file(end / "optimizer.safetensors")
    for kind in ("exp_avg", "exp_avg_sq"):
        recomputed_moments = of_kind(optimizer.moments, kind)
        zeros = {name: torch.zeros_like(value) for name, value in recomputed_moments.items()}
        differences[kind] = distance(recomputed_moments, of_kind(moments, kind), zeros)
    return differences


def gradient_step(
    model: Model,
    optimizer: AdamW,
    objective: Objective,
    facts: Facts,
    episodes: list[Episode],
    critic: dict[str, Any],
    *,
    is_warming_up: bool,
    lr: float,
) -> dict[str, tuple[float, int]]:
    """Change the weights by one mini-batch.

    Returns what is logged of it, with what each figure weighs in the mean.
    """
    leaves = {
        name: value.detach().clone().requires_grad_() for name, value in model.weights.items()
    }
    said = replace(model, weights=leaves).of(episodes)
    given = facts.given | {"logp_c": said.logp_c, "entropy_c": said.entropy_c, "V_c": said.value_c}
    loss = -objective(replace(facts, given=given))
    found = zip(
        leaves, torch.autograd.grad(loss, list(leaves.values()), allow_unused=True), strict=True
    )
    gradients = {name: value for name, value in found if value is not None}
    is_silent = "A_c" in given and not given["A_c"].any()
    if is_silent and not any(value.any() for value in gradients.values()):
        gradients = {}  # a mini-batch without a signal: no optimizer step, not even by momentum
    own, norm = optimizer.clipped(gradients, of_critic=False)
    figures = {"loss": (loss.item(), 1), "grad_norm": (0.0 if is_warming_up else norm, 1)}
    if not is_warming_up:
        optimizer.step(model.weights, own, lr)
    if any(name.startswith("critic.") for name in gradients):
        own, norm = optimizer.clipped(gradients, of_critic=True)
        figures["value/grad_norm"] = (norm, 1)
        base = optimizer.config["lr"]
        optimizer.step(model.weights, own, lr * critic.get("lr", base) / base)
    # With a reference, the forward pass has all tokens, so that the entropy is exact.
    if "logp_ref_c" in given:
        figures["policy/entropy"] = (said.entropy_c.mean().item(), len(facts.turn_c))
        log_ratio = given["logp_ref_c"] - said.logp_c
        figures["policy/kl_reference"] = (
            (log_ratio.exp() - 1 - log_ratio).mean().item(),
            len(facts.turn_c),
        )
    return figures


def distance(ours: Weights, theirs: Weights, begun_with: Weights) -> float:
    """Of two ways from the same beginning, against the length of the way."""
    assert set(ours) == set(theirs), set(ours) ^ set(theirs)
    apart = sum(
        float((ours[name].double() - theirs[name].double()).square().sum()) for name in theirs
    )
    way = sum(
        float((theirs[name].double() - begun_with[name].double()).square().sum()) for name in theirs
    )
    return (apart / way) ** 0.5


def trained(folder: Path, overrides: dict[str, Any]) -> Path:
    run_training(Run.create(folder, build(BASE, overrides)), Display())
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="settings whose title has this word")
    parser.add_argument("--out", type=Path, help="keep the runs here")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--run", type=Path, help="a run to recompute, in place of training some")
    parser.add_argument("--steps", type=int, nargs="+", default=[2, 3])
    given = parser.parse_args()
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        runs: list[tuple[str, Callable[[], Path]]] = []
        for number, (title, overrides) in enumerate(settings()):
            folder = (given.out or Path(scratch)) / f"{number:02d}"
            if given.only in title:
                runs.append(
                    (title, lambda folder=folder, overrides=overrides: trained(folder, overrides))
                )
        for title, made in runs if given.run is None else [(str(given.run), lambda: given.run)]:
            folder = made()
            steps = [recomputed(folder, step) for step in given.steps]
            found[title] = {}
            for name in steps[0]:
                found[title][name] = max(step[name] for step in steps)
            cells = "  ".join(f"{name} {value:.1e}" for name, value in found[title].items())
            print(f"{title:72}  {cells}", flush=True)
    worst = max(max(cells.values()) for cells in found.values() if cells)
    print(
        f"{len(found)} settings x {len(given.steps)} steps: worst relative difference {worst:.1e}"
    )
    if given.json:
        given.json.write_text(json.dumps({"worst": worst, "settings": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
