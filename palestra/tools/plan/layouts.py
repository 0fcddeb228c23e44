"""Layouts of a run over GPUs, the memory and time of each, and the best of those that fit."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from palestra.tools.plan import costs
from palestra.tools.plan.costs import Work
from palestra.tools.plan.machines import GIB, HOST_GPUS, Gpu, link_between
from palestra.tools.plan.shapes import Shape

FILLED = 0.9
"""The share of a GPU's memory that a plan may fill: the rest is for fragments, graphs and
libraries.
"""

PAGED = 1.25
"""The cache of vLLM for an episode, in multiples of its mean length: episodes differ in age."""
ALIKE = 1.05
"""Steps that differ by less count as equally long: the estimates are not more precise."""


@dataclass(frozen=True, slots=True)
class Job:
    """The input of a plan: a model, a step's work and the limits that the recipe sets."""

    shape: Shape
    work: Work
    gpu: Gpu
    gpus: int
    link: str
    context_tokens: int
    microbatch_tokens: int
    slots: int
    """The most episodes that one engine plays at once."""
    reference: bool = False
    """Whether a reference model is kept, to measure KL against."""
    adapter_rank: int | None = None
    overlapped: bool = False
    """Whether the recipe lets the learner update while episodes are played."""


@dataclass(frozen=True, slots=True)
class Layout:
    learners: int
    """GPUs that learn."""
    generators: int
    """GPUs that only generate; 0: the learners do both, alternately."""
    sharding: str
    tensor_parallel: int
    """GPUs of one engine."""
    checkpointing: bool
    slots: int
    """Episodes that an engine plays at once."""

    @property
    def engines(self) -> int:
        return (self.generators or self.learners) // self.tensor_parallel

    @property
    def is_apart(self) -> bool:
        return self.generators > 0


@dataclass(frozen=True, slots=True)
class Plan:
    """A layout with its memory (bytes on the fullest GPU, by part) and its time (seconds of a step,
    by part).
    """

    job: Job
    layout: Layout
    memory: dict[str, float]
    seconds: dict[str, float]

    @property
    def fullest(self) -> float:
        return sum(self.memory.values())

    @property
    def fits(self) -> bool:
        return self.fullest <= FILLED * self.job.gpu.memory

    @property
    def step_s(self) -> float:
        collect, learn, hand_over = self.seconds.values()
        is_overlapped = self.layout.is_apart or self.job.overlapped
        return (max(collect, learn) if is_overlapped else collect + learn) + hand_over

    @property
    def limit(self) -> str:
        """The longest part of a step."""
        return max(self.seconds, key=lambda part: self.seconds[part])


def plan(job: Job, layout: Layout) -> Plan:
    return Plan(job, layout, _memory(job, layout), _seconds(job, layout))


def _memory(job: Job, layout: Layout) -> dict[str, float]:
    """The memory of the fullest GPU. With separate generators, that of the fuller kind."""
    shape, sharded = job.shape, layout.sharding == "fsdp"
    shards = layout.learners if sharded else 1
    learner = {
        "weights and optimizer": costs.state_bytes(
            shape, shards=shards, adapter_rank=job.adapter_rank
        ),
        "reference": 2 * shape.parameters / shards if job.reference else 0.0,
        "a row of tokens": costs.row_bytes(
            shape, job.microbatch_tokens, checkpointing=layout.checkpointing
        ),
    }
    live = min(job.work.episodes / layout.engines, layout.slots)
    tokens: float = job.context_tokens
    if layout.is_apart:  # vLLM allocates memory as episodes grow
        tokens = min(PAGED * job.work.episode_tokens, job.context_tokens)
    own_weights = 0.0
    if layout.is_apart or sharded:
        own_weights = costs.engine_bytes(shape, tensor_parallel=layout.tensor_parallel)
    engine = {
        "engine's weights": own_weights,
        "cache": costs.cache_bytes(shape, live, tokens, tensor_parallel=layout.tensor_parallel),
    }
    if not layout.is_apart:
        return learner | engine
    return max(learner, engine, key=lambda memory: sum(memory.values()))


