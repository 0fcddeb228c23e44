"""Stored conversations as trajectories to train on: episodes of earlier runs, AgentGym's
demonstrations, chats in OpenAI's format.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import msgspec

from palestra.agents.renderer import Renderer
from palestra.algos.selection import is_learnable
from palestra.core.files import open_regular
from palestra.core.types import Stop, Trajectory
from palestra.core.untrusted import Unreadable, decode
from palestra.runs.trajectories import read_trajectories
from palestra.training.conversations import (
    ChatItem,
    DataError,
    GymItem,
    Said,
    conversations,
    demonstrations,
    stream,
)

__all__ = ["DataError", "read", "reads_as_recorded"]

log = logging.getLogger(__name__)

ANY: msgspec.json.Decoder[Any] = msgspec.json.Decoder()

ACCEPTED = (
    'a run folder, a file or folder of Palestra trajectories (lines with "format"), '
    'AgentGym items with "conversations", or OpenAI chats with "messages"'
)


def read(
    paths: Sequence[str | Path], renderer: Renderer, *, context_tokens: int
) -> list[Trajectory]:
    """All trajectories of these run folders and files. Those that are only text are rendered with
    `renderer`.

    AgentGym's and OpenAI's files contain no rewards. They are demonstrations: the last turn gets
    reward 1, and the task counts as solved.
    """
    fitting: list[Trajectory] = []
    dropped = 0
    all_files: list[Path] = []
    for path in paths:  # all are looked for before the first is read, which may take minutes
        all_files += files(Path(path))
    for file in all_files:
        found, too_long = _read_file(file, renderer, context_tokens)
        fitting += found
        dropped += too_long
    if dropped and not fitting:
        named = ", ".join(map(str, paths))
        raise DataError(
            f"{named}: none of {dropped} conversations fits into agent.context_tokens = "
            f"{context_tokens}; expected shorter ones"
        )
    return fitting


def check(paths: Sequence[str | Path]) -> tuple[int, list[Trajectory]]:
    """Raise `DataError` for what `read` cannot read, without a tokenizer.

    Returns the number of conversations, and the recorded episodes that can be learned from.
    """
    count, episodes = 0, list[Trajectory]()
    all_files = [file for path in paths for file in files(Path(path))]
    for file in all_files:
        kind, items = _kind_and_items(file)
        if kind is None:
            episodes += filter(is_learnable, _recorded(file))
        else:
            count += len(conversations(file, list(items), kind))
    return count, episodes


def files(path: Path) -> list[Path]:
    """The files that a path stands for."""
    if path.is_file():
        return [path]  # a link, too: it was named explicitly
    if not path.is_dir():
        raise DataError(f"{path}: there is no such file or folder; expected {ACCEPTED}")
    folder, patterns = path, ["*.json", "*.jsonl"]
    if (path / "config.toml").is_file():  # a run folder
        folder, patterns = path / "trajectories", ["step-*.jsonl"]
    found: list[Path] = []
    for pattern in patterns:
        found += folder.glob(pattern)
    # Evaluations are held out: a model trained on them would be measured on what it has seen. They
    # are used only if the file itself is named.
    files = sorted(file for file in found if not file.name.startswith("eval-"))
    if not files:
        raise DataError(
            f"{folder}: expected {' or '.join(patterns)}, there are no such files (eval-* "
            "are held out unless named)"
        )
    for file in files:
        if not file.is_file():  # reading a pipe would block, and a device has no end
            raise DataError(f"{file}: expected a regular file")
    return files


def _read_file(path: Path, renderer: Renderer, context_tokens: int) -> tuple[list[Trajectory], int]:
    """The trajectories that fit into the context, and the number of those that do not."""
    kind, items = _kind_and_items(path)
    if kind is None:
        found = _episodes(path, renderer)
    else:
        found = demonstrations(path, list(items), kind, renderer)
    learnable = [trajectory for trajectory in found if is_learnable(trajectory)]
    fitting = []
    for trajectory in learnable:
        lengths = [len(segment.ids) for segment in trajectory.segments]
        if max(lengths, default=0) <= context_tokens:
            fitting.append(trajectory)
    dropped = len(learnable) - len(fitting)
    if dropped:
        log.warning(
            "%s: dropped %d of %d conversations: longer than %d tokens",
            path,
            dropped,
            len(learnable),
            context_tokens,
        )
    return fitting, dropped


def _kind_and_items(
    path: Path,
) -> tuple[type[GymItem | ChatItem] | None, Iterator[tuple[str, Any]]]:
    """The kind of a file's conversations, by the first item, and its items; None for recorded
    episodes.
    """
    items = _items(path)
    first = next(items, None)
    if first is None:
        raise DataError(f"{path}: the file is empty; expected {ACCEPTED}")
    where, item = first
    keys = list(item) if isinstance(item, dict) else []
    for key, kind in (("messages", ChatItem), ("conversations", GymItem), ("format", None)):
        if key in keys:
            return kind, itertools.chain([first], items)
    came = type(item).__name__
    if isinstance(item, dict):
        came = f"an object with {', '.join(keys) or 'nothing in it'}"
    raise DataError(f"{path}: {where}: expected {ACCEPTED}; came {came}")


def _items(path: Path) -> Iterator[tuple[str, Any]]:
    """The items of a JSON array, or of the lines of a file, each with its position in words."""
    with _open(path) as file:
        for number, line in enumerate(file, 1):
            if number == 1 and line.lstrip().startswith(b"["):
                items = _decode(line + file.read(), f"{path}")
                for position, item in enumerate(items, 1):
                    yield f"item {position}", item
                return
            if line.strip():
                yield f"line {number}", _decode(line, f"{path}: line {number}")


def _open(path: Path) -> IO[bytes]:
    try:
        return open_regular(path)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}; expected {ACCEPTED}") from error


def _decode(content: bytes, where: str) -> Any:
    try:
        return decode(content, ANY)
    except Unreadable as error:
        raise DataError(f"{where}: expected JSON: {ACCEPTED}; {error}") from error


def _recorded(path: Path) -> list[Trajectory]:
    """The episodes of a trajectory file."""
    found: list[Trajectory] = []
    try:
        for trajectory in read_trajectories(path):
            _check(trajectory)
            found.append(trajectory)
    except (ValueError, OSError, RecursionError) as error:
        problem = str(error).removeprefix(f"{path}: ")
        if isinstance(error, RecursionError):
            problem = "nested too deeply"
        raise DataError(
            f"{path}: line {len(found) + 1}: expected a Palestra trajectory; {problem}"
        ) from error
    return found


def _episodes(path: Path, renderer: Renderer) -> list[Trajectory]:
    """The episodes of a trajectory file, with their tokens as they were sampled. Episodes of a
    model with another tokenizer are rendered again from their text.
    """
    found = _recorded(path)
    episodes: list[Trajectory] = []
    rendered = 0
    for trajectory in found:
        if is_learnable(trajectory) and not reads_as_recorded(trajectory, renderer):
            trajectory = _render_again(trajectory, renderer)
            rendered += 1
        episodes.append(trajectory)
    if rendered:
        log.warning(
            "%s: %d of %d episodes have the tokens of another model; they are rendered "
            "again from their text, which has no opening prompt",
            path,
            rendered,
            len(found),
        )
    return episodes


def _check(trajectory: Trajectory) -> None:
    """Refuse an episode whose parts contradict each other: the file may come from anywhere."""
    for number, segment in enumerate(trajectory.segments):
        columns = (segment.ids, segment.mask, segment.logprobs, segment.versions)
        if len({len(column) for column in columns}) > 1:
            raise ValueError(
                f"segment {number}: ids, mask, logprobs and versions must be equally long"
            )
        if not set(segment.mask) <= {0, 1} or any(token < 0 for token in segment.ids):
            raise ValueError(f"segment {number}: expected a mask of 0 and 1, and no negative ids")
        in_spans: set[int] = set()
        for turn in trajectory.turns:
            if turn.segment == number:
                in_spans.update(range(*turn.span))
        in_mask = {position for position, is_action in enumerate(segment.mask) if is_action}
        # A first token has no token before it to be predicted from, so it cannot be an action.
        if in_spans != in_mask or 0 in in_mask:
            raise ValueError(
                f"segment {number}: the spans of its turns are not where its mask is 1"
            )
    if any(not 0 <= turn.segment < len(trajectory.segments) for turn in trajectory.turns):
        raise ValueError(
            f"a turn lies in a segment that is not there; there are {len(trajectory.segments)}"
        )


def reads_as_recorded(trajectory: Trajectory, renderer: Renderer) -> bool:
    """Whether this tokenizer decodes the tokens to the observations and replies of the turns.

    Replies alone are not enough: two vocabularies may share the words of actions and not those of
    observations.
    """
    vocabulary_size = len(renderer.tokenizer)
    for segment in trajectory.segments:
        if max(segment.ids, default=-1) >= vocabulary_size:
            return False
    shown_from = [0] * len(trajectory.segments)
    for turn in trajectory.turns:
        ids, (start, end) = trajectory.segments[turn.segment].ids, turn.span
        if renderer.reply_text(ids[start:end]) != turn.reply:
            return False
        shown = renderer.reply_text(ids[shown_from[turn.segment] : start])
        # Encoded and decoded, since the tokenizer may change blanks and unknown words. "In", since
        # the tokens before a first reply also contain the instructions.
        observation = renderer.reply_text(renderer.reply_ids(turn.observation))
        if _single_blanks(observation) not in _single_blanks(shown):
            return False
        shown_from[turn.segment] = end
    return True


def _single_blanks(text: str) -> str:
    return " ".join(text.split())


def _render_again(trajectory: Trajectory, renderer: Renderer) -> Trajectory:
    messages: list[Said] = []
    for turn in trajectory.turns:
        messages.append(Said("user", turn.observation))
        messages.append(Said("assistant", turn.reply, learned=True))
    segment, spans = stream(messages, renderer, was_cut=trajectory.stop is Stop.LENGTH)
    turns = []
    for turn, span in zip(trajectory.turns, spans, strict=True):
        turns.append(replace(turn, span=span, segment=0))
    return replace(trajectory, segments=[segment], turns=turns)
