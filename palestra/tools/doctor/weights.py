"""Checks of engine and learner: the same weights, the same log-probs, a gradient that packing does
not change, and a reward that rises.
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
from palestra.core.types import Group, Step, Task, Trajectory, Turn
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
"""GRPO whose batches have the learner's own log-probs as well as the engine's."""
UPDATES = 20
TOKENS_PER_TASK = 128
"""Tokens sampled for each of the toy's four tasks in a step."""


def kl_limit(model: PreTrainedModel) -> float:
    """The largest KL between engine and learner, in nats a token."""
    # On a CPU in float32, only the order of additions differs.
    is_exact = model.dtype == fp32_or_wider(model.dtype) and model.device.type == "cpu"
    return 1e-5 if is_exact else 1e-3


class Pace:
    """An adaptive learning rate: large enough for an update to show, and small enough not to
    destroy the model.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        width: int = model.config.get_text_config().hidden_size
        self.lr = min(0.25 / width, 32 / width**2) / 4

    def adapt(self, moved: float) -> None:
        """`moved`: the mean KL by which the last update changed the policy."""
        if moved < 0.05:
            self.lr *= 2
        elif moved > 0.3:
            self.lr /= 2


def fingerprint(model: PreTrainedModel) -> str:
    """A short digest of the current weights."""
    return digest(model.named_parameters())


@contextmanager
def borrowed(components: Components) -> Iterator[None]:
    """Restores the weights afterwards, in the learner and in the engine."""
    model = components.learner.model
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    kept = [parameter.detach().to("cpu", copy=True) for parameter in trained]
    try:
        yield
    finally:
        with torch.no_grad():
            for parameter, value in zip(trained, kept, strict=True):
                parameter.copy_(value)
        model.zero_grad(set_to_none=True)
        components.learner.reset_optimizer()
        components.loop.run(components.engine.sync_weights(version=0))


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The difference between the engine's log-probs and the learner's."""

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
    """Update until old weights could not pass for new ones, sync, play again: the engine's
    log-probs must be those of the updated learner.
    """
    learner = components.learner
    labels = sorted({trajectory.task.env for trajectory in played.trajectories})
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
            f"after the weight sync the mean KL is {found:.1e} (at most {limit:.0e}); with the "
            f"old weights it would be {stale:.1e}"
        )
        return Verdict(False, found, detail)
    if versions != [1]:
        return Verdict(
            False,
            found,
            f"version 1 was synced, and the engine says that versions {versions} sampled",
        )
    if fingerprint(learner.model) != before:
        return Verdict(
            False,
            found,
            f"the weights could not be restored: {before} became {fingerprint(learner.model)}",
        )
    return Verdict(
        True,
        found,
        f"{before} became {after}; mean KL {found:.1e} with the new weights, {stale:.1e} "
        "with the old ones",
    )


def _moved(learner: Learner, trajectories: Sequence[Trajectory], *, least: float) -> float:
    """Update on artificial rewards until the mean KL to the sampling policy is `least`, and return
    it.
    """
    algo, pace, moved = GRPO(), Pace(learner.model), 0.0
    batch = learner.prepare(one_group(trajectories), algo)
    reward_N = torch.arange(len(batch), device=batch.ids_T.device).float() % 2  # 0, 1, 0, 1, ...
    batch = algo.add_advantages(batch.with_(reward_N=reward_N))
    for update in range(UPDATES):
        learner.update(batch, algo, lr=pace.lr, step=update, minibatches=1, epochs=1)
        moved = mismatch(learner, trajectories).kl
        if moved >= least:
            break
        pace.adapt(moved)
    return moved


