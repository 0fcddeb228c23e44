"""From messages to tokens, append-only: no token is rendered again once it is in the context."""

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
"""Size of the cache of encoded texts: the episodes of a group share their prompt, and environments
repeat themselves.
"""


class TemplateError(UserError, ValueError):
    """A chat template that cannot be used append-only."""


class Renderer:
    """Renders a conversation incrementally with a Hugging Face chat template.

    Between two replies is a *bridge*: the end of the first reply, the observation, and the opening
    of the next reply. The template must render the same bridge at every depth, which the
    constructor verifies.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, *, template: TemplateChoice = "auto"
    ) -> None:
        self.tokenizer = tokenizer
        control_tokens = {*tokenizer.all_special_tokens, *tokenizer.get_added_vocab()}
        self._special = sorted((token for token in control_tokens if token.strip()), key=len)
        self._encoded = lru_cache(maxsize=REMEMBERED)(self._encode_uncached)
        self._template: str | None = CHATML if template == "chatml" else None
        """None is the tokenizer's own."""
        try:
            self._verify()
        except TemplateError as error:
            if template != "auto":
                raise
            log.warning(
                "the tokenizer's chat template cannot be used (%s); falling back to the "
                "built-in ChatML",
                error,
            )
            self._template = CHATML
            self._verify()

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """The tokens of the opening messages, up to where the first reply begins."""
        return self._encode(self._text(self._safe(messages)))

    def bridge(self, observation: str, *, reply_ended: bool) -> list[int]:
        """The tokens from the end of a reply, over an observation, to where the next reply begins.

        The end token of a reply is among its sampled tokens; a truncated reply has none, and gets
        it here.
        """
        text = self._before + self._defuse(observation) + self._after
        return self._encode(text if reply_ended else self._end_text + text)

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """The tokens that end a reply."""
        eos = self.tokenizer.eos_token_id
        return (self._end_id,) if eos is None or eos == self._end_id else (self._end_id, eos)

    def reply_ids(self, text: str) -> list[int]:
        """The tokens of a reply that no model sampled, with the end token."""
        return [*self._encode(self._defuse(text)), self._end_id]

    def reply_text(self, ids: Sequence[int]) -> str:
        """The text of sampled tokens, without the end token."""
        stops = self.stop_ids
        text = self.tokenizer.decode([i for i in ids if i not in stops], skip_special_tokens=False)
        assert isinstance(text, str)
        return text

    def _safe(self, messages: Sequence[Message]) -> list[Message]:
        """Messages without control tokens in their text. If the template has no system role, the
        system message is merged into the first user message.
        """
        safe = [Message(m.role, self._defuse(m.content)) for m in messages]
        if safe and safe[0].role == "system" and not self._has_system:
            merged = Message("user", f"{safe[0].content}\n\n{safe[1].content}")
            return [merged, *safe[2:]]
        return safe

    def _defuse(self, text: str) -> str:
        """Break control tokens in untrusted text with a space, so that they stay text."""
        for token in self._special:
            if token in text:
                text = text.replace(token, f"{token[0]} {token[1:]}")
        return text

    def _encode(self, text: str) -> list[int]:
        return list(self._encoded(text))

    def _encode_uncached(self, text: str) -> tuple[int, ...]:
        try:
            return tuple(self.tokenizer.encode(text, add_special_tokens=False))
        except BaseException as error:
            # A panic in the Rust library, which does not derive from Exception.
            if type(error).__name__ != "PanicException":
                raise
            raise TemplateError(
                f"the tokenizer cannot encode a text of {len(text)} characters: "
                f"{in_one_line(error)}"
            ) from error

    def _text(self, messages: Sequence[Message], *, open_reply: bool = True) -> str:
        """Render messages with the template; a model's own runs in a confined process, as it is an
        untrusted program.
        """
        chat = [{"role": m.role, "content": m.content} for m in messages]
        try:
            template = self._template or self.tokenizer.get_chat_template()
            if template in OURS:
                rendered = self.tokenizer.apply_chat_template(
                    chat, chat_template=template, add_generation_prompt=open_reply, tokenize=False
                )
            else:
                question = {
                    "template": template,
                    "messages": chat,
                    "open_reply": open_reply,
                    "special": self.tokenizer.special_tokens_map,
                }
                rendered = foreign.ask({"render": question}, **RENDERING)
        except (Refused, Overran, ValueError) as error:
            raise TemplateError(in_one_line(error)) from error
        assert isinstance(rendered, str)
        return rendered

    def _verify(self) -> None:
        """Find the bridge, and verify that appending it gives what the template renders."""
        if self._template is None and not self.tokenizer.chat_template:
            raise TemplateError("the tokenizer has no chat template")
        self._has_system = self._try_system()
        opening = Message("user", "o0")
        replies = ["r1 x", "r2", "r3 y z"]
        observations = ["o1", "o2 w", "o3"]
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
        self._verify_thoughts(opening)
        self._verify_tokens(text, opening, replies, observations)

    def _verify_thoughts(self, opening: Message) -> None:
        """Verify that the template keeps the thoughts of earlier replies, which those of reasoning
        models drop.
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
            # A template that ran out of time once would do so again.
            if isinstance(error.__cause__, Overran):
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

    def _verify_tokens(
        self, text: str, opening: Message, replies: list[str], observations: list[str]
    ) -> None:
        """Verify that tokens of the parts, appended, are the tokens of the whole text."""
        ids = self.prompt([opening])
        for reply, observation in zip(replies, observations, strict=True):
            ids += self.reply_ids(reply) + self.bridge(observation, reply_ended=True)
        if ids != self._encode(text):
            raise TemplateError(
                "pieces encoded one by one differ from the whole: a token would reach "
                "across a turn's border"
            )
