"""The checks of a run that need no model. They create the environments and the tokenizer.

Most mistakes are found before torch is imported, which takes seconds: the checks that need it come
last.
"""

from __future__ import annotations

import ctypes
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palestra.agents import agents
from palestra.agents.base import Agent
from palestra.algos import algos
from palestra.algos.sources import ExpertIteration, Offline
from palestra.config.config import Config, importing
from palestra.config.env import EnvSettings, EnvSpec
from palestra.config.model import PretrainedModel, TinyModel
from palestra.core.action_formats import formats
from palestra.core.errors import ConfigError
from palestra.core.lazy import torch
from palestra.core.registry import Registry, UnknownName, check_options, nearest
from palestra.engines import engines
from palestra.envs import Environment, make_env
from palestra.envs import envs as env_registry
from palestra.envs.serving import handles as handle
from palestra.envs.serving.handles import BadEnvironment
from palestra.envs.serving.sandbox import objection
from palestra.envs.serving.sandboxed import make_sandboxed
from palestra.envs.serving.validation import text
from palestra.envs.serving.worker_pool import WorkerSettings
from palestra.horizons import horizons
from palestra.models.folder import check_model, find_model, has_peft, tokenizer_folder
from palestra.training import offline_data, tracking

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

log = logging.getLogger(__name__)

NO_CUDA = "device = 'cuda': this machine has no CUDA device that torch can use; did you mean 'cpu'?"
VOCAB_SIZE = 2048
"""Default size of a BPE tokenizer that is trained at startup."""


@dataclass
class Prepared:
    """What the checks of a run have created, for `setup` to use."""

    envs: dict[str, Environment]
    """One of each kind, by label. They list tasks and words, and no episode is played in them."""
    tokenizer: PreTrainedTokenizerBase | None
    """That of a tiny model, built from the environments. Others come with their model."""


def preflight(config: Config, envs: dict[str, Environment] | None = None) -> Prepared:
    """All checks of a training run that need no model. Downloads the model if it is not here.

    `envs`: those that were created already.
    """
    check_here(config)
    _check_installed(config)
    check_data(config)
    for spec in config.env_specs:
        if spec.env.sandbox != "none" and (reason := objection(spec.env.sandbox_read)):
            raise ConfigError(f"{spec.label}: sandbox = {spec.env.sandbox!r}: {reason}")
    with importing():
        try:
            formats[config.agent.format]
        except UnknownName as error:
            raise ConfigError(f"agent.format = {config.agent.format!r}: {error}") from error
        if reason := tracking.objection(config.track):
            raise ConfigError(reason)
        agent = agent_class(config)
    if not agent.samples_from_engine:
        raise ConfigError(
            f"agent.name = {config.agent.name!r}: its actions are not the model's, so there is "
            "nothing to train on; 'palestra eval --agent' measures it"
        )
    made = envs or make_envs(config)
    for label, env in made.items():
        if config.agent.example and not env.example:
            raise ConfigError(f"agent.example = true: {label} has no worked example")
    check_gpus(config)
    prepared = prepare(config, made)
    if isinstance(config.model, PretrainedModel):
        tokenizer_folder(config.model.path)
        find_model(config.model.path)
    return prepared


def prepare(config: Config, envs: dict[str, Environment] | None = None) -> Prepared:
    """Create the environments, and the tokenizer if it is built from them."""
    made = envs or make_envs(config)
    is_tiny = isinstance(config.model, TinyModel)
    return Prepared(made, make_tokenizer(config, made) if is_tiny else None)


def make_envs(config: Config) -> dict[str, Environment]:
    """One environment of each kind, by label. An error names the environment in one line."""
    return {spec.label: _make_env(config, spec) for spec in config.env_specs}


def _check_installed(config: Config) -> None:
    """The packages of the engine and the launcher. Workers of a cluster have their own engine."""
    if config.launch.kind == "ray" and find_spec("ray") is None:
        raise ConfigError("launch.kind = 'ray': Ray is not installed; pip install 'palestra[ray]'")
    if config.launch.kind == "local" and (reason := config.engine.objection()):
        raise ConfigError(reason)


def check_data(config: Config) -> None:
    """That the files that the algorithm learns from can be read and hold conversations."""
    source = config.algo.source()
    if isinstance(source, ExpertIteration):
        source = source.base
    if not isinstance(source, Offline) or not source.data:
        return
    conversations, episodes = offline_data.check(source.data)
    if not conversations and not source.select(episodes):
        raise ConfigError(f"algo.data = {list(source.data)}: {source.expected}")


def agent_class(config: Config) -> type[Agent]:
    """The class of the run's agent. Raises ConfigError if its constructor lacks an option."""
    try:
        found = agents[config.agent.name]
        check_options(found, config.agent.options, config.agent.name, given=("context",))
    except UnknownName as error:
        raise ConfigError(f"agent.name = {config.agent.name!r}: {error}") from error
    except ValueError as error:
        raise ConfigError(f"agent.{error}") from error
    return found


def check_here(config: Config) -> None:
    """The checks that create no environment and import nothing that the configuration names."""
    _check_local_classes(config)
    if config.launch.kind == "local" and config.device == "cuda" and not has_driver():
        raise ConfigError(NO_CUDA)
    if config.lora is not None and not has_peft():
        raise ConfigError("lora: adapters need the package peft; pip install 'palestra[lora]'")
    if isinstance(config.model, PretrainedModel):
        check_model(config.model.path)


