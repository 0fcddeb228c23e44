"""The examination: all checks in order. What an earlier check found broken is not used by later ones."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from functools import partial
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from palestra.config.config import Config
from palestra.envs import Environment
from palestra.envs.serving.handles import guarded
from palestra.models.lora import adapter_of
from palestra.rollout.rollout import shared_persona
from palestra.tools.doctor.finding import Finding, attempt
from palestra.tools.doctor.memory import check_fit, check_memory
from palestra.tools.doctor.play import Played, play_some
from palestra.tools.doctor.surroundings import check_answers, check_contract, check_disk
from palestra.tools.doctor.tokens import check_mask, check_replies, check_template
from palestra.tools.doctor.weights import check_handover, check_logprobs, check_packing, check_toy
from palestra.training.setup import Parts, assemble, close_envs, make_envs, make_pool, read_tokenizer


def examine(config: Config, envs: dict[str, Environment] | None = None, *, folder: Path, fit: bool = False) -> Iterator[Finding]:
    """Findings as they come. `envs`: those that `check_run` made. `folder`: where runs go. `fit` adds the search for the largest sizes."""
    envs = make_envs(config) if envs is None else envs
    try:
        goes_on = yield from _examine(config, envs, folder)
    finally:
        close_envs(config, envs)
    if fit and goes_on:
        yield check_fit(config)


def _examine(config: Config, envs: dict[str, Environment], folder: Path) -> Generator[Finding, None, bool]:
    """All but the search for sizes. Returns whether what that needs is in order."""
    healthy: list[str] = []
    for place in config.playgrounds:
        pool = make_pool(place.env)
        yield (answers := check_answers(place.label, envs[place.label], pool, deadline_s=place.env.deadline_s))
        if answers.ok:
            healthy.append(place.label)
            yield check_contract(place)
    tokenizer = attempt("there is a tokenizer", partial(read_tokenizer, config, envs), _counted)
    yield tokenizer.finding
    if tokenizer.made is None:
        return False
    yield (template := check_template(tokenizer.made, config.agent.template, words_of(envs)))
    if not template.ok:
        return False
    whole = attempt("the run can be put together", partial(assemble, config, envs=envs), _described)
    yield whole.finding
    if whole.made is not None:
        try:
            yield from examine_parts(whole.made, healthy, folder)
        finally:
            whole.made.close()
    return True


def examine_parts(parts: Parts, healthy: list[str], folder: Path) -> Iterator[Finding]:
    """What needs the model: the episodes are played in the environments that are `healthy`."""
    config = parts.config
    if healthy:
        play = attempt("episodes can be played", partial(play_some, parts, healthy), _told)
        yield play.finding
        if play.made is not None:
            yield from examine_play(parts, play.made)
    yield check_toy(parts)
    checkpoints = config.save.keep + 1 if config.save.every else 0
    yield check_disk(parts.learner, folder, checkpoints=checkpoints, keeps_reference=config.algo.keeps_reference)
    yield check_memory(parts)


def examine_play(parts: Parts, played: Played) -> Iterator[Finding]:
    renderer = shared_persona(parts.arena.places).renderer
    yield check_replies(renderer, [generation.ids for generation in played.replies[:20]])
    yield (mask := check_mask(played))
    if mask.ok:
        yield check_logprobs(parts, played)
        yield check_handover(parts, played)
        yield check_packing(parts, played)


def words_of(envs: Mapping[str, Environment]) -> list[str]:
    """Some that the environments use."""
    words: list[str] = []
    for label, env in envs.items():
        with guarded(label, "vocabulary()"):
            words += env.vocabulary() or env.instructions.split()
    return sorted(set(words)) or ["red", "blue", "green"]


def _counted(tokenizer: PreTrainedTokenizerBase) -> tuple[float, str]:
    return len(tokenizer), f"{len(tokenizer)} tokens"


def _described(parts: Parts) -> tuple[float, str]:
    model = parts.learner.model
    parameters, adapter = (sum(p.numel() for p in some) for some in (model.parameters(), adapter_of(model).values()))
    learning = f", of which an adapter's {adapter / 1e6:.3g} million learn" if adapter else ""
    return parameters, f"{parameters / 1e6:.3g} million parameters{learning}, {model.dtype}, on {model.device}".replace("torch.", "")


def _told(played: Played) -> tuple[float, str]:
    turns = sum(len(trajectory.turns) for trajectory in played.trajectories)
    return len(played.trajectories), f"{len(played.trajectories)} episodes, {turns} turns, {len(played.faults)} faults"
