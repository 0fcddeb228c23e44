"""From a configuration to the objects that a run works with."""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from palestra.agents import agents
from palestra.agents.base import Agent, PromptConfig
from palestra.agents.renderer import Renderer
from palestra.config.config import Config
from palestra.config.env import EnvSettings, EnvSpec
from palestra.config.lora import LoraSettings
from palestra.config.model import PretrainedModel, TinyModel
from palestra.core.action_formats import formats
from palestra.core.errors import ConfigError
from palestra.core.event_loop import EventLoop
from palestra.core.process_group import current
from palestra.core.registry import UnknownName, check_options, nearest
from palestra.core.seeds import derive_seed
from palestra.core.types import Sampling, Task
from palestra.engines.base import Engine
from palestra.envs import Environment, label_of, make_env
from palestra.envs.serving import handles as handle
from palestra.envs.serving.barrier_pool import BarrierPool
from palestra.envs.serving.handles import BadEnvironment, EnvPool, InlinePool
from palestra.envs.serving.sandbox import objection
from palestra.envs.serving.sandboxed import make_sandboxed
from palestra.envs.serving.validation import shown
from palestra.envs.serving.worker_pool import Workers, WorkerSettings
from palestra.learner.learner import Learner
from palestra.learner.parallel import Parallel
from palestra.models.folder import check_model, find_model, load_pretrained, tokenizer_folder
from palestra.models.loading import largest_context
from palestra.models.lora import add_adapter, has_peft
from palestra.models.tiny import tiny_model
from palestra.models.tokenizers import bpe_tokenizer, byte_tokenizer, load_tokenizer, word_tokenizer
from palestra.rollout.episode import EnvBinding, RolloutContext, shared_prompt
from palestra.training import tracking as track

log = logging.getLogger(__name__)

VOCAB_SIZE = 2048
"""Of words, in a tokenizer that is learned on the spot."""


def held_out(tasks: Sequence[Task], count: int) -> list[Task]:
    """A fixed sample of a split, the same in every run, so that runs can be compared."""
    return list(tasks) if count >= len(tasks) else random.Random(0).sample(list(tasks), count)


@dataclass
class Components:
    """What `train` and `evaluate` work with."""

    config: Config
    envs: dict[str, Environment]
    """One of each to ask for tasks, never played."""
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
        """All tasks of a split, by the name that the run has for the environment."""
        (spec,) = [spec for spec in self.config.env_specs if spec.label == label]
        with guarded(spec, f"tasks({split!r})"):
            tasks = [
                replace(task, env=label) for task in handle.listed(label, self.envs[label], split)
            ]
        if not tasks:
            raise ConfigError(f"{label}: the split {split!r} has no tasks")
        return tasks

    def close(self) -> None:
        if not self.loop.get_loop().is_running():  # else a thread was left behind in it
            for spec in self.context.bindings.values():
                self.loop.run(spec.pool.close())
            self.loop.close()
        close_envs(self.config, self.envs)


def check_run(config: Config) -> dict[str, Environment]:
    """All that can be found wrong with a run before a model is loaded.

    Returns the environments, for `assemble`.
    """
    check_here(config)
    _check_sandboxes(config)
    try:
        formats[config.agent.format]
    except UnknownName as error:
        raise ConfigError(f"agent.format = {config.agent.format!r}: {error}") from error
    if reason := track.objection(config.track):
        raise ConfigError(reason)
    if not agent_class(config).samples_from_engine:
        raise ConfigError(
            f"agent.name = {config.agent.name!r}: its actions are not the model's, so there is "
            "nothing to train on; 'palestra eval --agent' measures it"
        )
    envs = make_envs(config)
    for label, env in envs.items():
        if config.agent.example and not env.example:
            raise ConfigError(f"agent.example = true: {label} has no worked example")
    if isinstance(config.model, TinyModel):
        make_tokenizer(config, envs)
    return envs


