"""From messages to tokens, append-only: what was rendered or sampled once is
never rendered again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from palestra.core.confined import Overran, Refused, in_one_line
from palestra.core.errors import UserError
from palestra.core.types import Message
from palestra.models.chat_templates import CHATML, OURS, RENDERING, foreign

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

log = logging.getLogger(__name__)

TemplateChoice = Literal["auto", "model", "chatml"]

REMEMBERED = 4096
"""Texts whose tokens are kept: the episodes of a group begin alike, and environments repeat
themselves.
"""


class TemplateError(UserError, ValueError):
    """A chat template that cannot be used for tokens that are only ever appended."""


class Renderer:
    """Renders a conversation piece by piece over a Hugging Face chat template.

    Between a reply and the next one stands a *bridge*: the end of the reply, the observation, and
    the opening of the next reply. The renderer is usable only if the bridge is the same text at
    every depth, which it proves when it is made.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, *, template: TemplateChoice = "auto"
    ) -> None:
        self.tokenizer = tokenizer
        self._special = sorted(
            (t for t in {*tokenizer.all_special_tokens, *tokenizer.get_added_vocab()} if t.strip()),
            key=len,
        )
        self._encoded = lru_cache(maxsize=REMEMBERED)(self._encode_anew)
        self._template: str | None = CHATML if template == "chatml" else None
        """None is the tokenizer's own."""
        try:
            self._prove()
        except TemplateError as error:
            if template != "auto":
                raise
            log.warning(
                "the tokenizer's chat template cannot be used (%s); falling back to the "
                "built-in ChatML",
                error,
            )
            self._template = CHATML
            self._prove()

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """The opening of a conversation, up to where the first reply begins."""
        return self._encode(self._text(self._placed(messages)))

    def bridge(self, observation: str, *, reply_ended: bool) -> list[int]:
        """What is appended after a reply: an observation, up to where the next reply begins.

        A reply that ended by itself has its end token among the sampled ones; one that was cut gets
        it here, unsampled.
        """
        text = self._before + self._defuse(observation) + self._after
        return self._encode(text if reply_ended else self._end_text + text)

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """The tokens that end a reply."""
        eos = self.tokenizer.eos_token_id
        return (self._end_id,) if eos is None or eos == self._end_id else (self._end_id, eos)

    def reply_ids(self, text: str) -> list[int]:
        """A reply as tokens, for replies that no model sampled; ends with the end token."""
        return [*self._encode(self._defuse(text)), self._end_id]

    def reply_text(self, ids: Sequence[int]) -> str:
        """What a person, a parser and an environment see of sampled tokens."""
        stops = self.stop_ids
        text = self.tokenizer.decode([i for i in ids if i not in stops], skip_special_tokens=False)
        assert isinstance(text, str)
        return text

    def _placed(self, messages: Sequence[Message]) -> list[Message]:
        """Untrusted text made harmless; system text inside the first user message where the
        template knows no system role.
        """
        safe = [Message(m.role, self._defuse(m.content)) for m in messages]
        if safe and safe[0].role == "system" and not self._has_system:
            merged = Message("user", f"{safe[0].content}\n\n{safe[1].content}")
            return [merged, *safe[2:]]
        return safe

    def _defuse(self, text: str) -> str:
        """Control tokens in an environment's text must stay text: a blank breaks each of them."""
        for token in self._special:
            if token in text:
                text = text.replace(token, f"{token[0]} {token[1:]}")
        return text

    def _encode(self, text: str) -> list[int]:
        return list(self._encoded(text))

    def _encode_anew(self, text: str) -> tuple[int, ...]:
        try:
            return tuple(self.tokenizer.encode(text, add_special_tokens=False))
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # of a library in Rust, and no Exception
                raise
            raise TemplateError(
                f"the tokenizer cannot encode a text of {len(text)} characters: "
                f"{in_one_line(error)}"
            ) from error

    def _text(self, messages: Sequence[Message], *, open_reply: bool = True) -> str:
        """By the template: ours right here, a model's own in a process where it may hang."""
        said = [{"role": m.role, "content": m.content} for m in messages]
        try:
            template = self._template or self.tokenizer.get_chat_template()
            if template in OURS:
                rendered = self.tokenizer.apply_chat_template(
                    said, chat_template=template, add_generation_prompt=open_reply, tokenize=False
                )
            else:
                special = self.tokenizer.special_tokens_map
                question = {
                    "template": template,
                    "messages": said,
                    "open_reply": open_reply,
                    "special": special,
                }
                rendered = foreign.ask({"render": question}, **RENDERING)
        except (Refused, Overran, ValueError) as error:
            raise TemplateError(in_one_line(error)) from error
        assert isinstance(rendered, str)
        return rendered

    def _prove(self) -> None:
        """Find the bridge, and show that appending it gives what the template
        would have rendered.
        """
        if self._template is None and not self.tokenizer.chat_template:
            raise TemplateError("the tokenizer has no chat template")
        self._has_system = self._try_system()
        opening, replies, observations = (
            Message("user", "o0"),
            ["r1 x", "r2", "r3 y z"],
            ["o1", "o2 w", "o3"],
        )
        conversation = [opening]
        text = self._text(conversation)
        for depth, (reply, observation) in enumerate(zip(replies, observations, strict=True)):
            conversation += [Message("assistant", reply), Message("user", observation)]
            longer = self._text(conversation)
            if not longer.startswith(text + reply):
                raise TemplateError(
                    f"it is not prefix-preserving: after turn {depth + 1} it renders the "
                    "earlier turns differently"
                )
            bridge = longer[len(text + reply) :]
            if bridge.count(observation) != 1:
                raise TemplateError(f"it changes observations: {observation!r} became {bridge!r}")
            before, after = bridge.split(observation)
            if depth == 0:
                self._set_bridge(before, after)
            elif (self._end_text + self._before, self._after) != (before, after):
                raise TemplateError("what stands between two turns depends on their number")
            text = longer
        self._prove_thoughts(opening)
        self._prove_tokens(text, opening, replies, observations)

    def _prove_thoughts(self, opening: Message) -> None:
        """Show that the thoughts in an earlier reply stay: templates of reasoning models drop them,
        and nothing else of it.
        """
        reply = "<think>\nt1\n</think>\n\nr1"
        text = self._text([opening, Message("assistant", reply), Message("user", "o1")])
        if not text.startswith(self._text([opening]) + reply):
            raise TemplateError(
                "it is not prefix-preserving: it leaves the thoughts (<think>...</think>) "
                "of earlier turns out"
            )

    def _try_system(self) -> bool:
        try:
            return "s0" in self._text([Message("system", "s0"), Message("user", "o0")])
        except TemplateError as error:
            if isinstance(error.__cause__, Overran):  # it would do so again
                raise
            log.debug("the chat template knows no system role: %s", error)
            return False

    def _set_bridge(self, before: str, after: str) -> None:
        ends = [t for t in self._special if before.startswith(t)]
        if not ends:
            raise TemplateError(f"a reply must end with one special token; it ends with {before!r}")
        self._end_text = max(ends, key=len)
        end_id = self.tokenizer.convert_tokens_to_ids(self._end_text)
        assert isinstance(end_id, int)
        self._end_id = end_id
        self._before, self._after = before.removeprefix(self._end_text), after

    def _prove_tokens(
        self, text: str, opening: Message, replies: list[str], observations: list[str]
    ) -> None:
        ids = self.prompt([opening])
        for reply, observation in zip(replies, observations, strict=True):
            ids += self.reply_ids(reply) + self.bridge(observation, reply_ended=True)
        if ids != self._encode(text):
            raise TemplateError(
                "pieces encoded one by one differ from the whole: a token would reach "
                "across a turn's border"
            )
