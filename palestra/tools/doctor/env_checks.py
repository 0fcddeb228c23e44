"""Checks of what a run needs besides its model: environments that answer in time and keep their
contract, and room on the disk.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from palestra.config.env import EnvSpec
from palestra.core.types import Stop, Task
from palestra.envs import Environment
from palestra.envs.check import check_environment
from palestra.envs.serving.handles import EnvFault, EnvHandle, EnvPool, guarded, listed, opened
from palestra.learner.learner import Learner
from palestra.models.lora import adapter_of
from palestra.models.weights import fp32_or_wider
from palestra.rollout.evaluation import held_out
from palestra.tools.doctor.result import Verdict, check, size

TURNS = 20


@dataclass
class _Watch:
    """The seconds of each call, and the faults."""

    reset_s: list[float] = field(default_factory=list)
    step_s: list[float] = field(default_factory=list)
    faults: list[EnvFault] = field(default_factory=list)


@check("environment answers in time")
def check_answers(
    label: str,
    env: Environment,
    pool: EnvPool,
    *,
    deadline_s: float,
    episodes: int = 16,
    budget_s: float = 5.0,
) -> Verdict:
    """Play as an expert and at random, alternately. No fault is allowed, and the 95th percentile of
    the calls may take at most half of the deadline.

    `env` only lists the tasks. They are played in the environments of `pool`.
    """
    watch = _Watch()
    with guarded(label, "tasks('train')", deadline_s=deadline_s):
        tasks = held_out(listed(label, env, "train"), episodes)
    asyncio.run(_watched(pool, tasks, watch, budget_s))
    calls = sorted([*watch.reset_s, *watch.step_s])
    if watch.faults:
        first = watch.faults[0]
        detail = (
            f"{label}: {len(watch.faults)} faults in {len(calls)} calls; the first: "
            f"{first.stop}: {first}"
        )
        return Verdict(False, len(watch.faults), detail)
    slow = _at(calls, 0.95)
    resets, steps = _percentiles(watch.reset_s), _percentiles(watch.step_s)
    detail = (
        f"{label}: reset {resets}, step {steps} (p50/p95/max), deadline {deadline_s:g} s, 0 faults"
    )
    if slow > deadline_s / 2:
        return Verdict(False, slow, f"{detail}: too close to it")
    return Verdict(True, slow, detail)


async def _watched(pool: EnvPool, tasks: Sequence[Task], watch: _Watch, budget_s: float) -> None:
    """Play one episode after the other until the time is up. Stops at one that hangs, since the
    others would hang, too.
    """
    began = time.monotonic()
    for number, task in enumerate(tasks):
        hangs = False
        try:
            async with opened(pool) as env:
                await _episode(
                    env, task, watch, is_expert=number % 2 == 0, chance=random.Random(number)
                )
        except EnvFault as fault:
            watch.faults.append(fault)
            hangs = fault.stop is Stop.TIMEOUT
        if hangs or time.monotonic() - began > budget_s:
            break
    await pool.close()


async def _episode(
    env: EnvHandle, task: Task, watch: _Watch, *, is_expert: bool, chance: random.Random
) -> None:
    began = time.monotonic()
    await env.reset(task)
    watch.reset_s.append(time.monotonic() - began)
    for _ in range(TURNS):
        action = await env.expert() if is_expert else None
        action = action or chance.choice(await env.actions() or ["do something"])
        began = time.monotonic()
        step = await env.step(action)
        watch.step_s.append(time.monotonic() - began)
        if step.terminated or step.truncated:
            break


def _at(ordered: Sequence[float], share: float) -> float:
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def _percentiles(seconds: Sequence[float]) -> str:
    ordered = sorted(seconds)
    return "/".join(f"{1000 * _at(ordered, share):.3g}" for share in (0.5, 0.95, 1.0)) + " ms"


@check("environment keeps its contract")
def check_contract(spec: EnvSpec, *, tasks: int = 2) -> Verdict:
    if spec.env.sandbox != "none":  # the check would run its code here
        return Verdict(
            True,
            0,
            f"{spec.label}: not checked, as it is played in a sandbox only; palestra env "
            "check does so without one",
        )
    promises = check_environment(spec.env.name, spec.env.options, tasks=tasks)
    broken = [promise for promise in promises if not promise.ok]
    kept = len(promises) - len(broken)
    if broken:
        return Verdict(
            False,
            kept,
            f"{spec.label}: {kept} of {len(promises)} promises; not: {broken[0].name} "
            f"({broken[0].detail})",
        )
    return Verdict(
        True,
        kept,
        f"{spec.label}: {kept} promises on {tasks} tasks; more by: palestra env check "
        f"{spec.env.name}",
    )


def checkpoint_bytes(learner: Learner) -> int:
    """The weights of model and critic, Adam's two moments of the trained ones, and their master
    weights.
    """
    critic = sum(p.nbytes for p in learner.critic.parameters()) if learner.critic is not None else 0
    moments = 2 * sum(p.nbytes for p in learner.trained().values())
    return reference_bytes(learner) + critic + moments + master_bytes(learner)


def reference_bytes(learner: Learner) -> int:
    """The stored weights: those of the whole model, or of the adapter alone."""
    return sum(p.nbytes for p in (adapter_of(learner.model).values() or learner.model.parameters()))


def master_bytes(learner: Learner) -> int:
    """The float32 master weights of a model in lower precision. A model in float32 needs none."""
    if learner.model.dtype == fp32_or_wider(learner.model.dtype):
        return 0
    return sum(p.nbytes for p in learner.trained().values())


@check("disk has room for checkpoints")
def check_disk(
    learner: Learner, folder: Path, *, checkpoints: int, keeps_reference: bool
) -> Verdict:
    """`checkpoints`: one more than are kept, since the oldest is deleted after the newest is
    written.
    """
    own = checkpoint_bytes(learner)
    reference = reference_bytes(learner) if keeps_reference else 0
    existing = folder.absolute()
    while not existing.exists():
        existing = existing.parent
    free = shutil.disk_usage(existing).free
    needed = checkpoints * own + reference
    terms = f"{checkpoints} x {size(own)}"
    if reference:
        terms += f" + {size(reference)} of the reference"
    detail = f"{terms} = {size(needed)} of {size(free)} free under {existing}"
    return Verdict(needed <= free, needed, detail)
