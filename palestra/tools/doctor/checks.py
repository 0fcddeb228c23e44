"""All checks of `palestra doctor`, in order.

What an earlier check found broken is not used by later ones.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from functools import partial
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from palestra.config.config import Config
from palestra.config.model import PretrainedModel
from palestra.envs import Environment
from palestra.envs.serving.handles import guarded, vocabulary_of
from palestra.models.folder import tokenizer_folder
from palestra.models.lora import adapter_of
from palestra.models.tokenizers import load_tokenizer
from palestra.rollout.episode import shared_prompt
from palestra.tools.doctor.env_checks import check_answers, check_contract, check_disk
from palestra.tools.doctor.memory import check_fit, check_memory
from palestra.tools.doctor.play import Played, play_some
from palestra.tools.doctor.result import CheckResult, attempt
from palestra.tools.doctor.tokens import check_mask, check_replies, check_template
from palestra.tools.doctor.weights import check_handover, check_logprobs, check_packing, check_toy
from palestra.training.preflight import Prepared, close_envs, prepare
from palestra.training.setup import Components, make_pool, setup


def run_checks(
    config: Config, prepared: Prepared | None = None, *, folder: Path, fit: bool = False
) -> Iterator[CheckResult]:
    """Yield the result of each check when it is done.

    `prepared`: what `preflight` has created. `folder`: where runs go. `fit` adds the search for the
    largest sizes.
    """
    prepared = prepared or prepare(config)
    try:
        can_search = yield from _run_checks(config, prepared, folder)
    finally:
        close_envs(config, prepared.envs)
    if fit and can_search:
        yield check_fit(config)


def _run_checks(
    config: Config, prepared: Prepared, folder: Path
) -> Generator[CheckResult, None, bool]:
    """All checks but the search for sizes. Returns whether that can be done."""
    envs = prepared.envs
    healthy: list[str] = []
    for spec in config.env_specs:
        answers = check_answers(
            spec.label, envs[spec.label], make_pool(spec.env), deadline_s=spec.env.deadline_s
        )
        yield answers
        if answers.ok:
            healthy.append(spec.label)
            yield check_contract(spec)
    tokenizer = attempt("there is a tokenizer", partial(read_tokenizer, config, prepared), _counted)
    yield tokenizer.result
    if tokenizer.made is None:
        return False
    template = check_template(tokenizer.made, config.agent.template, words_of(envs))
    yield template
    if not template.ok:
        return False
    run = attempt(
        "the run can be put together", partial(setup, config, prepared=prepared), _described
    )
    yield run.result
    if run.made is not None:
        try:
            yield from check_components(run.made, healthy, folder)
        finally:
            run.made.close()
    return True


def check_components(
    components: Components, healthy: list[str], folder: Path
) -> Iterator[CheckResult]:
    """The checks that need the model. Episodes are played in the `healthy` environments."""
    config = components.config
    if healthy:
        play = attempt("episodes can be played", partial(play_some, components, healthy), _told)
        yield play.result
        if play.made is not None:
            yield from check_play(components, play.made)
    yield check_toy(components)
    checkpoints = config.save.keep + 1 if config.save.every else 0
    yield check_disk(
        components.learner,
        folder,
        checkpoints=checkpoints,
        keeps_reference=config.algo.keeps_reference,
    )
    yield check_memory(components)


def check_play(components: Components, played: Played) -> Iterator[CheckResult]:
    """The checks of episodes that were played, and of the learner on them."""
    renderer = shared_prompt(components.context.bindings).renderer
    yield check_replies(renderer, [generation.ids for generation in played.replies[:20]])
    mask = check_mask(played)
    yield mask
    if mask.ok:
        yield check_logprobs(components, played)
        yield check_handover(components, played)
        yield check_packing(components, played)


def words_of(envs: Mapping[str, Environment]) -> list[str]:
    """Words that the environments use."""
    words: list[str] = []
    for label, env in envs.items():
        with guarded(label, "vocabulary()"):
            words += vocabulary_of(env) or env.instructions.split()
    return sorted(set(words)) or ["red", "blue", "green"]


def _counted(tokenizer: PreTrainedTokenizerBase) -> tuple[float, str]:
    return len(tokenizer), f"{len(tokenizer)} tokens"


def _described(components: Components) -> tuple[float, str]:
    model = components.learner.model
    parameters = sum(p.numel() for p in model.parameters())
    adapter = sum(p.numel() for p in adapter_of(model).values())
    learning = f", of which an adapter's {adapter / 1e6:.3g} million learn" if adapter else ""
    dtype = str(model.dtype).removeprefix("torch.")
    text = f"{parameters / 1e6:.3g} million parameters{learning}, {dtype}, on {model.device}"
    return parameters, text


def _told(played: Played) -> tuple[float, str]:
    episodes = len(played.trajectories)
    turns = sum(len(trajectory.turns) for trajectory in played.trajectories)
    return episodes, f"{episodes} episodes, {turns} turns, {len(played.faults)} faults"


def read_tokenizer(config: Config, prepared: Prepared) -> PreTrainedTokenizerBase:
    """The tokenizer that the run will have, without its model."""
    if isinstance(config.model, PretrainedModel):
        return load_tokenizer(tokenizer_folder(config.model.path))
    assert prepared.tokenizer is not None
    return prepared.tokenizer