def agent_class(config: Config) -> type[Agent]:
    """The agent of the run, with options that its constructor has."""
    try:
        found = agents[config.agent.name]
        check_options(found, config.agent.options, config.agent.name, given=("context",))
    except UnknownName as error:
        raise ConfigError(f"agent.name = {config.agent.name!r}: {error}") from error
    except ValueError as error:
        raise ConfigError(f"agent.{error}") from error
    return found


def check_here(config: Config) -> None:
    """What can be found wrong without making an environment, or importing anything that the
    configuration names.
    """
    _check_devices(config)
    if config.dtype == "float64" and device_of(config).type != "cpu":
        raise ConfigError(
            "dtype = 'float64': is for comparing runs on a CPU; set device = 'cpu', or "
            "use another dtype"
        )
    if isinstance(config.model, PretrainedModel):
        check_model(config.model.path)
    if config.lora is not None and not has_peft():
        raise ConfigError("lora: adapters need the package peft; pip install 'palestra[lora]'")


def _check_sandboxes(config: Config) -> None:
    for spec in config.env_specs:
        if spec.env.sandbox != "none" and (reason := objection(spec.env.sandbox_read)):
            raise ConfigError(f"{spec.label}: sandbox = {spec.env.sandbox!r}: {reason}")


def _check_devices(config: Config) -> None:
    """Of this host, where the workers are on it."""
    if config.launch.kind != "local" or config.device == "cpu":
        return
    if config.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            "device = 'cuda': this machine has no CUDA device that torch can use; did you "
            "mean 'cpu'?"
        )
    if torch.cuda.is_available() and config.launch.workers > torch.cuda.device_count():
        raise ConfigError(
            f"launch.workers = {config.launch.workers}: this machine has "
            f"{torch.cuda.device_count()} GPUs, one for each worker"
        )


def fetch_model(config: Config) -> None:
    """Have the model here before the run begins."""
    if isinstance(config.model, PretrainedModel):
        tokenizer_folder(config.model.path)
        find_model(config.model.path)


