"""From a configuration to the objects that a run works with."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from palestra.agents.base import PromptConfig
from palestra.agents.renderer import Renderer
from palestra.config.config import Config
from palestra.config.env import EnvSettings
from palestra.config.lora import LoraSettings
from palestra.config.model import PretrainedModel, TinyModel
from palestra.core.action_formats import formats
from palestra.core.errors import ConfigError
from palestra.core.event_loop import EventLoop
from palestra.core.process_group import current
from palestra.core.seeds import derive_seed
from palestra.core.types import Sampling, Task
from palestra.engines.base import Engine
from palestra.envs import Environment, label_of, make_env
from palestra.envs.serving import handles as handle
from palestra.envs.serving.barrier_pool import BarrierPool
from palestra.envs.serving.handles import EnvPool, InlinePool
from palestra.envs.serving.worker_pool import Workers
from palestra.learner.learner import Learner
from palestra.learner.parallel import Parallel
from palestra.models.folder import load_pretrained
from palestra.models.loading import largest_context
from palestra.models.lora import add_adapter
from palestra.models.tiny import tiny_model
from palestra.rollout.episode import EnvBinding, RolloutContext, shared_prompt
from palestra.training.preflight import (
    Prepared,
    agent_class,
    close_envs,
    device_of,
    guarded,
    prepare,
    worker_settings,
)

log = logging.getLogger(__name__)


@dataclass
class Components:
    """The objects that `train` and `evaluate` work with."""

    config: Config
    envs: dict[str, Environment]
    """One of each kind. They list tasks, and no episode is played in them."""
    tokenizer: PreTrainedTokenizerBase
    learner: Learner
    engine: Engine
    context: RolloutContext
    """For training episodes."""
    loop: EventLoop

    @property
    def eval_context(self) -> RolloutContext:
        sampling = replace(self.context.sampling, temperature=self.config.eval_temperature)
        return replace(self.context, sampling=sampling)

    def tasks(self, label: str, split: str) -> list[Task]:
        """All tasks of a split of the environment with this label."""
        (spec,) = [spec for spec in self.config.env_specs if spec.label == label]
        with guarded(spec, f"tasks({split!r})"):
            listed = handle.listed(label, self.envs[label], split)
            tasks = [replace(task, env=label) for task in listed]
        if not tasks:
            raise ConfigError(f"{label}: the split {split!r} has no tasks")
        return tasks

    def close(self) -> None:
        # A loop that is still running was left behind by a thread that hangs in an environment.
        if not self.loop.get_loop().is_running():
            for spec in self.context.bindings.values():
                self.loop.run(spec.pool.close())
            self.loop.close()
        close_envs(self.config, self.envs)


def setup(
    config: Config,
    env_urls: Mapping[str, Sequence[str]] | None = None,
    prepared: Prepared | None = None,
) -> Components:
    """Create everything that a run works with, once.

    `env_urls`: servers that play environments for the duration of the run, by label. `prepared`:
    what `preflight` has created.
    """
    workers_here = int(os.environ.get("LOCAL_WORLD_SIZE", 1))  # the launcher sets it
    torch.set_num_threads(config.threads or max((os.cpu_count() or 1) // workers_here, 1))
    prepared = prepared or prepare(config)
    envs = prepared.envs
    model, tokenizer = make_model(config, prepared)
    bindings = bind_envs(config, envs, tokenizer, env_urls)
    renderer = shared_prompt(bindings).renderer
    world = current()
    # Sharded weights are gathered during a weight sync only, so the engine needs a copy of its own.
    is_sharded = config.launch.sharding == "fsdp"
    needs_own_weights = is_sharded and not config.engine.copies_weights
    engine = config.engine.build(
        model,
        config.agent.context_tokens,
        overlaps_updates=config.rollout.is_concurrent or needs_own_weights,
        world=world.background,
        barriers=[spec.pool for spec in bindings.values() if isinstance(spec.pool, BarrierPool)],
    )
    sampling = Sampling(
        temperature=config.rollout.temperature,
        max_tokens=config.agent.reply_tokens,
        stop_ids=renderer.stop_ids,
    )
    context = RolloutContext(
        bindings,
        engine,
        sampling,
        agent=partial(agent_class(config), **config.agent.options),
        concurrency=config.rollout.concurrency,
        retries=config.rollout.retries,
        world=world.background,
    )
    learner = Learner(
        model,
        config.optim,
        temperature=config.rollout.temperature,
        seed=config.seed,
        critic=config.algo.critic_settings,
        parallel=Parallel(world, is_sharded, config.optim.accumulation_parts),
    )
    return Components(config, envs, tokenizer, learner, engine, context, EventLoop())


def bind_envs(
    config: Config,
    envs: dict[str, Environment],
    tokenizer: PreTrainedTokenizerBase,
    env_urls: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, EnvBinding]:
    renderer = Renderer(tokenizer, template=config.agent.template)
    env_urls, bindings = env_urls or {}, {}
    for spec in config.env_specs:
        pool = make_pool(spec.env, env_urls.get(spec.label, ()))
        if config.is_deterministic and (not spec.env.is_inline or spec.label in env_urls):
            pool = BarrierPool(pool, timeout_s=2 * spec.env.deadline_s + 30)
        bindings[spec.label] = EnvBinding(
            make_prompt(config, envs[spec.label], renderer), pool, envs[spec.label].name
        )
    return bindings


def make_prompt(config: Config, env: Environment, renderer: Renderer) -> PromptConfig:
    return PromptConfig(
        renderer=renderer,
        format=formats[config.agent.format](),
        instructions=env.instructions,
        example=env.example if config.agent.example else (),
        context_tokens=config.agent.context_tokens,
    )


def make_pool(settings: EnvSettings, urls: Sequence[str] = ()) -> EnvPool:
    """A pool of the servers at `urls` if there are any, else the one that the settings describe."""
    urls = urls or ([settings.name, *settings.urls] if settings.is_remote else [])
    if urls:
        from palestra.envs.serving.client import RemotePool

        return RemotePool(urls, settings.deadline_s)
    if settings.isolation == "inline":
        return InlinePool(
            partial(make_env, settings.name, settings.options),
            settings.deadline_s,
            label_of(settings.name),
        )
    return Workers(settings.name, settings.options, worker_settings(settings))


def make_model(
    config: Config, prepared: Prepared
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model and its tokenizer, read from a folder or randomly initialized."""
    device = device_of(config)
    if isinstance(config.model, PretrainedModel):
        path = config.model.path
        model, tokenizer = load_pretrained(path, device=device, dtype=getattr(torch, config.dtype))
        if largest_context(model) < config.agent.context_tokens:
            limit = largest_context(model)
            raise ConfigError(
                f"agent.context_tokens = {config.agent.context_tokens}: {path} can take "
                f"at most {limit}"
            )
        if config.lora is not None:
            _adapt(model, config.lora, path, derive_seed(config.seed, "adapter"))
        return model, tokenizer
    if not isinstance(config.model, TinyModel) or prepared.tokenizer is None:
        raise ConfigError(f"model.kind: {type(config.model).__name__} cannot be created here")
    tokenizer = prepared.tokenizer
    model = tiny_model(
        vocabulary=len(tokenizer),
        width=config.model.width,
        layers=config.model.layers,
        heads=config.model.heads,
        context=config.agent.context_tokens,
        stop_id=tokenizer.eos_token_id,
        seed=derive_seed(config.seed, "weights"),
        device=device,
        dtype=getattr(torch, config.dtype),
    )
    return model, tokenizer


def _adapt(model: PreTrainedModel, settings: LoraSettings, path: str, seed: int) -> None:
    base = str(Path(path).resolve()) if Path(path).exists() else path
    try:
        add_adapter(
            model,
            rank=settings.rank,
            alpha=settings.alpha,
            targets=settings.targets,
            base=base,
            seed=seed,
        )
    except ValueError as error:
        raise ConfigError(f"lora.targets = {list(settings.targets)}: {error}") from error
