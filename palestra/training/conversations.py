"""Conversations that are only text, in the formats of AgentGym and OpenAI, rendered into
trajectories to train on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import msgspec

from palestra.agents.renderer import Renderer, TemplateError
from palestra.core.errors import UserError
from palestra.core.types import Message, Role, Segment, Stop, Task, Trajectory, Turn


class DataError(UserError, ValueError):
    """Stored data that cannot be trained on as it is."""


@dataclass(frozen=True, slots=True)
class Said:
    """One message of a stored conversation."""

    role: Role
    text: str
    learned: bool = False


class GymMessage(msgspec.Struct):
    speaker: Literal["human", "gpt"] = msgspec.field(name="from")
    value: str
    loss: bool | None = None

    def said(self, *, learn_unmarked: bool) -> Said:
        if self.speaker == "human":
            return Said("user", self.value)
        return Said("assistant", self.value, learn_unmarked if self.loss is None else self.loss)


class GymItem(msgspec.Struct):
    messages: list[GymMessage] = msgspec.field(name="conversations")
    item_id: str | int | None = None

    @property
    def is_marked(self) -> bool:
        replies = [message for message in self.messages if message.speaker == "gpt"]
        return any(reply.loss is not None for reply in replies)


class Part(msgspec.Struct):
    type: str
    text: str = ""


class ChatMessage(msgspec.Struct):
    role: Literal["system", "user", "assistant", "tool"]
    content: str | list[Part] | None = None
    weight: Literal[0, 1] | None = None
    tool_calls: list[Any] | None = None

    def said(self, *, learn_unmarked: bool) -> Said:
        # Also if there is text: training on the text without the call would teach not to call.
        if self.tool_calls:
            raise DataError("expected actions written out in content, came tool_calls")
        if self.content is None:
            raise DataError(f"expected content, came a message of role {self.role!r} without it")
        parts = [Part("text", self.content)] if isinstance(self.content, str) else self.content
        others = sorted({part.type for part in parts if part.type != "text"})
        if others:
            raise DataError(
                f"expected only text in content, came parts of type {', '.join(others)}"
            )
        role: Role = "user" if self.role == "tool" else self.role
        is_learned = learn_unmarked if self.weight is None else self.weight == 1
        return Said(role, "".join(part.text for part in parts), role == "assistant" and is_learned)


class ChatItem(msgspec.Struct):
    messages: list[ChatMessage]
    item_id: str | int | None = None
    is_marked: ClassVar[bool] = False
    """A weight marks only its own message."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """An item of a file."""

    where: str
    """Its position in words: "line 3"."""
    item_id: str
    messages: list[Said]


def conversations(
    path: Path, items: list[tuple[str, Any]], kind: type[GymItem | ChatItem]
) -> list[Conversation]:
    """The items of a file as conversations that can be rendered."""
    parsed: list[tuple[str, GymItem | ChatItem]] = []
    for where, item in items:
        with _at(path, where):
            parsed.append((where, msgspec.convert(item, kind)))
    # AgentGym marks the replies to train on in some files and not in others. In a file without
    # marks, all replies are trained on.
    learn_unmarked = not any(item.is_marked for _, item in parsed)
    found: list[Conversation] = []
    for where, item in parsed:
        item_id = where.split()[1] if item.item_id is None else str(item.item_id)
        with _at(path, where):
            said = [m.said(learn_unmarked=learn_unmarked) for m in item.messages]
            found.append(Conversation(where, item_id, _tidy(said)))
    return found


def demonstrations(
    path: Path, items: list[tuple[str, Any]], kind: type[GymItem | ChatItem], renderer: Renderer
) -> list[Trajectory]:
    """Each item of a file as one trajectory.

    The files contain no rewards: the last turn gets reward 1, and the task counts as solved.
    """
    found: list[Trajectory] = []
    for one in conversations(path, items, kind):
        task = Task(one.item_id.rpartition("_")[0] or "chat", "data", one.item_id)
        name = f"{path.name}:{one.where.split()[1]}"
        with _at(path, one.where):
            found.append(_demonstration(name, task, one.messages, renderer))
    return found


@contextmanager
def _at(path: Path, where: str) -> Iterator[None]:
    """Errors say where in the file they are."""
    try:
        yield
    except (DataError, msgspec.ValidationError, TemplateError) as error:
        raise DataError(f"{path}: {where}: {error}") from error


def _tidy(messages: list[Said]) -> list[Said]:
    """Join consecutive observations, and refuse an order of roles that no chat template allows."""
    tidy: list[Said] = []
    row: list[str] = []
    """Texts of consecutive observations. They are joined once, since there may be millions."""
    has_user = False
    for number, message in enumerate(messages, 1):
        before = tidy[-1].role if tidy else None
        if message.role == "system" and before:
            raise DataError(
                f"message {number}: expected a system message only at the start, came one "
                f"after a message of role {before!r}"
            )
        if message.role == before == "assistant":
            raise DataError(
                f"message {number}: expected an observation between two replies, came two "
                "replies in a row"
            )
        if message.role == before:
            row.append(message.text)
            continue
        _end_row(tidy, row)
        row = [message.text]
        # A greeting before the first observation is part of the prompt, and not trained on.
        tidy.append(replace(message, learned=message.learned and has_user))
        has_user = has_user or message.role == "user"
    _end_row(tidy, row)
    if not any(message.role == "assistant" for message in tidy):
        raise DataError(
            "expected at least one reply (gpt, assistant), there is none in "
            f"{len(messages)} messages"
        )
    return tidy


def _end_row(tidy: list[Said], row: list[str]) -> None:
    if len(row) > 1:
        tidy[-1] = Said("user", "\n".join(row))


def _demonstration(name: str, task: Task, messages: list[Said], renderer: Renderer) -> Trajectory:
    turns: list[Turn] = []
    seen: list[str] = []
    segment, spans = stream(messages, renderer)
    for message in messages:
        if message.learned:
            turns.append(Turn("\n".join(seen), message.text, message.text, 0.0, spans[len(turns)]))
            seen = []
        elif message.role != "system":
            seen.append(message.text)
    turns[-1:] = [replace(turn, reward=1.0) for turn in turns[-1:]]
    return Trajectory(
        name,
        task,
        [segment],
        turns,
        Stop.DONE,
        True,
        horizon=len(turns),
        seed=0,
        final_observation="\n".join(seen),
    )


def stream(
    messages: list[Said], renderer: Renderer, *, was_cut: bool = False
) -> tuple[Segment, list[tuple[int, int]]]:
    """The tokens up to the last reply, and the spans of the replies that are trained on.

    `was_cut`: the last reply was cut off, so it gets no end token.
    """
    segment, spans = Segment([], [], [], []), list[tuple[int, int]]()
    roles = [message.role for message in messages]
    last_reply = max(i for i, role in enumerate(roles) if role == "assistant")
    opening = roles.index("user") + 1 if "user" in roles else len(messages)
    prompt = renderer.prompt([Message(said.role, said.text) for said in messages[:opening]])
    _append(segment, prompt, 0)
    for i, message in enumerate(messages[opening : last_reply + 1], opening):
        if message.role == "user":
            _append(segment, renderer.bridge(message.text, reply_ended=True), 0)
            continue
        start, ids = len(segment.ids), renderer.reply_ids(message.text)
        _append(segment, ids[:-1] if was_cut and i == last_reply else ids, int(message.learned))
        if message.learned:
            spans.append((start, len(segment.ids)))
    return segment, spans


def _append(segment: Segment, ids: list[int], is_action: int) -> None:
    segment.ids.extend(ids)
    segment.mask.extend([is_action] * len(ids))
    segment.logprobs.extend([0.0] * len(ids))
    segment.versions.extend([is_action - 1] * len(ids))  # 0 for actions, -1 elsewhere
