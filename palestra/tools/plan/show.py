"""A plan as text and as JSON, and the table of recommended layouts in docs/guides/scaling.md."""

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
"""Default mean shares: of a reply's token budget, of an episode's, and of the opening prompt in the
tokens that are shown.
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
    episode = episode or EPISODE_SHARE * config.agent.context_tokens
    episode = min(max(episode, turns * reply), config.agent.context_tokens)
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
    weights = "weights whole on every GPU"
    if layout.sharding != "none":
        weights = f"weights sharded over {layout.learners} (fsdp)"
    if layout.checkpointing:
        weights += ", activation checkpointing"
    if layout.is_apart:
        engines = f"{layout.engines} engines"
        if layout.tensor_parallel > 1:
            engines += f" of {layout.tensor_parallel} GPUs"
        return f"{layout.learners} GPUs learn, {layout.generators} generate ({engines}); {weights}"
    if layout.learners == 1:
        return f"1 GPU learns and generates in turn; {weights}"
    return f"{layout.learners} GPUs learn and generate in turn; {weights}"


def flags(layout: Layout) -> str:
    """The settings for this layout."""
    given = [f"--launch.workers {layout.learners}"]
    if layout.learners > 8:
        given.append("--launch.kind ray")
    if layout.sharding == "fsdp":
        given.append("--launch.sharding fsdp")
    if layout.checkpointing:
        given.append("--optim.activation_checkpointing")
    if layout.is_apart:
        given.append("--engine.name vllm-server --rollout.max_staleness 1")
    else:
        given.append(f"--engine.slots {layout.slots}")
    return " ".join(given)


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
        where = f"it would on {least} GPUs" if least else "on no number of them"
        lines.append(f"does not fit {room}: {where}")
    else:
        lines.append(f"fits         {room}, filled to {FILLED:.0%} at the most")
    for name, count in one.memory.items():
        if count:
            lines.append(f"  {name:<24}{in_gib(count):6.1f} GiB")
    if one.fits:
        is_overlapped = one.layout.is_apart or job.overlapped
        how = ", collecting and learning at the same time" if is_overlapped else ""
        lines.append(f"seconds      {figures(one.step_s)} a step{how}")
        lines += [f"  {name:<24}{figures(count):>6} s" for name, count in one.seconds.items()]
        lines.append(f"limited by   {one.limit}")
        lines.append(f"layout       {described(one.layout)}")
        lines.append(f"settings     {flags(one.layout)}")
    return "\n".join(lines + [f"note         {note}" for note in warnings(one)])


def as_tree(one: Plan) -> dict[str, Any]:
    job, layout = one.job, one.layout
    memory = {name: round(in_gib(count), 2) for name, count in one.memory.items()}
    seconds = {name: round(count, 3) for name, count in one.seconds.items()}
    return {
        "model": {"name": job.shape.name, "parameters": job.shape.parameters},
        "gpus": job.gpus,
        "gpu": job.gpu.name,
        "fits": one.fits,
        "least_gpus": None if one.fits else least_gpus(job),
        "memory_gib": memory | {"gpu": in_gib(job.gpu.memory)},
        "seconds": seconds | {"step": round(one.step_s, 3)},
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
    """Two significant figures: the estimates have no more."""
    return f"{float(f'{seconds:.2g}'):g}"


TABLE_WORK = Work(
    episodes=512, group=8, turns=20, reply_tokens=100, episode_tokens=6000, opening_tokens=1500
)
"""Of the table in docs/guides/scaling.md; with 512 GPUs there are 8 episodes for each."""


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
    engines = "the same"
    if layout.is_apart:
        engines = f"{layout.generators} ({layout.engines} x {layout.tensor_parallel})"
    weights = "whole" if layout.sharding == "none" else "fsdp"
    if layout.checkpointing:
        weights += ", checkpointing"
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