def _seconds(job: Job, layout: Layout) -> dict[str, float]:
    shape, work, sharded = job.shape, job.work, layout.sharding == "fsdp"
    vllm = layout.is_apart
    return {
        "collect": costs.collect_seconds(
            shape,
            job.gpu,
            work,
            engines=layout.engines,
            tensor_parallel=layout.tensor_parallel,
            slots=layout.slots,
            vllm=vllm,
        ),
        "learn": costs.learn_seconds(
            shape,
            job.gpu,
            work.tokens,
            work.episode_tokens,
            gpus=layout.learners,
            checkpointing=layout.checkpointing,
            sharded=sharded,
            microbatch_tokens=job.microbatch_tokens,
            link=link_between(layout.learners, job.link),
        ),
        "hand over": costs.hand_over_seconds(
            shape,
            link=link_between(job.gpus, job.link),
            moved=layout.is_apart or sharded,
            vllm=vllm,
            tensor_parallel=layout.tensor_parallel,
        ),
    }


def layouts(job: Job) -> Iterator[Layout]:
    """All layouts to consider. Engines of several GPUs are separate servers on one host."""
    shardings = ("none", "fsdp") if job.gpus > 1 else ("none",)
    for checkpointing, sharding in itertools.product((False, True), shardings):
        for slots in _halved(job.slots):
            yield Layout(job.gpus, 0, sharding, 1, checkpointing, slots)
            for size, generators in itertools.product((1, 2, 4, 8), _splits(job.gpus)):
                if generators % size == 0:
                    learners = job.gpus - generators
                    yield Layout(learners, generators, sharding, size, checkpointing, slots)


def _halved(slots: int) -> Iterator[int]:
    while slots >= 1:
        yield slots
        slots //= 2


def _splits(gpus: int) -> Iterator[int]:
    """Numbers of generators to consider: all within a host, multiples of an eighth beyond."""
    step = 1 if gpus <= HOST_GPUS else max(gpus // 8, 1)
    yield from range(step, gpus, step)


def best(job: Job) -> Plan:
    """The simplest of the fastest plans that fit; if none does, the one with the least memory."""
    plans = [plan(job, layout) for layout in layouts(job)]
    fitting = [one for one in plans if one.fits]
    if not fitting:
        return min(plans, key=lambda one: one.fullest)
    enough = ALIKE * min(one.step_s for one in fitting)
    return min((one for one in fitting if one.step_s <= enough), key=_complexity)


def _complexity(one: Plan) -> tuple[bool, bool, bool, int, int, float]:
    layout = one.layout
    return (
        layout.is_apart,
        layout.sharding == "fsdp",
        layout.checkpointing,
        layout.tensor_parallel,
        -layout.slots,
        one.step_s,
    )


def least_gpus(job: Job, most: int = 4096) -> int | None:
    """The smallest power of two that the run fits on."""
    gpus = 1
    while gpus <= most:
        if best(replace(job, gpus=gpus)).fits:
            return gpus
        gpus *= 2
    return None


def warnings(one: Plan) -> list[str]:
    """How the plan differs from what its constants were measured with: one H200 and a model of
    1.5B.
    """
    job, layout = one.job, one.layout
    found = []
    if not 0.5e9 < job.shape.parameters < 3e9:
        found.append(
            f"speeds were measured with a model of 1.5B, this one has {parameters(job.shape)}"
        )
    if job.gpu.name != "H200":
        found.append(
            f"speeds were measured on an H200; those of the {job.gpu.name} are scaled by "
            "its bandwidth and peak"
        )
    if job.gpus > 1:
        found.append(
            "speeds were measured on one GPU; the cost of links is computed from their "
            "makers' figures"
        )
    if layout.tensor_parallel > 1:
        found.append(
            f"engines of {layout.tensor_parallel} GPUs were not measured, and have been "
            "run on CPUs only"
        )
    if layout.is_apart:
        found.append(
            "weight syncs to other GPUs (engine.weights = 'nccl') were not measured, and have "
            "not been run yet"
        )
    if layout.is_apart and layout.learners > layout.engines:
        found.append(
            f"{layout.learners} learners share {layout.engines} engines, which has been "
            "run on CPUs only"
        )
    per_learner = job.work.tokens / job.microbatch_tokens / layout.learners
    if per_learner < 1:
        found.append(
            f"a batch has {job.work.tokens / job.microbatch_tokens:.0f} rows for "
            f"{layout.learners} learners: most of them wait"
        )
    if job.work.episodes < layout.engines:
        found.append(
            f"{job.work.episodes} episodes for {layout.engines} engines: most of them "
            "wait; raise rollout.tasks"
        )
    return found


def parameters(shape: Shape) -> str:
    if shape.parameters >= 1e8:
        return f"{shape.parameters / 1e9:.2g}B"
    return f"{shape.parameters / 1e6:.2g}M"


def in_gib(count: float) -> float:
    return count / GIB