@check("packing does not change the gradient")
def check_packing(components: Components, played: Played) -> Verdict:
    """Compare the gradient of several segments in one row with that of each in a row of its own."""
    learner = components.learner
    limit = 1e-4 if learner.model.dtype == fp32_or_wider(learner.model.dtype) else 5e-2
    batch = learner.prepare(one_group(played.trajectories), GRPO())
    if len(batch.lengths_S) < 2:
        return Verdict(False, None, "only one segment was played: there is nothing to pack")
    segments = max(2, int((batch.lengths_S.cumsum(0) <= learner.optim.microbatch_tokens).sum()))
    device = batch.ids_T.device
    row = batch.take(torch.arange(segments, device=device))
    # Random advantages of +1 and -1: with a sign for each token, no mistake cancels out.
    generator = torch.Generator().manual_seed(0)
    signs_C = torch.randint(0, 2, row.trajectory_C.shape, generator=generator) * 2.0 - 1
    row = row.with_(advantage_C=signs_C.to(device))
    alone = [row.take(torch.tensor([n], device=device)) for n in range(segments)]
    packed_gradients = _gradient(learner, [row])
    alone_gradients = _gradient(learner, alone)
    difference, norm = 0.0, 0.0
    for packed, unpacked in zip(packed_gradients, alone_gradients, strict=True):
        difference += (packed - unpacked).double().square().sum().item()
        norm += unpacked.double().square().sum().item()
    error = difference**0.5 / norm**0.5 if norm > 0 else float("nan")
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
    """One turn in which any action will do. The check itself rewards the tokens of the reply, which
    an environment does not see.
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
    """Train a few steps of GRPO with the share of even token ids as the reward: about half to begin
    with, for any model.
    """
    algo = algo or GRPO()
    learner, prompt = components.learner, shared_prompt(components.context.bindings)
    prompt = replace(prompt, format=Plain(), instructions="", example=())
    binding = EnvBinding(prompt, InlinePool(Toy, 60.0))
    reply_tokens = min(components.context.sampling.max_tokens, 16)
    context = replace(
        components.context,
        bindings={Toy.name: binding},
        sampling=replace(components.context.sampling, max_tokens=reply_tokens),
        retries=0,
    )
    group = TOKENS_PER_TASK // reply_tokens
    requests = [GroupRequest(task, group, horizon=1) for task in Toy().tasks("train")]
    pace, began, rewards = Pace(learner.model), time.monotonic(), list[float]()
    with borrowed(components):
        components.loop.run(components.engine.sync_weights(version=0))
        for step in range(1, steps + 1):
            is_late = time.monotonic() - began >= budget_s
            if _has_risen(rewards, margin) or (is_late and len(rewards) >= 4):
                break
            played = components.loop.run(
                collect_groups(context, requests, seed=components.config.seed, step=step)
            )
            groups: list[Group] = []
            trajectories: list[Trajectory] = []
            for collected in played.groups:
                judged = [_judged(trajectory) for trajectory in collected.trajectories]
                groups.append(replace(collected, trajectories=judged))
                trajectories += judged
            rewards.append(_mean([trajectory.reward for trajectory in trajectories]))
            batch = algo.add_advantages(learner.prepare(groups, algo))
            learner.update(batch, algo, lr=pace.lr, step=step, minibatches=1, epochs=1)
            pace.adapt(mismatch(learner, trajectories).kl)
            components.loop.run(components.engine.sync_weights(version=step))
    first, last = _mean(rewards[:2]), _mean(rewards[-2:])
    told = (
        f"from {first:.2f} to {last:.2f} in {len(rewards)} steps and "
        f"{time.monotonic() - began:.1f} s; {margin:g} more is enough"
    )
    return Verdict(_has_risen(rewards, margin), last - first, told)


def _has_risen(rewards: Sequence[float], margin: float) -> bool:
    # The means of two steps of 512 tokens each differ by 0.02 by chance, a fifth of the margin.
    return len(rewards) >= 4 and _mean(rewards[-2:]) - _mean(rewards[:2]) >= margin


def _judged(trajectory: Trajectory) -> Trajectory:
    """The trajectory with the share of even tokens in each reply as its reward."""
    turns: list[Turn] = []
    for turn in trajectory.turns:
        ids = trajectory.segments[turn.segment].ids[slice(*turn.span)]
        even = sum(token % 2 == 0 for token in ids)
        turns.append(replace(turn, reward=even / len(ids)))
    return replace(trajectory, turns=turns)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / max(len(values), 1)
