"""A plan in words, as JSON, and the table of recommended layouts in docs/scaling.md."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from palestra.config.config import Config
from palestra.core.errors import ConfigError
from palestra.core.tables import Table
from palestra.engines.torch.settings import TorchEngineSettings
from palestra.tools.plan.costs import Work
from palestra.tools.plan.layouts import (
    FILLED,
    Job,
    Layout,
    Plan,
    best,
    in_gib,
    least_gpus,
    parameters,
    warnings,
)
from palestra.tools.plan.machines import GPUS
from palestra.tools.plan.shapes import KNOWN, Shape, shape_of

REPLY_SHARE, EPISODE_SHARE, OPENING_SHARE = 0.25, 0.33, 0.5
"""What episodes use of their budgets on average, where nobody says: of a reply's, of an episode's;
and openings of what is shown.
"""


def work_of(
    config: Config, *, reply: float | None = None, episode: float | None = None, env_s: float = 0.0
) -> Work:
    """One training step of a recipe, at its longest horizon."""
    if not config.algo.is_on_policy:
        raise ConfigError(
            f"algo.name = {config.algo.name!r}: plans are for algorithms that play every step"
        )
    turns = max(spec.horizon.full for spec in config.env_specs)
    reply = reply or REPLY_SHARE * config.agent.reply_tokens
    episode = min(
        max(episode or EPISODE_SHARE * config.agent.context_tokens, turns * reply),
        config.agent.context_tokens,
    )
    group = max(spec.group for spec in config.env_specs)
    opening = OPENING_SHARE * max(episode - turns * reply, 0.0)
    return Work(config.rollout.tasks * group, group, turns, reply, episode, opening, env_s)


def job_of(config: Config, work: Work, *, gpu: str, gpus: int, link: str) -> Job:
    if isinstance(config.engine, TorchEngineSettings):
        slots = config.engine.slots
    else:
        slots = int(config.engine.model_dump().get("max_sequences", config.rollout.concurrency))
    return Job(
        shape_of(config),
        work,
        GPUS[gpu],
        gpus,
        link,
        context_tokens=config.agent.context_tokens,
        microbatch_tokens=max(config.optim.microbatch_tokens, config.agent.context_tokens),
        slots=slots,
        reference=config.algo.keeps_reference,
        adapter_rank=config.lora.rank if config.lora else None,
        overlapped=config.rollout.is_concurrent,
    )


def described(layout: Layout) -> str:
    state = (
        "whole on every GPU"
        if layout.sharding == "none"
        else f"sharded over {layout.learners} (fsdp)"
    )
    recompute = ", activation checkpointing" if layout.checkpointing else ""
    if not layout.is_apart:
        do = (
            "1 GPU learns and generates"
            if layout.learners == 1
            else f"{layout.learners} GPUs learn and generate"
        )
        return f"{do} in turn; weights {state}{recompute}"
    engines = f"{layout.engines} engines" + (
        f" of {layout.tensor_parallel} GPUs" if layout.tensor_parallel > 1 else ""
    )
    return (
        f"{layout.learners} GPUs learn, {layout.generators} generate ({engines}); weights "
        f"{state}{recompute}"
    )


def flags(layout: Layout) -> str:
    """The settings that make this layout."""
    said = [f"--launch.workers {layout.learners}"] + (
        ["--launch.kind ray"] if layout.learners > 8 else []
    )
    said += ["--launch.sharding fsdp"] if layout.sharding == "fsdp" else []
    said += ["--optim.activation_checkpointing"] if layout.checkpointing else []
    said += (
        ["--engine.name vllm-server --rollout.max_staleness 1"]
        if layout.is_apart
        else [f"--engine.slots {layout.slots}"]
    )
    return " ".join(said)


def text(one: Plan) -> str:
    job, work = one.job, one.job.work
    lines = [
        f"model        {job.shape.name}, {parameters(job.shape)} parameters, on "
        f"{job.gpus} {job.gpu.name}",
        f"a step       {work.episodes} episodes of {work.turns:.0f} turns, "
        f"{work.reply_tokens:.0f} tokens a reply, "
        f"{work.episode_tokens:,.0f} an episode (assumed means: --reply, --episode)",
    ]
    room = f"{in_gib(one.fullest):.0f} of {in_gib(job.gpu.memory):.0f} GiB on the fullest GPU"
    if not one.fits:
        least = least_gpus(job)
        lines.append(
            f"does not fit {room}: "
            + (f"it would on {least} GPUs" if least else "on no number of them")
        )
    else:
        lines.append(f"fits         {room}, filled to {FILLED:.0%} at the most")
    lines += [
        f"  {name:<24}{in_gib(count):6.1f} GiB" for name, count in one.memory.items() if count
    ]
    if one.fits:
        lines.append(
            f"seconds      {figures(one.step_s)} a step"
            + (", collecting and learning at the same time" if _overlaps(one) else "")
        )
        lines += [f"  {name:<24}{figures(count):>6} s" for name, count in one.seconds.items()]
        lines.append(f"limited by   {one.limit}")
        lines.append(f"layout       {described(one.layout)}")
        lines.append(f"settings     {flags(one.layout)}")
    return "\n".join(lines + [f"note         {note}" for note in warnings(one)])


def _overlaps(one: Plan) -> bool:
    return one.layout.is_apart or one.job.overlapped


def as_tree(one: Plan) -> dict[str, Any]:
    job, layout = one.job, one.layout
    return {
        "model": {"name": job.shape.name, "parameters": job.shape.parameters},
        "gpus": job.gpus,
        "gpu": job.gpu.name,
        "fits": one.fits,
        "least_gpus": None if one.fits else least_gpus(job),
        "memory_gib": {name: round(in_gib(count), 2) for name, count in one.memory.items()}
        | {"gpu": in_gib(job.gpu.memory)},
        "seconds": {name: round(count, 3) for name, count in one.seconds.items()}
        | {"step": round(one.step_s, 3)},
        "limited_by": one.limit,
        "layout": {
            "learners": layout.learners,
            "generators": layout.generators,
            "engines": layout.engines,
            "tensor_parallel": layout.tensor_parallel,
            "sharding": layout.sharding,
            "activation_checkpointing": layout.checkpointing,
        },
        "settings": flags(layout),
        "notes": warnings(one),
    }


def figures(seconds: float) -> str:
    """Two significant ones: there are no more in it."""
    return f"{float(f'{seconds:.2g}'):g}"


TABLE_WORK = Work(
    episodes=512, group=8, turns=20, reply_tokens=100, episode_tokens=6000, opening_tokens=1500
)
"""Of the table in docs/scaling.md; with 512 GPUs there are 8 episodes for each."""


def table(gpu: str = "h200", link: str = "infiniband") -> Table:
    """Recommended layouts by size and number of GPUs."""
    rows = []
    for shape in (KNOWN["qwen2.5-7b"], KNOWN["qwen2.5-32b"], KNOWN["llama-3-70b"]):
        for gpus in (8, 16, 64, 512):
            rows.append(_row(shape, gpu, gpus, link))
    columns = [
        "model",
        f"{GPUS[gpu].name}s",
        "learners",
        "generators",
        "weights",
        "GiB",
        "collect",
        "learn",
        "step",
        "limited by",
    ]
    return Table(columns, rows)


def _row(shape: Shape, gpu: str, gpus: int, link: str) -> list[str]:
    work = replace(TABLE_WORK, episodes=max(TABLE_WORK.episodes, 8 * gpus))
    job = Job(
        shape, work, GPUS[gpu], gpus, link, context_tokens=16384, microbatch_tokens=16384, slots=256
    )
    one, layout = best(job), best(job).layout
    if not one.fits:
        return [
            shape.name,
            str(gpus),
            f"does not fit (at least {least_gpus(job)} GPUs)",
            *[""] * 2,
            f"{in_gib(one.fullest):.0f}",
            *[""] * 4,
        ]
    engines = (
        f"{layout.generators} ({layout.engines} x {layout.tensor_parallel})"
        if layout.is_apart
        else "the same"
    )
    weights = ("whole" if layout.sharding == "none" else "fsdp") + (
        ", checkpointing" if layout.checkpointing else ""
    )
    seconds = [f"{figures(one.seconds[part])} s" for part in ("collect", "learn")]
    return [
        shape.name,
        str(gpus),
        str(layout.learners),
        engines,
        weights,
        f"{in_gib(one.fullest):.0f}",
        *seconds,
        f"{figures(one.step_s)} s",
        one.limit,
    ]
