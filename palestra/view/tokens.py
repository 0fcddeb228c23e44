"""The tokens of an episode as text, by the tokenizer that the run folder holds."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from palestra.core import untrusted
from palestra.core.untrusted import MB, Unreadable
from palestra.runs.reader import Signature, signature

TOKENIZER_BYTES = 64 * MB
"""Gemma's tokenizer.json has 33 MB."""
MOST_TOKENS = 1_000_000
"""Of a vocabulary: the largest ones have 260,000."""
CHECKPOINT = re.compile(r"step-\d{1,12}")

PLAIN_DECODERS = (
    "ByteLevel",
    "ByteFallback",
    "Fuse",
    "Metaspace",
    "WordPiece",
    "Strip",
    "BPEDecoder",
    "CTC",
)
MOST_DECODERS = 8


class TokenTexts:
    """Of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._read_as: tuple[str, Signature] | None = None
        self._tokenizer: Any = None
        self._known: dict[int, str] = {}

    def of(self, streams: list[list[int]]) -> list[list[str]] | None:
        """The text of each token; None where the run has no tokenizer that can be read."""
        if not self._open():
            return None
        return [[self._text(id) for id in ids] for ids in streams]

    def _open(self) -> bool:
        name = next((name for name in self._names() if signature(self.folder / name)), None)
        if name is None:
            return False
        now = (name, signature(self.folder / name))
        if now != self._read_as:
            self._read_as, self._known = now, {}
            self._tokenizer = _load(self.folder, name)
        return self._tokenizer is not None

    def _names(self) -> list[str]:
        """Where there may be one, the newest first."""
        steps: list[str] = []
        with suppress(Unreadable):
            steps = [
                step
                for step in untrusted.names(self.folder, "checkpoints", "")
                if CHECKPOINT.fullmatch(step)
            ]
        return [
            *(f"checkpoints/{step}/tokenizer.json" for step in reversed(steps)),
            "reference/tokenizer.json",
        ]

    def _text(self, id: int) -> str:
        if id in self._known:
            return self._known[id]
        if not (0 <= id < 2**32 and self._tokenizer.id_to_token(id) is not None):
            return f"<{id}>"
        self._known[id] = self._tokenizer.decode([id], skip_special_tokens=False)
        return self._known[id]


class _File(msgspec.Struct):
    """What it takes to turn tokens into text; how texts become tokens is left out."""

    model: dict[str, msgspec.Raw]
    added_tokens: list[msgspec.Raw] = []
    decoder: Any = None


_files = msgspec.json.Decoder(_File)


def _load(folder: Path, name: str) -> Any:
    from tokenizers import Tokenizer

    try:
        text = untrusted.read_file(folder, name, TOKENIZER_BYTES)
        file = untrusted.decode(text, _files)
        if not _is_plain(file.decoder):
            return None
        model = {key: value for key, value in file.model.items() if key != "merges"}
        if bytes(file.model.get("type", msgspec.Raw())) == b'"BPE"' or "merges" in file.model:
            model["merges"] = msgspec.Raw(b"[]")
        if (
            sum(bytes(value).count(b",") for value in [*model.values(), *file.added_tokens])
            > MOST_TOKENS
        ):
            return None
        known = {
            "version": "1.0",
            "added_tokens": file.added_tokens,
            "decoder": file.decoder,
            "model": model,
        }
        return Tokenizer.from_str(msgspec.json.encode(known).decode())
    except (FileNotFoundError, Unreadable):
        return None
    except Exception:  # noqa: BLE001  what it raises has no class of its own
        return None


def _is_plain(decoder: Any) -> bool:
    """Whether it only puts words together: one that replaces by patterns may take for ever, or turn
    a word into gigabytes.
    """
    parts = [decoder]
    if isinstance(decoder, dict) and decoder.get("type") == "Sequence":
        parts = decoder.get("decoders", [])
        if not isinstance(parts, list) or len(parts) > MOST_DECODERS:
            return False
    return all(part is None or _is_plain_part(part) for part in parts)


def _is_plain_part(part: Any) -> bool:
    if not isinstance(part, dict):
        return False
    if part.get("type") != "Replace":
        return part.get("type") in PLAIN_DECODERS
    pattern, content = part.get("pattern"), part.get("content")
    is_text = isinstance(pattern, dict) and list(pattern) == ["String"] and bool(pattern["String"])
    return is_text and isinstance(content, str) and len(content) <= 1
