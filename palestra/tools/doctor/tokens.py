"""Tokens: rendered once and only appended to, stored as sampled, and trained on exactly where the
policy chose them.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from palestra.agents.renderer import Renderer, TemplateChoice, TemplateError
from palestra.algos.batch import pack
from palestra.core.types import Message, Trajectory
from palestra.tools.doctor.play import Played
from palestra.tools.doctor.result import Verdict, check

TURNS = 20


@check("pieces of a chat add up to the whole")
def check_template(
    tokenizer: PreTrainedTokenizerBase, template: TemplateChoice, words: Sequence[str]
) -> Verdict:
    """Append a conversation of 20 turns piece by piece; after each turn it must be what the
    template renders in one go.
    """
    try:
        renderer = Renderer(tokenizer, template=template)
    except TemplateError as error:
        return Verdict(False, 0, f"template = {template!r} cannot be used: {error}")
    note = _fallback_note(tokenizer) if template == "auto" else ""
    chance = random.Random(0)
    messages = [Message("system", _text(chance, words)), Message("user", _text(chance, words))]
    ids = renderer.prompt(messages)
    for turn in range(1, TURNS + 1):
        reply, observation = _text(chance, words), _text(chance, words)
        ids += renderer.reply_ids(reply) + renderer.bridge(observation, reply_ended=True)
        messages += [Message("assistant", reply), Message("user", observation)]
        full_tensor = renderer.prompt(messages)
        if ids != full_tensor:
            same = next(
                (
                    n
                    for n, (one, other) in enumerate(zip(ids, full_tensor, strict=False))
                    if one != other
                ),
                min(len(ids), len(full_tensor)),
            )
            return Verdict(
                False,
                turn - 1,
                f"after turn {turn} the template renders {len(full_tensor)} tokens, and "
                f"only {same} are as before",
            )
    return Verdict(True, TURNS, f"{TURNS} turns, {len(ids)} tokens{note}")


def _text(chance: random.Random, words: Sequence[str]) -> str:
    """Words of the environment between others, on one line or two."""
    own = " ".join(chance.choices(words, k=chance.randint(1, 6)))
    return chance.choice(
        [
            "{}",
            "Thought: {}.\nAction: 7",
            "{}, then 12 + 3 = 15",
            "naïve: {} (two  blanks)",
            "[{}]\n\n* end",
        ]
    ).format(own)


def _fallback_note(tokenizer: PreTrainedTokenizerBase) -> str:
    try:
        Renderer(tokenizer, template="model")
    except TemplateError as error:
        return f"; by the built-in ChatML, as the tokenizer's own template cannot be used: {error}"
    return ""


@check("replies are stored as tokens")
def check_replies(renderer: Renderer, replies: Sequence[Sequence[int]]) -> Verdict:
    """How many replies would come back as other tokens, had they been stored as text.

    Not a fault: it is why they are not.
    """
    changed = 0
    for ids in replies:
        kept = [token for token in ids if token not in renderer.stop_ids]
        changed += (
            renderer.tokenizer.encode(renderer.reply_text(ids), add_special_tokens=False) != kept
        )
    return Verdict(
        bool(replies),
        changed,
        f"{changed} of {len(replies)} sampled replies would be other tokens if stored as text",
    )


@check("the mask is the sampled tokens")
def check_mask(played: Played) -> Verdict:
    """What will be trained on is what the engine returned, token by token, and turns know where it
    lies.
    """
    for trajectory in played.trajectories:
        problem = _mask_problem(trajectory, played)
        if problem:
            return Verdict(False, None, f"episode {trajectory.id}: {problem}")
    batch = pack([played.trajectories])
    returned = [token for generation in played.replies for token in generation.ids]
    if batch.ids_T[batch.action_mask_T].tolist() != returned:
        return Verdict(
            False,
            None,
            "packed into a batch, the chosen tokens are not those that the engine returned",
        )
    turns = max(len(trajectory.turns) for trajectory in played.trajectories)
    return Verdict(
        True,
        len(returned),
        f"{len(returned)} tokens of {len(played.trajectories)} episodes, up to {turns} turns long",
    )


def _mask_problem(trajectory: Trajectory, played: Played) -> str:
    """What is wrong with the record of an episode; nothing where it is right."""
    said = played.said.get(trajectory.id, [])
    returned = [
        (token, logprob)
        for generation in said
        for token, logprob in zip(generation.ids, generation.logprobs, strict=True)
    ]
    masked: list[tuple[int, float]] = []
    for number, segment in enumerate(trajectory.segments):
        if (
            not len(segment.ids)
            == len(segment.mask)
            == len(segment.logprobs)
            == len(segment.versions)
        ):
            return f"segment {number} has columns of different lengths"
        if segment.mask[0]:
            return f"segment {number} begins with a chosen token, and nothing predicts it"
        chosen = {place for place, flag in enumerate(segment.mask) if flag}
        spans = [
            place
            for turn in trajectory.turns
            if turn.segment == number
            for place in range(*turn.span)
        ]
        if len(spans) != len(set(spans)) or set(spans) != chosen:
            return (
                f"segment {number} has {len(chosen)} chosen tokens, and "
                f"{len(chosen & set(spans))} of them lie in the spans of its turns"
            )
        masked += [(segment.ids[place], segment.logprobs[place]) for place in sorted(chosen)]
    if masked != returned:
        same = sum(one == other for one, other in zip(masked, returned, strict=False))
        return (
            f"the engine returned {len(returned)} tokens, {len(masked)} are chosen, and "
            f"{same} of them agree"
        )
    return ""