def _check_local_classes(config: Config) -> None:
    """Classes of a script or notebook, which no other process can import."""
    for spec in config.env_specs:
        if env_registry.is_local(spec.env.name) and not spec.env.is_inline:
            raise ConfigError(
                f"{spec.label}: isolation = 'process': a worker process cannot import "
                f"{spec.env.name!r}, which is defined in a script or notebook; move it to a module "
                "of its own, or set isolation = 'inline'"
            )
    if config.launch.is_in_process:
        return
    names: dict[str, tuple[Registry[Any], str]] = {
        "agent.name": (agents, config.agent.name),
        "algo.name": (algos, config.algo.name),
        "engine.name": (engines, config.engine.name),
        "horizon.kind": (horizons, config.horizon.kind),
    }
    for spec in config.env_specs:
        names[f"{spec.label}: name"] = (env_registry, spec.env.name)
    for setting, (registry, name) in names.items():
        if registry.is_local(name):
            launched = f"launch.workers = {config.launch.workers}"
            if config.launch.kind == "ray":
                launched = "launch.kind = 'ray'"
            raise ConfigError(
                f"{setting} = {name!r}: with {launched} other processes must import it, and it is "
                "defined in a script or notebook; move it to a module of its own"
            )


def has_driver() -> bool:
    """Whether this machine may have a GPU: there is a driver. Told without importing torch."""
    if sys.platform != "linux" or Path("/dev/kfd").exists():  # /dev/kfd: AMD's
        return True
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def check_gpus(config: Config) -> None:
    """Check this machine's GPUs, if the workers run on it. Imports torch."""
    if config.dtype == "float64" and device_of(config).type != "cpu":
        raise ConfigError(
            "dtype = 'float64': is for comparing runs on a CPU; set device = 'cpu', or "
            "use another dtype"
        )
    if config.launch.kind != "local" or config.device == "cpu":
        return
    if config.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError(NO_CUDA)
    if torch.cuda.is_available() and config.launch.workers > torch.cuda.device_count():
        raise ConfigError(
            f"launch.workers = {config.launch.workers}: this machine has "
            f"{torch.cuda.device_count()} GPUs, one for each worker"
        )


def device_of(config: Config) -> torch.device:
    if config.device != "auto":
        return torch.device(config.device)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _make_env(config: Config, spec: EnvSpec) -> Environment:
    table = "env" if config.env is not None else f"mixture.{spec.label}"
    with guarded(spec, "its constructor"):
        try:
            if spec.env.sandbox != "none":
                env = make_sandboxed(spec.env.name, spec.env.options, worker_settings(spec.env))
            else:
                env = make_env(spec.env.name, spec.env.options)
        except ValueError as error:
            raise ConfigError(f"{table}.{error}") from error
    try:
        handle.check_attributes(spec.label, env, deadline_s=spec.env.deadline_s)
    except BadEnvironment as error:
        raise ConfigError(str(error)) from error
    if config.eval.split not in env.splits:
        raise ConfigError(
            f"eval.split = {config.eval.split!r}: {spec.label} has no such split; "
            f"{nearest(config.eval.split, env.splits)}"
        )
    return env


def close_envs(config: Config, envs: Mapping[str, Environment]) -> None:
    """May be called twice."""
    for spec in config.env_specs:
        try:
            with guarded(spec, "close()"):
                envs[spec.label].close()
        except ConfigError as error:  # the environment is not used again, so a warning is enough
            log.warning("%s", error)


@contextmanager
def guarded(spec: EnvSpec, what: str) -> Iterator[None]:
    """Around each call of an environment outside of episodes: any error, and a missed deadline,
    becomes one line that names the environment.
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


def worker_settings(settings: EnvSettings) -> WorkerSettings:
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


def make_tokenizer(config: Config, envs: dict[str, Environment]) -> PreTrainedTokenizerBase:
    """The tokenizer of a tiny model, built from the words or texts of the environments."""
    from palestra.models.tokenizers import bpe_tokenizer, byte_tokenizer, word_tokenizer

    settings = config.model
    assert isinstance(settings, TinyModel)
    if settings.tokenizer == "bytes":
        return byte_tokenizer()
    if settings.tokenizer == "bpe":
        return bpe_tokenizer(_all_texts(config, envs), settings.vocab_size or VOCAB_SIZE)
    words: dict[str, None] = {}
    for spec in config.env_specs:
        with guarded(spec, "vocabulary()"):
            own = handle.vocabulary_of(envs[spec.label])
            if own is None:
                raise ConfigError(
                    f"model.tokenizer = 'words': {spec.label} does not list its words; "
                    "use 'bpe' or 'bytes'"
                )
            words |= dict.fromkeys(own)
    return word_tokenizer(list(words))


def _all_texts(config: Config, envs: dict[str, Environment]) -> list[str]:
    """A list: the tokenizer's trainer would read them in another thread, without the deadline."""
    texts: list[str] = []
    for spec in config.env_specs:
        with guarded(spec, "texts()"):
            own = envs[spec.label].texts()
            if own is None:
                raise ConfigError(
                    f"model.tokenizer = 'bpe': {spec.label} has no texts to learn them "
                    "from; use 'bytes'"
                )
            texts += [text("it must list texts", one) for one in own]
    return texts
