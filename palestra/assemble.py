"""From a configuration to the objects that a run works with."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from palestra import track
from palestra.agents.agent import Persona
from palestra.agents.formats import formats
from palestra.agents.render import Renderer
from palestra.config import Config, ConfigError, EnvSettings, NewModel, PretrainedModel
from palestra.engines.base import Engine
from palestra.engines.native import Native
from palestra.engines.vllm import VLLMSettings
from palestra.engines.vllm_server import VLLMServerSettings
from palestra.envs import Environment
from palestra.learn.learner import Learner
from palestra.learn.parallel import Parallel
from palestra.loop import Loop
from palestra.lora import LoraSettings, add_adapter, has_peft
from palestra.model import byte_tokenizer, largest_context, load_tokenizer, new_model, piece_tokenizer, word_tokenizer
from palestra.model_folder import check_model, find_model, load_pretrained, tokenizer_folder
from palestra.rollout import Arena, Place, shared_persona
from palestra.seeds import derive_seed
from palestra.serve.counted import CountedPool
from palestra.serve.forks import contained
from palestra.serve.handle import EnvPool, InlinePool
from palestra.serve.workers import Workers, WorkerSettings
from palestra.types import Sampling, Task
from palestra.world import current

PIECES = 2048
"""Of words, in a tokenizer that is learnt on the spot."""


def held_out(tasks: Sequence[Task], count: int) -> list[Task]:
    """A fixed sample of a split, the same in every run, so that runs can be compared."""
    return list(tasks) if count >= len(tasks) else random.Random(0).sample(list(tasks), count)


@dataclass
class Parts:
    """What `train` and `evaluate` work with."""

    config: Config
    envs: dict[str, Environment]
    """One of each to ask for tasks, never played."""
    tokenizer: PreTrainedTokenizerBase
    learner: Learner
    engine: Engine
    arena: Arena
    """For training episodes."""
    loop: Loop

    @property
    def eval_arena(self) -> Arena:
        sampling = replace(self.arena.sampling, temperature=self.config.eval_temperature)
        return self.arena.with_(sampling=sampling)

    def tasks(self, label: str, split: str) -> list[Task]:
        """All tasks of a split, by the name that the run has for the environment."""
        with contained(refusing=label in self._inline):
            tasks = [replace(task, env=label) for task in self.envs[label].tasks(split)]
        if not tasks:
            raise ConfigError(f"{label}: the split {split!r} has no tasks")
        return tasks

    def close(self) -> None:
        if not self.loop.get_loop().is_running():  # else a thread was left behind in it
            for place in self.arena.places.values():
                self.loop.run(place.pool.close())
            self.loop.close()
        for label, env in self.envs.items():
            with contained(refusing=label in self._inline):
                env.close()

    @property
    def _inline(self) -> set[str]:
        return {place.label for place in self.config.playgrounds if place.env.is_inline}


def check_run(config: Config) -> None:
    """All that can be found wrong with a training run before a model is loaded."""
    _check_devices(config)
    if config.dtype == "float64" and device_of(config).type != "cpu":
        raise ConfigError("dtype = 'float64': is for comparing runs on a CPU; set device = 'cpu', or use another dtype")
    envs = make_envs(config)
    for label, env in envs.items():
        if config.agent.example and not env.example:
            raise ConfigError(f"agent.example = true: {label} has no worked example")
    if isinstance(config.model, NewModel):
        make_tokenizer(config.model, envs)
    elif isinstance(config.model, PretrainedModel):
        check_model(config.model.path)
    if config.lora is not None and not has_peft():
        raise ConfigError("lora: adapters need the package peft; pip install 'palestra[lora]'")
    if reason := track.objection(config.track):
        raise ConfigError(reason)


def _check_devices(config: Config) -> None:
    """Of this host, where the workers are on it."""
    if config.launch.kind != "local" or config.device == "cpu":
        return
    if config.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device = 'cuda': this machine has no CUDA device that torch can use; did you mean 'cpu'?")
    if torch.cuda.is_available() and config.launch.workers > torch.cuda.device_count():
        raise ConfigError(
            f"launch.workers = {config.launch.workers}: this machine has {torch.cuda.device_count()} GPUs, one for each worker"
        )


def fetch_model(config: Config) -> None:
    """Have the model here before the run begins."""
    if isinstance(config.model, PretrainedModel):
        tokenizer_folder(config.model.path)
        find_model(config.model.path)


def assemble(config: Config, env_urls: Mapping[str, Sequence[str]] | None = None) -> Parts:
    """`env_urls`: where environments are played that were given servers for the time of the run, by their labels."""
    here = int(os.environ.get("LOCAL_WORLD_SIZE", 1))  # workers on this host, as their launcher says
    torch.set_num_threads(config.threads or max((os.cpu_count() or 1) // here, 1))
    envs = make_envs(config)
    model, tokenizer = make_model(config, envs)
    places = make_places(config, envs, tokenizer, env_urls)
    renderer = shared_persona(places).renderer
    is_sharded = config.launch.sharding == "fsdp"
    settings = config.engine
    shares = is_sharded and not isinstance(settings, VLLMSettings)  # whole weights are there in a hand-over, and at no other time
    world = current()
    apart: dict[str, Any] = {"beside_learner": True} if config.rollout.is_beside_learner or shares else {}
    if isinstance(settings, VLLMServerSettings):
        apart["world"] = world.beside
    engine: Engine = settings.build(model, config.agent.context_tokens, **apart)  # type: ignore[attr-defined]
    if isinstance(engine, Native):
        engine.pools = [place.pool for place in places.values() if isinstance(place.pool, CountedPool)]
    sampling = Sampling(temperature=config.rollout.temperature, max_tokens=config.agent.reply_tokens, stop_ids=renderer.stop_ids)
    arena = Arena(places, engine, sampling, concurrency=config.rollout.concurrency, retries=config.rollout.retries, world=world.beside)
    learner = Learner(
        model,
        config.optim,
        temperature=config.rollout.temperature,
        seed=config.seed,
        critic=config.algo.critic_settings,
        parallel=Parallel(world, is_sharded, config.optim.parts),
    )
    return Parts(config, envs, tokenizer, learner, engine, arena, Loop())


def make_envs(config: Config) -> dict[str, Environment]:
    return {place.label: place.env.make() for place in config.playgrounds}


def make_places(
    config: Config, envs: dict[str, Environment], tokenizer: PreTrainedTokenizerBase, env_urls: Mapping[str, Sequence[str]] | None = None
) -> dict[str, Place]:
    renderer = Renderer(tokenizer, template=config.agent.template)
    env_urls, places = env_urls or {}, {}
    for place in config.playgrounds:
        pool = make_pool(place.env, env_urls.get(place.label, ()))
        if config.is_deterministic and (not place.env.is_inline or place.label in env_urls):
            pool = CountedPool(pool, patience_s=2 * place.env.deadline_s + 30)
        places[place.label] = Place(make_persona(config, envs[place.label], renderer), pool, envs[place.label].name)
    return places


def make_persona(config: Config, env: Environment, renderer: Renderer) -> Persona:
    return Persona(
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
        from palestra.serve.client import RemotePool

        return RemotePool(urls, settings.deadline_s)
    if settings.isolation == "inline":
        return InlinePool(settings.make, settings.deadline_s)
    limits = WorkerSettings(
        per_worker=settings.per_worker,
        deadline_s=settings.deadline_s,
        boot_s=max(settings.deadline_s, WorkerSettings().boot_s),
        memory_mb=settings.memory_mb or WorkerSettings().memory_mb,
        max_processes=settings.max_processes or WorkerSettings().max_processes,
    )
    return Workers(settings.name, settings.options, limits)


def device_of(config: Config) -> torch.device:
    return torch.device("cuda" if config.device == "auto" and torch.cuda.is_available() else config.device.replace("auto", "cpu"))


def make_model(config: Config, envs: dict[str, Environment]) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model and its tokenizer, read from a directory or made on the spot."""
    device = device_of(config)
    if isinstance(config.model, PretrainedModel):
        path = config.model.path
        model, tokenizer = load_pretrained(path, device=device, dtype=getattr(torch, config.dtype))
        if largest_context(model) < config.agent.context_tokens:
            limit = largest_context(model)
            raise ConfigError(f"agent.context_tokens = {config.agent.context_tokens}: {path} can take at most {limit}")
        if config.lora is not None:
            _adapt(model, config.lora, path, derive_seed(config.seed, "adapter"))
        return model, tokenizer
    if not isinstance(config.model, NewModel):
        raise ConfigError(f"model.kind: {type(config.model).__name__} cannot be made here")
    tokenizer = make_tokenizer(config.model, envs)
    model = new_model(
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
        add_adapter(model, settings, base=base, seed=seed)
    except ValueError as error:
        raise ConfigError(f"lora.targets = {list(settings.targets)}: {error}") from error


def read_tokenizer(config: Config, envs: dict[str, Environment]) -> PreTrainedTokenizerBase:
    """The tokenizer that the run will have, without its model."""
    if isinstance(config.model, PretrainedModel):
        return load_tokenizer(tokenizer_folder(config.model.path))
    assert isinstance(config.model, NewModel)
    return make_tokenizer(config.model, envs)


def make_tokenizer(settings: NewModel, envs: dict[str, Environment]) -> PreTrainedTokenizerBase:
    if settings.tokenizer == "bytes":
        return byte_tokenizer()
    if settings.tokenizer == "pieces":
        with contained():
            return piece_tokenizer(_all_texts(envs), settings.pieces or PIECES)
    words: dict[str, None] = {}
    for label, env in envs.items():
        with contained():
            own = env.vocabulary()
        if own is None:
            raise ConfigError(f"model.tokenizer = 'words': {label} does not list its words; use 'pieces' or 'bytes'")
        words |= dict.fromkeys(own)
    return word_tokenizer(list(words))


def _all_texts(envs: dict[str, Environment]) -> Iterator[str]:
    for label, env in envs.items():
        own = env.texts()
        if own is None:
            raise ConfigError(f"model.tokenizer = 'pieces': {label} has no texts to learn them from; use 'bytes'")
        yield from own