def setup(
    config: Config,
    env_urls: Mapping[str, Sequence[str]] | None = None,
    envs: dict[str, Environment] | None = None,
) -> Components:
    """`env_urls`: where environments are played that were given servers for the time of the run, by
    their labels.

    `envs`: those that `check_run` made already.
    """
    here = int(
        os.environ.get("LOCAL_WORLD_SIZE", 1)
    )  # workers on this host, as their launcher says
    torch.set_num_threads(config.threads or max((os.cpu_count() or 1) // here, 1))
    envs = make_envs(config) if envs is None else envs
    model, tokenizer = make_model(config, envs)
    bindings = bind_envs(config, envs, tokenizer, env_urls)
    renderer = shared_prompt(bindings).renderer
    world = current()
    # Sharded weights are whole during a weight sync and at no other time.
    is_sharded = config.launch.sharding == "fsdp"
    needs_own_weights = is_sharded and not config.engine.copies_weights
    engine = config.engine.build(
        model,
        config.agent.context_tokens,
        beside_learner=config.rollout.is_beside_learner or needs_own_weights,
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


def make_envs(config: Config) -> dict[str, Environment]:
    """One environment of each kind, to be asked for tasks and words.

    What is wrong with one is a line that names it.
    """
    return {spec.label: _make_env(config, spec) for spec in config.env_specs}


def _make_env(config: Config, spec: EnvSpec) -> Environment:
    table = "env" if config.env is not None else f"mixture.{spec.label}"
    with guarded(spec, "its constructor"):
        try:
            env = _made(spec.env)
        except ValueError as error:
            raise ConfigError(f"{table}.{error}") from error
    with guarded(spec, "max_turns"):
        handle.check_attributes(spec.label, env)
    if config.eval.split not in env.splits:
        raise ConfigError(
            f"eval.split = {config.eval.split!r}: {spec.label} has no such split; "
            f"{nearest(config.eval.split, env.splits)}"
        )
    return env


def _made(settings: EnvSettings) -> Environment:
    if settings.sandbox != "none":
        return make_sandboxed(settings.name, settings.options, _limits(settings))
    return make_env(settings.name, settings.options)


def close_envs(config: Config, envs: Mapping[str, Environment]) -> None:
    """Those of `make_envs`. May be called twice."""
    for spec in config.env_specs:
        try:
            with guarded(spec, "close()"):
                envs[spec.label].close()
        except ConfigError as error:  # nothing more is asked of it
            log.warning("%s", error)


@contextmanager
def guarded(spec: EnvSpec, what: str) -> Iterator[None]:
    """Around each question to an environment outside of episodes: whatever it does, within its
    deadline, is one line that names it.
    """
    try:
        known = (ConfigError,)
        with handle.guarded(
            spec.label,
            what,
            deadline_s=spec.env.deadline_s,
            refusing=spec.env.is_inline,
            telling=known,
        ):
            yield
    except BadEnvironment as error:
        raise ConfigError(str(error)) from error


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
    """Of the servers at `urls` where there are any, else as the settings say."""
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
    return Workers(settings.name, settings.options, _limits(settings))


def _limits(settings: EnvSettings) -> WorkerSettings:
    return WorkerSettings(
        per_worker=settings.per_worker,
        deadline_s=settings.deadline_s,
        boot_s=max(settings.deadline_s, WorkerSettings().boot_s),
        memory_mb=settings.memory_mb or WorkerSettings().memory_mb,
        max_processes=settings.max_processes or WorkerSettings().max_processes,
        pass_env=settings.pass_env,
        sandbox=settings.sandbox,
        sandbox_read=settings.sandbox_read,
    )


def device_of(config: Config) -> torch.device:
    return torch.device(
        "cuda"
        if config.device == "auto" and torch.cuda.is_available()
        else config.device.replace("auto", "cpu")
    )


def make_model(
    config: Config, envs: dict[str, Environment]
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model and its tokenizer, read from a directory or made on the spot."""
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
    if not isinstance(config.model, TinyModel):
        raise ConfigError(f"model.kind: {type(config.model).__name__} cannot be made here")
    tokenizer = make_tokenizer(config, envs)
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


def read_tokenizer(config: Config, envs: dict[str, Environment]) -> PreTrainedTokenizerBase:
    """The tokenizer that the run will have, without its model."""
    if isinstance(config.model, PretrainedModel):
        return load_tokenizer(tokenizer_folder(config.model.path))
    return make_tokenizer(config, envs)


def make_tokenizer(config: Config, envs: dict[str, Environment]) -> PreTrainedTokenizerBase:
    """That of a new model, from the words or texts of the environments."""
    settings = config.model
    assert isinstance(settings, TinyModel)
    if settings.tokenizer == "bytes":
        return byte_tokenizer()
    if settings.tokenizer == "bpe":
        return bpe_tokenizer(_all_texts(config, envs), settings.vocab_size or VOCAB_SIZE)
    words: dict[str, None] = {}
    for spec in config.env_specs:
        with guarded(spec, "vocabulary()"):
            own = envs[spec.label].vocabulary()
            if own is None:
                raise ConfigError(
                    f"model.tokenizer = 'words': {spec.label} does not list its words; "
                    "use 'bpe' or 'bytes'"
                )
            own = list(own)
            if not all(isinstance(word, str) for word in own):
                raise ConfigError(f"{spec.label}: vocabulary() must list texts, not {shown(own)}")
            words |= dict.fromkeys(own)
    return word_tokenizer(list(words))


def _all_texts(config: Config, envs: dict[str, Environment]) -> Iterator[str]:
    for spec in config.env_specs:
        with guarded(spec, "texts()"):
            own = envs[spec.label].texts()
            if own is None:
                raise ConfigError(
                    f"model.tokenizer = 'bpe': {spec.label} has no texts to learn them "
                    "from; use 'bytes'"
                )
            texts = list(own)
        yield from texts
