"""Settings for a run without a recipe: from what the environment says and how large the model is.

Only what nobody has set is chosen, and everything chosen is said.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from palestra.config import config as configs
from palestra.config.config import Config
from palestra.config.env import EnvSpec
from palestra.config.model import PretrainedModel, TinyModel
from palestra.core.action_formats import formats
from palestra.envs import Environment, envs
from palestra.envs.serving.validation import ValidatedEnv
from palestra.models.folder import find_model, tokenizer_folder
from palestra.training.preflight import device_of, guarded, make_envs

Tree = dict[str, Any]

TASKS_TRIED = 8
SECONDS_TRIED = 5.0
"""For the episodes that are played to see how long texts are."""
CHARACTERS_PER_TOKEN = 3.0
"""Of English text, with a margin: 4 is usual."""
SMALL, LARGE = 300e6, 3e9
"""Parameters: below the first a CPU can train it, above the second memory is scarce."""
MOST_CONTEXT = 16384


@dataclass
class Texts:
    """How much is read and written in an environment."""

    opening: list[str] = field(default_factory=list)
    """Instructions and first observations."""
    observations: list[str] = field(default_factory=list)
    actions: list[str] = field(default_factory=list)


@dataclass
class Chosen:
    """What was chosen for a run, and why."""

    settings: Tree = field(default_factory=dict)
    """By dotted name."""
    reasons: dict[str, str] = field(default_factory=dict)

    def choose(self, given: Tree, name: str, value: Any, reason: str) -> None:
        """Unless the user has set it, or its whole table by an object."""
        table, _, key = name.partition(".")
        own = given.get(table)
        if name in given or (own is not None and not key):
            return
        # Flags of a table, such as horizon.kind, are the user's own choice of the table.
        if not key and any(setting.startswith(f"{table}.") for setting in given):
            return
        if isinstance(own, Mapping) and key in own:
            return
        self.settings[name] = value
        self.reasons[name] = reason

    @property
    def lines(self) -> list[str]:
        return [
            f"chosen: {name} = {value!r} ({self.reasons[name]})"
            for name, value in self.settings.items()
        ]


def choose_settings(given: Tree) -> tuple[Config, dict[str, Environment], list[str]]:
    """A configuration that trains in the environments of `given`, with what was chosen for it.

    `given`: tables and dotted settings of the user's. Returns the environments as well, so that
    they are constructed once.
    """
    tree = {name: value for name, value in given.items() if "." not in name}
    dotted = {name: value for name, value in given.items() if "." in name}
    # The default is for pretrained models. It may not fit a context that the user gives alone.
    brief = {} if _is_given(given, "agent.reply_tokens") else {"agent.reply_tokens": 1}
    config = configs.build(tree, dotted | brief, imports=True)
    chosen = Chosen()
    made = make_envs(config)
    texts = {spec.label: _texts(spec, made[spec.label]) for spec in config.env_specs}

    _choose_places(chosen, given, config, made)
    turns = max(env.max_turns for env in made.values())
    chosen.choose(given, "horizon", {"kind": "fixed", "turns": turns}, "the environment's turns")
    if isinstance(config.model, TinyModel):
        _choose_for_tiny(chosen, given, config, made, texts)
    else:
        _choose_for_pretrained(chosen, given, config)
    config = configs.build(tree, dotted | brief | chosen.settings, imports=True)
    _choose_tokens(chosen, given, config, texts)
    config = configs.build(tree, dotted | chosen.settings, imports=True)
    return config, made, chosen.lines


def _texts(spec: EnvSpec, env: Environment) -> Texts:
    """Play some training tasks, by the expert where there is one, else at random."""
    texts = Texts()
    rng = random.Random(0)
    until = time.monotonic() + SECONDS_TRIED
    with guarded(spec, "a first look (tasks(), reset() and step())"):
        tasks, played = env.tasks(env.splits[0]), ValidatedEnv(env)
        for task in rng.sample(list(tasks), min(TASKS_TRIED, len(tasks))):
            if time.monotonic() > until:
                break
            texts.opening.append(f"{env.instructions}\n\n{played.reset(task)}")
            for _ in range(env.max_turns):
                actions = played.actions() or []
                action = played.expert() or (rng.choice(actions) if actions else "")
                step = played.step(action)
                texts.actions.append(action)
                texts.observations.append(step.observation)
                if step.terminated or step.truncated or time.monotonic() > until:
                    break
    return texts


def _choose_places(
    chosen: Chosen, given: Tree, config: Config, made: Mapping[str, Environment]
) -> None:
    """Worker processes for environments that are slow or heavy, as they say themselves."""
    if config.env is None or config.env.is_remote or envs.is_local(config.env.name):
        return
    (env,) = made.values()
    if env.per_process == 1 and config.env.sandbox == "none":
        reason = "the environment wants a process of its own (per_process = 1)"
        chosen.choose(given, "env.isolation", "process", reason)


def _choose_for_tiny(
    chosen: Chosen,
    given: Tree,
    config: Config,
    made: Mapping[str, Environment],
    texts: Mapping[str, Texts],
) -> None:
    """A model with random weights first has to learn to write an action at all."""
    chosen.choose(given, "agent.format", "plain", "a tiny model writes the action alone")
    if all(env.vocabulary() is not None for env in made.values()):
        tokenizer, reason = "words", "the environment lists its words"
    elif all(env.texts() is not None for env in made.values()):
        tokenizer, reason = "bpe", "learned from the environment's texts"
    else:
        tokenizer, reason = "bytes", "the environment lists neither words nor texts"
    chosen.choose(given, "model.tokenizer", tokenizer, reason)
    chosen.choose(given, "eval.tasks", 100, "quick evaluations")
    if config.algo.plays and all(_has_expert(env) for env in made.values()):
        # Small batches: what a tiny model needs first are many updates. It ends when the success
        # rate on training tasks reaches `target`.
        warm_start = {"episodes": 300, "batch": 8, "updates": 200, "check_every": 20}
        reason = "the environment has an expert, and random weights write no action"
        chosen.choose(given, "warm_start", warm_start, reason)


def _has_expert(env: Environment) -> bool:
    return type(env).expert is not Environment.expert


def _choose_for_pretrained(chosen: Chosen, given: Tree, config: Config) -> None:
    parameters = _parameters(config)
    size = f"{parameters / 1e6:,.0f}M parameters"
    if device_of(config).type == "cuda":
        chosen.choose(given, "dtype", "bfloat16", "a GPU")
        tasks = 16 if parameters < LARGE else 8
        reason = size
    else:
        tasks = 8 if parameters < SMALL else 4
        reason = f"{size} on a CPU"
        chosen.choose(given, "eval.tasks", 50, reason)
    chosen.choose(given, "rollout.tasks", tasks, reason)
    chosen.choose(given, "rollout.group", 8, "to compare episodes of a task")


def _parameters(config: Config) -> float:
    """From the sizes of the weights' files, which hold two bytes for each or more."""
    assert isinstance(config.model, PretrainedModel)
    path = find_model(config.model.path)
    index = path / "model.safetensors.index.json"
    if index.is_file():
        total = json.loads(index.read_text()).get("metadata", {}).get("total_size", 0)
        return float(total) / 2
    return sum(file.stat().st_size for file in Path(path).glob("*.safetensors")) / 2


