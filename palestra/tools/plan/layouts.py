"""Ways to spread a run over GPUs, what each would need and take, and the best of those that fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from palestra.tools.plan import costs
from palestra.tools.plan.costs import Work
from palestra.tools.plan.machines import GIB, HOST_GPUS, Gpu, link_between
from palestra.tools.plan.shapes import Shape

FILLED = 0.9
"""Of a GPU's memory that a plan may fill: the rest is for fragments, graphs and libraries."""

PAGED = 1.25
"""What vLLM's cache holds of an episode, beside its mean length: they are not all of the same age.

"""
ALIKE = 1.05
"""Steps that differ by less are taken for equally long: the figures are not better than that."""


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be planned: a model, a step's work and the limits that the recipe sets."""

    shape: Shape
    work: Work
    gpu: Gpu
    gpus: int
    link: str
    context_tokens: int
    microbatch_tokens: int
    slots: int
    """Episodes that one engine plays at once at the most."""
    reference: bool = False
    """A second model is kept, to measure KL against."""
    adapter_rank: int | None = None
    overlapped: bool = False
    """Whether the recipe lets the learner work while episodes are played."""


@dataclass(frozen=True, slots=True)
class Layout:
    learners: int
    """GPUs that learn."""
    generators: int
    """GPUs that only generate; 0: those that learn do both, in turn."""
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
        """The part of a step that would have to become shorter first."""
        return max(self.seconds, key=lambda part: self.seconds[part])


def plan(job: Job, layout: Layout) -> Plan:
    return Plan(job, layout, _memory(job, layout), _seconds(job, layout))


def _memory(job: Job, layout: Layout) -> dict[str, float]:
    """Of the fullest GPU: where engines are apart, the fuller of the two kinds."""
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
    room = (
        PAGED * job.work.episode_tokens if layout.is_apart else job.context_tokens
    )  # vLLM gives memory as episodes grow
    engine = {
        "engine's weights": costs.engine_bytes(shape, tensor_parallel=layout.tensor_parallel)
        if layout.is_apart or sharded
        else 0.0,
        "cache": costs.cache_bytes(
            shape, live, min(room, job.context_tokens), tensor_parallel=layout.tensor_parallel
        ),
    }
    if not layout.is_apart:
        return learner | engine
    return max(learner, engine, key=lambda parts: sum(parts.values()))


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
    """All that are worth a look. Engines of several GPUs are servers apart, on GPUs of one host."""
    for checkpointing in (False, True):
        for sharding in ("none", "fsdp") if job.gpus > 1 else ("none",):
            for slots in _halved(job.slots):
                yield Layout(job.gpus, 0, sharding, 1, checkpointing, slots)
                for tensor_parallel in (1, 2, 4, 8):
                    for generators in _splits(job.gpus):
                        if generators % tensor_parallel == 0:
                            yield Layout(
                                job.gpus - generators,
                                generators,
                                sharding,
                                tensor_parallel,
                                checkpointing,
                                slots,
                            )


def _halved(slots: int) -> Iterator[int]:
    while slots >= 1:
        yield slots
        slots //= 2


def _splits(gpus: int) -> Iterator[int]:
    """How many may only generate: any number within a host, eighths of more."""
    step = 1 if gpus <= HOST_GPUS else max(gpus // 8, 1)
    yield from range(step, gpus, step)


def best(job: Job) -> Plan:
    """The simplest of the fastest that fit; where none does, the one that is nearest to fitting."""
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
    """Where the plan goes beyond what its figures were measured with:
    one H200 and a model of 1.5B.
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
            "speeds were measured on one GPU; what links cost is worked out from their "
            "makers' figures"
        )
    if layout.tensor_parallel > 1:
        found.append(
            f"engines of {layout.tensor_parallel} GPUs were not measured, and have been "
            "run on CPUs only"
        )
    if layout.is_apart:
        found.append(
            "weights on their way to other GPUs (engine.weights = 'nccl') were not "
            "measured, and have not been run yet"
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
    return (
        f"{shape.parameters / 1e9:.2g}B"
        if shape.parameters >= 1e8
        else f"{shape.parameters / 1e6:.2g}M"
    )


def in_gib(count: float) -> float:
    return count / GIB
