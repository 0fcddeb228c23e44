"""A GGUF file's header, read with bounds before the library opens it: the library believes all
counts and lengths.
"""

from __future__ import annotations

import math
import mmap
import struct
from pathlib import Path
from typing import Any

from palestra.core.untrusted import terminal_safe
from palestra.models.files import BadModel, size_of

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MOST_FIELDS = 10_000
MOST_TENSORS = 100_000
MOST_ITEMS = 20_000_000
"""Of all lists together: the largest vocabularies have 260,000 tokens and twice as many merges."""
MOST_DIMENSIONS = 4
MOST_ALIGNMENT = 1 << 20
SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
"""Kinds of values, as `struct` reads them."""
TEXT, LIST = 8, 9
KEPT = 64
"""Items of a list that are remembered; of longer ones only the length."""


def read_header(path: Path) -> tuple[dict[str, Any], dict[str, tuple[int, ...]]]:
    """The fields (of long lists only the lengths) and the shapes of all tensors.

    `BadModel` where they do not fit the file.
    """
    if size_of(path) < 24:
        raise BadModel(f"{terminal_safe(str(path))}: expected a GGUF file; it is truncated")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        try:
            return _Header(content).read()
        except (BadModel, UnicodeDecodeError, struct.error) as error:
            why = str(error) if isinstance(error, BadModel) else "a text in its header is no text"
            raise BadModel(f"{terminal_safe(str(path))}: a damaged GGUF file: {why}") from error