def _choose_tokens(chosen: Chosen, given: Tree, config: Config, texts: Mapping[str, Texts]) -> None:
    """Room for an episode of average turns up to its horizon, and for replies with a thought."""
    writes = formats[config.agent.format]().write
    count = _counter(config)
    replies = [count(writes("", action)) for one in texts.values() for action in one.actions]
    longest = max(replies, default=16)
    tiny = isinstance(config.model, TinyModel)
    # A pretrained model thinks before it acts; a tiny one writes the action and its end token.
    most = _most_context(config)
    if _is_given(given, "agent.context_tokens"):
        most = min(most, config.agent.context_tokens)
    reply = min(longest + 8 if tiny else max(2 * longest, 128), max(most // 2, 1))
    reply = config.agent.reply_tokens if _is_given(given, "agent.reply_tokens") else reply
    reason = f"actions take up to {longest} tokens"
    chosen.choose(given, "agent.reply_tokens", reply, reason)

    opening = max((count(text) for one in texts.values() for text in one.opening), default=64)
    observed = sorted(count(text) for one in texts.values() for text in one.observations)
    usual = observed[int(0.9 * (len(observed) - 1))] if observed else 64
    turns = max(spec.horizon.full for spec in config.env_specs)
    needed = opening + turns * (usual + min(reply, 2 * longest + 16)) + reply
    context = min(-(-needed // 128) * 128, most)
    reason = f"an opening of {opening} tokens, {turns} turns of {usual} and a reply"
    chosen.choose(given, "agent.context_tokens", context, reason)


def _most_context(config: Config) -> int:
    """No more tokens than a pretrained model has positions for."""
    if not isinstance(config.model, PretrainedModel):
        return MOST_CONTEXT
    described = find_model(config.model.path) / "config.json"
    if not described.is_file():
        return MOST_CONTEXT
    positions = json.loads(described.read_text()).get("max_position_embeddings")
    return min(positions, MOST_CONTEXT) if isinstance(positions, int) else MOST_CONTEXT


def _is_given(given: Tree, name: str) -> bool:
    table, _, key = name.partition(".")
    own = given.get(table)
    return name in given or (isinstance(own, Mapping) and key in own)


def _counter(config: Config) -> Any:
    """Counts tokens of a text, as the run's tokenizer will or nearly so."""
    if isinstance(config.model, PretrainedModel):
        from palestra.models.tokenizers import load_tokenizer

        tokenizer = load_tokenizer(tokenizer_folder(config.model.path))
        return lambda text: len(tokenizer.encode(text, add_special_tokens=False)) + 8
    assert isinstance(config.model, TinyModel)
    if config.model.tokenizer == "words":
        return lambda text: len(list(_words(text))) + 4
    if config.model.tokenizer == "bytes":
        return lambda text: len(text.encode()) + 4
    return lambda text: int(len(text) / CHARACTERS_PER_TOKEN) + 4


def _words(text: str) -> Iterator[str]:
    """Words, digits and punctuation, each a token of its own at the most."""
    word = ""
    for character in text:
        if character.isalpha():
            word += character
            continue
        if word:
            yield word
        word = ""
        if not character.isspace():
            yield character
    if word:
        yield word
