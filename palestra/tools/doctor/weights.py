"""Engine and learner: the same weights, the same log-probs, a gradient that packing does not
change, and a reward that rises.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from transformers import PreTrainedModel

from palestra.algos.base import Algorithm
from palestra.algos.batch import Batch
from palestra.algos.grpo import GRPO
from palestra.algos.losses import kl_divergence
from palestra.core.action_formats import Plain
from palestra.core.types import Group, Step, Task, Trajectory
from palestra.engines.fingerprint import digest
from palestra.envs.base import Environment
from palestra.envs.serving.handles import InlinePool
from palestra.learner.learner import Learner
from palestra.learner.logprobs import predict
from palestra.models.weights import fp32_or_wider
from palestra.rollout.episode import EnvBinding, shared_prompt
from palestra.rollout.groups import GroupRequest, collect_groups
from palestra.tools.doctor.play import Played, play_some
from palestra.tools.doctor.result import Verdict, check
from palestra.training.setup import Components

RECOMPUTED = GRPO(recompute_logprobs=True)
"""Asks the learner for its own log-probs beside the engine's."""
UPDATES = 20
TOKENS_PER_TASK = 128
"""What is sampled for each of the toy's four tasks in a step."""


def kl_limit(model: PreTrainedModel) -> float:
    """In nats a token: on a CPU in float32 only the order of additions differs."""
    return (
        1e-5 if model.dtype == fp32_or_wider(model.dtype) and model.device.type == "cpu" else 1e-3
    )


class Pace:
    """A learning rate that finds its size: so large that an update shows, and so small that it does
    not destroy.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        width: int = model.config.get_text_config().hidden_size
        self.lr = min(0.25 / width, 32 / width**2) / 4

    def heed(self, moved: float) -> None:
        """`moved`: by what mean KL the last update changed the policy."""
        if moved < 0.05:
            self.lr *= 2
        elif moved > 0.3:
            self.lr /= 2


def fingerprint(model: PreTrainedModel) -> str:
    """A short name for the weights as they are."""
    return digest(model.named_parameters())


@contextmanager
def borrowed(components: Components) -> Iterator[None]:
    """What happens to the weights in here is undone afterwards,
    in the learner and in the engine.
    """
    model = components.learner.model
    learning = {
        name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad
    }
    kept = {name: parameter.detach().to("cpu", copy=True) for name, parameter in learning.items()}
    try:
        yield
    finally:
        with torch.no_grad():
            for name, parameter in learning.items():
                parameter.copy_(kept[name])
        model.zero_grad(set_to_none=True)
        components.learner.reset_optimizer()
        components.loop.run(components.engine.sync_weights(version=0))


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Between the log-probs that came with the tokens and the learner's own."""

    kl: float
    absolute: float
    tokens: int


def one_group(trajectories: Sequence[Trajectory]) -> list[Group]:
    return [Group(trajectories[0].task, list(trajectories))]


def mismatch(learner: Learner, trajectories: Sequence[Trajectory]) -> Mismatch:
    batch = learner.prepare(one_group(trajectories), RECOMPUTED)
    sampled_C, own_C = batch.sampled_logp_C.double(), batch.old_logp_C.double()
    return Mismatch(
        kl_divergence(sampled_C, own_C).mean().item(),
        (sampled_C - own_C).abs().mean().item(),
        len(own_C),
    )


@check("engine and learner agree on log-probs")
def check_logprobs(components: Components, played: Played) -> Verdict:
    limit = kl_limit(components.learner.model)
    found = mismatch(components.learner, played.trajectories)
    detail = (
        f"mean KL {found.kl:.1e} (at most {limit:.0e}), mean difference {found.absolute:.1e}, "
        f"{found.tokens} tokens"
    )
    return Verdict(found.kl <= limit, found.kl, detail)


