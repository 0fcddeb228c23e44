"""Checks of tokens: they are rendered once and only appended to, stored as sampled, and trained on
exactly where the policy sampled them.
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
    """Append a conversation of 20 turns message by message. After each turn, the tokens must equal
    those of the whole conversation, rendered at once.
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
        at_once = renderer.prompt(messages)
        if ids != at_once:
            same = 0
            while ids[same : same + 1] == at_once[same : same + 1]:
                same += 1
            return Verdict(
                False,
                turn - 1,
                f"after turn {turn} the template renders {len(at_once)} tokens, and "
                f"only {same} are as before",
            )
    return Verdict(True, TURNS, f"{TURNS} turns, {len(ids)} tokens{note}")


def _text(chance: random.Random, words: Sequence[str]) -> str:
    """Words of the environment in a sentence with digits, accents, blanks or several lines."""
    own = " ".join(chance.choices(words, k=chance.randint(1, 6)))
    sentences = [
        "{}",
        "Thought: {}.\nAction: 7",
        "{}, then 12 + 3 = 15",
        "naïve: {} (two  blanks)",
        "[{}]\n\n* end",
    ]
    return chance.choice(sentences).format(own)


def _fallback_note(tokenizer: PreTrainedTokenizerBase) -> str:
    try:
        Renderer(tokenizer, template="model")
    except TemplateError as error:
        return f"; by the built-in ChatML, as the tokenizer's own template cannot be used: {error}"
    return ""


@check("replies are stored as tokens")
def check_replies(renderer: Renderer, replies: Sequence[Sequence[int]]) -> Verdict:
    """Count the replies that would be other tokens if they were stored as text and encoded again.

    Such replies are not a fault, but the reason why replies are stored as tokens.
    """
    changed = 0
    for ids in replies:
        kept = [token for token in ids if token not in renderer.stop_ids]
        text = renderer.reply_text(ids)
        if renderer.tokenizer.encode(text, add_special_tokens=False) != kept:
            changed += 1
    return Verdict(
        bool(replies),
        changed,
        f"{changed} of {len(replies)} sampled replies would be other tokens if stored as text",
    )


@check("the mask is the sampled tokens")
def check_mask(played: Played) -> Verdict:
    """The action tokens are those that the engine returned, one by one, and lie in the spans of the
    turns.
    """
    for trajectory in played.trajectories:
        problem = _mask_problem(trajectory, played)
        if problem:
            return Verdict(False, None, f"episode {trajectory.id}: {problem}")
    batch = pack([played.trajectories])
    returned: list[int] = []
    for generation in played.replies:
        returned += generation.ids
    if batch.ids_T[batch.action_mask_T].tolist() != returned:
        return Verdict(
            False,
            None,
            "packed into a batch, the action tokens are not those that the engine returned",
        )
    turns = max(len(trajectory.turns) for trajectory in played.trajectories)
    return Verdict(
        True,
        len(returned),
        f"{len(returned)} tokens of {len(played.trajectories)} episodes, up to {turns} turns long",
    )


def _mask_problem(trajectory: Trajectory, played: Played) -> str:
    """What is wrong with the record of an episode; empty if it is right."""
    returned: list[tuple[int, float]] = []
    for generation in played.said.get(trajectory.id, []):
        returned += zip(generation.ids, generation.logprobs, strict=True)
    masked: list[tuple[int, float]] = []
    for number, segment in enumerate(trajectory.segments):
        columns = (segment.ids, segment.mask, segment.logprobs, segment.versions)
        if len({len(column) for column in columns}) > 1:
            return f"segment {number} has columns of different lengths"
        if segment.mask[0]:
            return f"segment {number} begins with an action token, and nothing predicts it"
        actions = [index for index, is_action in enumerate(segment.mask) if is_action]
        in_spans: list[int] = []
        for turn in trajectory.turns:
            if turn.segment == number:
                in_spans += range(*turn.span)
        # As a list, since two spans must not overlap.
        if sorted(in_spans) != actions:
            return (
                f"segment {number} has {len(actions)} action tokens, and "
                f"{len(set(actions) & set(in_spans))} of them lie in the spans of its turns"
            )
        masked += [(segment.ids[index], segment.logprobs[index]) for index in actions]
    if masked != returned:
        same = sum(one == other for one, other in zip(masked, returned, strict=False))
        return (
            f"the engine returned {len(returned)} tokens, {len(masked)} are action tokens, and "
            f"{same} of them agree"
        )
    return ""
