"""The tokens of an episode as text, decoded with the run folder's tokenizer."""

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
"""Limit on a vocabulary. The largest ones have 260,000."""
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
    """The texts of one run's tokens."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._read_as: tuple[str, Signature] | None = None
        self._tokenizer: Any = None
        self._known: dict[int, str] = {}

    def of(self, streams: list[list[int]]) -> list[list[str]] | None:
        """The text of each token. None if the run has no readable tokenizer."""
        if not self._open():
            return None
        texts: list[list[str]] = []
        for ids in streams:
            texts.append([self._text(id) for id in ids])
        return texts

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
        """The files that may have the tokenizer, the newest first."""
        names: list[str] = []
        with suppress(Unreadable):
            for step in reversed(untrusted.names(self.folder, "checkpoints", "")):
                if CHECKPOINT.fullmatch(step):
                    names.append(f"checkpoints/{step}/tokenizer.json")
        return [*names, "reference/tokenizer.json"]

    def _text(self, id: int) -> str:
        if id in self._known:
            return self._known[id]
        if not (0 <= id < 2**32 and self._tokenizer.id_to_token(id) is not None):
            return f"<{id}>"
        self._known[id] = self._tokenizer.decode([id], skip_special_tokens=False)
        return self._known[id]


class _File(msgspec.Struct):
    """The parts of tokenizer.json that decoding needs."""

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
        # Without merges, which decoding does not use: they are most of a BPE file.
        model = {key: value for key, value in file.model.items() if key != "merges"}
        if bytes(file.model.get("type", msgspec.Raw())) == b'"BPE"' or "merges" in file.model:
            model["merges"] = msgspec.Raw(b"[]")
        # Commas bound the number of tokens without parsing the vocabulary.
        commas = sum(bytes(value).count(b",") for value in [*model.values(), *file.added_tokens])
        if commas > MOST_TOKENS:
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
    except Exception:  # noqa: BLE001  the library raises plain Exceptions
        return None


def _is_plain(decoder: Any) -> bool:
    """Whether a decoder only joins words. One that replaces patterns may never end, or turn a word
    into gigabytes, and the file may be a stranger's.
    """
    steps = [decoder]
    if isinstance(decoder, dict) and decoder.get("type") == "Sequence":
        steps = decoder.get("decoders", [])
        if not isinstance(steps, list) or len(steps) > MOST_DECODERS:
            return False
    return all(step is None or _is_plain_step(step) for step in steps)


def _is_plain_step(step: Any) -> bool:
    if not isinstance(step, dict):
        return False
    if step.get("type") != "Replace":
        return step.get("type") in PLAIN_DECODERS
    pattern, content = step.get("pattern"), step.get("content")
    is_text = isinstance(pattern, dict) and list(pattern) == ["String"] and bool(pattern["String"])
    return is_text and isinstance(content, str) and len(content) <= 1