@check("an update reaches the engine")
def check_handover(components: Components, played: Played) -> Verdict:
    """Update until old weights could not pass for new ones, hand over, play again: the log-probs
    must be the new learner's.
    """
    learner, labels = (
        components.learner,
        sorted({trajectory.task.env for trajectory in played.trajectories}),
    )
    limit, before = kl_limit(learner.model), fingerprint(learner.model)
    with borrowed(components):
        stale = _moved(learner, played.trajectories, least=10 * limit)
        after = fingerprint(learner.model)
        again = play_some(components, labels, count=max(4, len(labels)), version=1)
        found = mismatch(learner, again.trajectories).kl
    versions = sorted({generation.version for generation in again.replies})
    if after == before:
        return Verdict(
            False, None, f"the fingerprint of the weights is {before} before and after an update"
        )
    if not stale >= 10 * limit:
        return Verdict(
            False, stale, f"{UPDATES} updates moved the log-probs by a mean KL of only {stale:.1e}"
        )
    if not found <= limit:
        detail = (
            f"after the hand-over the mean KL is {found:.1e} (at most {limit:.0e}); with the "
            f"old weights it would be {stale:.1e}"
        )
        return Verdict(False, found, detail)
    if versions != [1]:
        return Verdict(
            False,
            found,
            f"version 1 was handed over, and the engine says that versions {versions} sampled",
        )
    if fingerprint(learner.model) != before:
        return Verdict(
            False,
            found,
            f"the weights could not be put back: {before} became {fingerprint(learner.model)}",
        )
    return Verdict(
        True,
        found,
        f"{before} became {after}; mean KL {found:.1e} with the new weights, {stale:.1e} "
        "with the old ones",
    )


def _moved(learner: Learner, trajectories: Sequence[Trajectory], *, least: float) -> float:
    """Update on made-up rewards until the log-probs have moved by `least`, and say how far they
    have.
    """
    algo, pace, moved = GRPO(), Pace(learner.model), 0.0
    batch = learner.prepare(one_group(trajectories), algo)
    batch = algo.add_advantages(
        batch.with_(reward_N=torch.arange(len(batch), device=batch.ids_T.device).float() % 2)
    )
    for update in range(UPDATES):
        learner.update(batch, algo, lr=pace.lr, step=update, minibatches=1, epochs=1)
        moved = mismatch(learner, trajectories).kl
        if moved >= least:
            break
        pace.heed(moved)
    return moved


@check("packing does not change the gradient")
def check_packing(components: Components, played: Played) -> Verdict:
    """Of several segments in one row, and of each in a row of its own."""
    learner = components.learner
    limit = 1e-4 if learner.model.dtype == fp32_or_wider(learner.model.dtype) else 5e-2
    batch = learner.prepare(one_group(played.trajectories), GRPO())
    if len(batch.lengths_S) < 2:
        return Verdict(False, None, "only one segment was played: there is nothing to pack")
    segments = max(2, int((batch.lengths_S.cumsum(0) <= learner.optim.microbatch_tokens).sum()))
    row = batch.take(torch.arange(segments, device=batch.ids_T.device))
    signs_C = (
        torch.randint(0, 2, row.trajectory_C.shape, generator=torch.Generator().manual_seed(0))
        * 2.0
        - 1
    )
    row = row.with_(advantage_C=signs_C.to(row.ids_T.device))
    packed = _gradient(learner, [row])
    alone = _gradient(
        learner, [row.take(torch.tensor([n], device=row.ids_T.device)) for n in range(segments)]
    )
    difference = (
        sum(
            (one - other).double().square().sum().item()
            for one, other in zip(packed, alone, strict=True)
        )
        ** 0.5
    )
    norm = sum(other.double().square().sum().item() for other in alone) ** 0.5
    error = difference / norm if norm > 0 else float("nan")
    detail = (
        f"relative difference {error:.1e} (at most {limit:.0e}), {segments} segments, "
        f"{len(row.ids_T)} tokens"
    )
    return Verdict(error <= limit, error, detail)


