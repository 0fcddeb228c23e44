"""Stored conversations as trajectories to learn from: episodes of earlier runs, AgentGym's
demonstrations, chats as OpenAI writes them.
"""

from __future__ import annotations

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
    """All trajectories of these run folders and files, rendered with the given renderer where they
    are only text.

    AgentGym's and OpenAI's files know no rewards. They are demonstrations: their last turn brings
    1, and they count as solved.
    """
    fitting: list[Trajectory] = []
    dropped = 0
    for file in [file for path in paths for file in files(Path(path))]:
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


def files(path: Path) -> list[Path]:
    """The files that a path stands for."""
    if path.is_file():
        return [path]  # also where it is a link: who names a file means it
    if not path.is_dir():
        raise DataError(f"{path}: there is no such file or folder; expected {ACCEPTED}")
    is_run = (path / "config.toml").is_file()
    folder, patterns = (
        (path / "trajectories", ["step-*.jsonl"]) if is_run else (path, ["*.json", "*.jsonl"])
    )
    # Evaluations are held out: a model that had learned from them would be measured on what it has
    # seen. Only who names the file gets it.
    files = sorted(
        f for pattern in patterns for f in folder.glob(pattern) if not f.name.startswith("eval-")
    )
    if not files:
        raise DataError(
            f"{folder}: expected {' or '.join(patterns)}, there are no such files (eval-* "
            "are held out unless named)"
        )
    for file in files:
        if not file.is_file():  # a pipe would be waited for, and a device has no end
            raise DataError(f"{file}: expected a regular file")
    return files


def _read_file(path: Path, renderer: Renderer, context_tokens: int) -> tuple[list[Trajectory], int]:
    """Those that fit, and how many do not."""
    items = _items(path)
    first = next(items, None)
    if first is None:
        raise DataError(f"{path}: the file is empty; expected {ACCEPTED}")
    keys = list(first[1]) if isinstance(first[1], dict) else []
    if "messages" in keys:
        found = demonstrations(path, [first, *items], ChatItem, renderer)
    elif "conversations" in keys:
        found = demonstrations(path, [first, *items], GymItem, renderer)
    elif "format" in keys:
        found = _episodes(path, renderer)
    else:
        came = (
            f"an object with {', '.join(keys) or 'nothing in it'}"
            if isinstance(first[1], dict)
            else type(first[1]).__name__
        )
        raise DataError(f"{path}: {first[0]}: expected {ACCEPTED}; came {came}")
    learnable = [trajectory for trajectory in found if is_learnable(trajectory)]
    fitting = [
        t for t in learnable if all(len(segment.ids) <= context_tokens for segment in t.segments)
    ]
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


def _items(path: Path) -> Iterator[tuple[str, Any]]:
    """What a JSON array or the lines of a file hold, each with the name of its place."""
    with _open(path) as file:
        for number, line in enumerate(file, 1):
            if number == 1 and line.lstrip().startswith(b"["):
                items = _decode(line + file.read(), f"{path}")
                yield from ((f"item {place}", item) for place, item in enumerate(items, 1))
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


def _episodes(path: Path, renderer: Renderer) -> list[Trajectory]:
    """Tokens as they were sampled; from the text only where another tokenizer made them."""
    found: list[Trajectory] = []
    try:
        for trajectory in read_trajectories(path):
            _check(trajectory)
            found.append(trajectory)
    except (ValueError, OSError, RecursionError) as error:
        problem = (
            "nested too deeply"
            if isinstance(error, RecursionError)
            else str(error).removeprefix(f"{path}: ")
        )
        raise DataError(
            f"{path}: line {len(found) + 1}: expected a Palestra trajectory; {problem}"
        ) from error
    foreign = [
        is_learnable(trajectory) and not reads_as_recorded(trajectory, renderer)
        for trajectory in found
    ]
    if any(foreign):
        log.warning(
            "%s: %d of %d episodes have the tokens of another model; they are rendered "
            "anew from their text, which has no opening prompt",
            *(path, sum(foreign), len(found)),
        )
    return [
        _render_anew(t, renderer) if is_foreign else t
        for t, is_foreign in zip(found, foreign, strict=True)
    ]


def _check(trajectory: Trajectory) -> None:
    """That the parts of an episode agree with each other: files may come from anywhere."""
    for number, segment in enumerate(trajectory.segments):
        if (
            len({len(segment.ids), len(segment.mask), len(segment.logprobs), len(segment.versions)})
            > 1
        ):
            raise ValueError(
                f"segment {number}: ids, mask, logprobs and versions must be equally long"
            )
        if not set(segment.mask) <= {0, 1} or any(token < 0 for token in segment.ids):
            raise ValueError(f"segment {number}: expected a mask of 0 and 1, and no negative ids")
        spans = [turn.span for turn in trajectory.turns if turn.segment == number]
        said = {place for start, end in spans for place in range(start, end)}
        if said != {place for place, chosen in enumerate(segment.mask) if chosen} or segment.mask[
            :1
        ] == [1]:
            raise ValueError(
                f"segment {number}: the spans of its turns are not where its mask is 1"
            )
    if any(not 0 <= turn.segment < len(trajectory.segments) for turn in trajectory.turns):
        raise ValueError(
            f"a turn lies in a segment that is not there; there are {len(trajectory.segments)}"
        )


def reads_as_recorded(trajectory: Trajectory, renderer: Renderer) -> bool:
    """Whether this tokenizer reads in the tokens what the turns say was shown and written.

    Replies alone do not tell: two vocabularies may share the words of actions and not those of
    observations.
    """
    known = len(renderer.tokenizer)
    if any(i >= known for segment in trajectory.segments for i in segment.ids):
        return False
    shown_from = [0] * len(trajectory.segments)
    for turn in trajectory.turns:
        ids, (start, end) = trajectory.segments[turn.segment].ids, turn.span
        shown = renderer.reply_text(ids[shown_from[turn.segment] : start])
        # Through the tokenizer and back, since it may change blanks and unknown words; then it
        # stands among the opening's other words.
        observation = renderer.reply_text(renderer.reply_ids(turn.observation))
        if renderer.reply_text(ids[start:end]) != turn.reply or _single_blanks(
            observation
        ) not in _single_blanks(shown):
            return False
        shown_from[turn.segment] = end
    return True


def _single_blanks(text: str) -> str:
    return " ".join(text.split())


def _render_anew(trajectory: Trajectory, renderer: Renderer) -> Trajectory:
    said = [
        m
        for turn in trajectory.turns
        for m in (Said("user", turn.observation), Said("assistant", turn.reply, learned=True))
    ]
    segment, spans = stream(said, renderer, was_cut=trajectory.stop is Stop.LENGTH)
    turns = [
        replace(turn, span=span, segment=0)
        for turn, span in zip(trajectory.turns, spans, strict=True)
    ]
    return replace(trajectory, segments=[segment], turns=turns)