class _Header:
    def __init__(self, content: mmap.mmap) -> None:
        self.content, self.place, self.items = content, 0, 0

    def read(self) -> tuple[dict[str, Any], dict[str, tuple[int, ...]]]:
        if self._bytes(4) != MAGIC:
            raise BadModel("it does not begin with GGUF")
        version, tensors, fields = self._scalar("I"), self._scalar("Q"), self._scalar("Q")
        if version not in VERSIONS:
            raise BadModel(
                f"version {version}, expected {' or '.join(map(str, VERSIONS))}, little-endian"
            )
        if fields > MOST_FIELDS or tensors > MOST_TENSORS:
            raise BadModel(
                f"{fields:,} fields and {tensors:,} tensors, expected at most "
                f"{MOST_FIELDS:,} and {MOST_TENSORS:,}"
            )
        found: dict[str, Any] = {}
        for _ in range(fields):
            name = self._text()
            if name in found:
                raise BadModel(f"{_short(name)} is there twice")
            found[name] = self._value(self._scalar("I"))
        return found, self._tensors(tensors, found.get("general.alignment", 32))

    def _tensors(self, count: int, alignment: Any) -> dict[str, tuple[int, ...]]:
        if (
            not isinstance(alignment, int)
            or not 8 <= alignment <= MOST_ALIGNMENT
            or alignment & (alignment - 1)
        ):
            raise BadModel(
                f"general.alignment = {_short(alignment)}, expected a power of two from 8 "
                f"to {MOST_ALIGNMENT:,}"
            )
        shapes: dict[str, tuple[int, ...]] = {}
        ends: list[tuple[int, str]] = []
        for _ in range(count):
            name, dimensions = self._text(), self._scalar("I")
            if dimensions > MOST_DIMENSIONS:
                raise BadModel(
                    f"{_short(name)} has {dimensions} dimensions, expected at most "
                    f"{MOST_DIMENSIONS}"
                )
            if name in shapes:
                raise BadModel(f"{_short(name)} is there twice")
            shapes[name] = tuple(self._scalar("Q") for _ in range(dimensions))
            kind, offset = self._scalar("I"), self._scalar("Q")
            if offset % alignment:
                raise BadModel(
                    f"{_short(name)} begins at {offset}, which is no multiple of {alignment}"
                )
            ends.append((offset + self._bytes_of(name, shapes[name], kind), name))
        begin = -(-self.place // alignment) * alignment
        for end, name in ends:
            if begin + end > len(self.content):
                raise BadModel(
                    f"{_short(name)} ends {begin + end - len(self.content):,} bytes after the file"
                )
        return shapes

    def _bytes_of(self, name: str, shape: tuple[int, ...], kind: int) -> int:
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

        try:
            block, size = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
        except (KeyError, ValueError):
            raise BadModel(f"{_short(name)} is of an unknown kind: {kind}") from None
        if not shape or 0 in shape or shape[0] % block:
            raise BadModel(
                f"{_short(name)} has the shape {shape}, expected positive numbers, the "
                f"first a multiple of {block}"
            )
        return math.prod(shape) // block * size

    def _value(self, kind: int, depth: int = 0) -> Any:
        if kind in SCALARS:
            return self._scalar(SCALARS[kind])
        if kind == TEXT:
            return self._text()
        if kind != LIST or depth:
            raise BadModel(f"a field of an unknown kind: {kind}")
        inner, length = self._scalar("I"), self._scalar("Q")
        self.items += length
        if self.items > MOST_ITEMS:
            raise BadModel(f"lists of {self.items:,} items, expected at most {MOST_ITEMS:,}")
        if inner in SCALARS:
            raw = self._bytes(length * struct.calcsize("<" + SCALARS[inner]))
            if length > KEPT:
                return range(length)
            return list(struct.unpack(f"<{length}{SCALARS[inner]}", raw))
        kept = []
        for number in range(length):
            value = self._value(inner, depth + 1)
            if number < KEPT:
                kept.append(value)
        return kept if length <= KEPT else range(length)

    def _text(self) -> str:
        return self._bytes(self._scalar("Q")).decode(errors="surrogateescape")

    def _scalar(self, code: str) -> Any:
        return struct.unpack("<" + code, self._bytes(struct.calcsize("<" + code)))[0]

    def _bytes(self, count: int) -> bytes:
        if count > len(self.content) - self.place:
            raise BadModel(
                f"it is truncated: {count:,} bytes are wanted at {self.place:,}, and it "
                f"has {len(self.content):,}"
            )
        self.place += count
        return self.content[self.place - count : self.place]


def check_numbers(path: Path, fields: dict[str, Any], shapes: dict[str, tuple[int, ...]]) -> None:
    """That the sizes which the fields tell are those of the tensors: the library would make up what
    is missing, at any size.
    """
    name = terminal_safe(str(path))
    architecture = fields.get("general.architecture")
    if not isinstance(architecture, str) or not architecture:
        raise BadModel(f"{name}: does not say its general.architecture")
    embedding = shapes.get("token_embd.weight", ())
    if len(embedding) != 2:
        raise BadModel(f"{name}: expected a matrix token_embd.weight")
    blocks = {shape.split(".")[1] for shape in shapes if shape.startswith("blk.")}
    tokens = fields.get("tokenizer.ggml.tokens")
    told = {
        f"{architecture}.block_count": (fields.get(f"{architecture}.block_count"), len(blocks)),
        f"{architecture}.embedding_length": (
            fields.get(f"{architecture}.embedding_length"),
            embedding[0],
        ),
        "tokenizer.ggml.tokens": (
            len(tokens) if isinstance(tokens, list | range) else None,
            embedding[1],
        ),
    }
    for field, (value, held) in told.items():
        if value != held:
            raise BadModel(f"{name}: {_short(field)} = {_short(value)}: its tensors are for {held}")
    for field, value in fields.items():
        sized = field.startswith(f"{architecture}.") and field.endswith(
            ("_length", "_count", "head_count_kv", "vocab_size")
        )
        if sized and isinstance(value, int) and field != f"{architecture}.context_length":
            most = max(math.prod(shape) for shape in shapes.values())
            if not 0 <= value <= most:
                raise BadModel(
                    f"{name}: {_short(field)} = {_short(value)}: its largest tensor has "
                    f"{most:,} elements"
                )
    heads = fields.get(f"{architecture}.attention.head_count")
    if not isinstance(heads, int) or heads < 1:
        raise BadModel(
            f"{name}: {_short(architecture)}.attention.head_count = {_short(heads)}: "
            "expected a positive integer"
        )


def _short(value: Any) -> str:
    text = terminal_safe(str(value))
    return text if len(text) <= 80 else f"{text[:80]}..."