def _gradient(learner: Learner, rows: Sequence[Batch]) -> list[Tensor]:
    learner.model.zero_grad(set_to_none=True)
    for row in rows:
        assert row.advantage_C is not None
        (predict(learner.model, row, learner.temperature).logp_C * row.advantage_C).sum().backward()
    gradients = [p.grad for p in learner.model.parameters() if p.grad is not None]
    learner.model.zero_grad(set_to_none=True)
    return gradients


class Toy(Environment):
    """Say anything, once.

    What was said is judged by its tokens, which an environment does not see.
    """

    name = "toy"
    splits = ("train",)
    max_turns = 1

    def tasks(self, split: str) -> list[Task]:
        return [Task(self.name, split, str(n)) for n in range(4)]

    def reset(self, task: Task) -> str:
        return f"go {task.id}"

    def step(self, action: str) -> Step:
        return Step("done", terminated=True, success=True)


@check("a toy reward rises")
def check_toy(
    components: Components,
    *,
    algo: Algorithm | None = None,
    steps: int = 30,
    budget_s: float = 20.0,
    margin: float = 0.1,
) -> Verdict:
    """A few steps of GRPO for saying tokens with an even number: about half of them to begin with,
    in whatever language.
    """
    algo = algo or GRPO()
    learner, prompt = components.learner, shared_prompt(components.context.bindings)
    binding = EnvBinding(
        replace(prompt, format=Plain(), instructions="", example=()), InlinePool(Toy, 60.0)
    )
    reply_tokens = min(components.context.sampling.max_tokens, 16)
    context = replace(
        components.context,
        bindings={Toy.name: binding},
        sampling=replace(components.context.sampling, max_tokens=reply_tokens),
        retries=0,
    )
    requests = [
        GroupRequest(task, TOKENS_PER_TASK // reply_tokens, horizon=1)
        for task in Toy().tasks("train")
    ]
    pace, began, rewards = Pace(learner.model), time.monotonic(), list[float]()
    with borrowed(components):
        components.loop.run(components.engine.sync_weights(version=0))
        while (
            not _has_risen(rewards, margin)
            and len(rewards) < steps
            and (len(rewards) < 4 or time.monotonic() - began < budget_s)
        ):
            step = len(rewards) + 1
            played = components.loop.run(
                collect_groups(context, requests, seed=components.config.seed, step=step)
            )
            groups = [
                replace(group, trajectories=[_judged(t) for t in group.trajectories])
                for group in played.groups
            ]
            rewards.append(_mean([t.reward for group in groups for t in group.trajectories]))
            batch = algo.add_advantages(learner.prepare(groups, algo))
            learner.update(batch, algo, lr=pace.lr, step=step, minibatches=1, epochs=1)
            pace.heed(mismatch(learner, [t for group in groups for t in group.trajectories]).kl)
            components.loop.run(components.engine.sync_weights(version=step))
    first, last = _mean(rewards[:2]), _mean(rewards[-2:])
    told = (
        f"from {first:.2f} to {last:.2f} in {len(rewards)} steps and "
        f"{time.monotonic() - began:.1f} s; {margin:g} more is enough"
    )
    return Verdict(_has_risen(rewards, margin), last - first, told)


def _has_risen(rewards: Sequence[float], margin: float) -> bool:
    """Means of two steps of 512 tokens each differ by 0.02 by chance: that is a fifth of the
    margin.
    """
    return len(rewards) >= 4 and _mean(rewards[-2:]) - _mean(rewards[:2]) >= margin


def _judged(trajectory: Trajectory) -> Trajectory:
    """With the share of even tokens in each reply as its reward."""

    def reward(segment: int, span: tuple[int, int]) -> float:
        ids = trajectory.segments[segment].ids[slice(*span)]
        return sum(token % 2 == 0 for token in ids) / len(ids)

    return replace(
        trajectory,
        turns=[replace(turn, reward=reward(turn.segment, turn.span)) for turn in trajectory.turns],
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / max(len(values), 1)
