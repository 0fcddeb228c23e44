"""Metadata of a model's files, read with bounds before any library opens them. Reading them runs no
code.

Models are untrusted: files may be links, pipes or endless, numbers may be absurd, and names may
lead out of the folder.
"""

from __future__ import annotations

import math
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from palestra.core.confined import in_one_line
from palestra.core.errors import ConfigError, UserError
from palestra.core.files import CannotRead, kind_of, read_json
from palestra.core.untrusted import terminal_safe

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
ADAPTER, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"

READ = (".json", ".jinja", ".model", ".txt", ".safetensors", ".tiktoken")
"""Endings of files that are read."""
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".msgpack", ".h5")
MOST_FILES = 10_000
MOST_CONFIG = 4 << 20
MOST_TEXT = 256 << 20
"""Bytes of any file that is not weights: the largest tokenizers have 35 MB."""
MOST_INDEX = 24 << 20
MOST_HEADER = 32 << 20
"""Bytes: the 90,000 tensors of a large mixture of experts take 11 MB."""
MOST_SHARDS = 4096
MOST_TENSORS = 500_000
MOST_PILED = 4096
"""Layers, blocks or experts."""
MOST_NUMBER = 1 << 40
MOST_DEPTH = 50

PILED = re.compile(
    r"(layer|block|expert|depth|stage|stack|codebook)s?$|^n_layer|^num_.*(layers|blocks|experts)"
)
AT_LEAST_ONE = (
    "num_hidden_layers",
    "n_layer",
    "hidden_size",
    "n_embd",
    "num_attention_heads",
    "n_head",
    "vocab_size",
)


class BadModel(UserError, ValueError):
    """A model that cannot be used as it is, in one line."""


@contextmanager
def told_in_one_line(path: Path | str) -> Iterator[None]:
    """Whatever a library raises over a model is an error of the model, named with its place."""
    try:
        yield
    except (BadModel, ConfigError):
        raise
    except BaseException as error:
        # A panic in a Rust library does not derive from Exception.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise BadModel(
            f"{terminal_safe(str(path))}: cannot be loaded: {in_one_line(error)}"
        ) from error


@dataclass(frozen=True, slots=True)
class Stored:
    """What the files of weights hold."""

    files: tuple[Path, ...]
    shapes: dict[str, tuple[int, ...]]

    @property
    def elements(self) -> int:
        return sum(math.prod(shape) for shape in self.shapes.values())


def check_folder(folder: Path) -> Stored:
    """Refuse a directory that no library should be let loose on, and tell what weights it holds."""
    check_entries(folder)
    config = read_object(folder / CONFIG, MOST_CONFIG)
    _check_keys(folder / CONFIG, config)
    _check_numbers(folder / CONFIG, config)
    stored = stored_in(weight_files(folder))
    _check_piles(folder / CONFIG, config, len(stored.shapes))
    return stored


def check_entries(folder: Path) -> None:
    """That what will be read are regular files of a sane size, or links to such."""
    with os.scandir(folder) as entries:
        for number, entry in enumerate(entries, 1):
            if number > MOST_FILES:
                raise BadModel(f"{folder}: has more than {MOST_FILES:,} files")
            if entry.name.endswith(READ):
                size = size_of(Path(entry.path))
                if not entry.name.endswith(".safetensors") and size > MOST_TEXT:
                    raise BadModel(
                        f"{_name(entry.path)}: has {size:,} bytes, expected at most {MOST_TEXT:,}"
                    )


def size_of(path: Path) -> int:
    """Of a regular file; others are refused, and links that lead to others."""
    try:
        state = path.stat()
    except OSError as error:
        raise BadModel(f"{_name(path)}: cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(state.st_mode):
        raise BadModel(
            f"{_name(path)}: expected a regular file, or a link to one; it is "
            f"{kind_of(state.st_mode)}"
        )
    return state.st_size


def read_object(path: Path, most_bytes: int = MOST_TEXT) -> dict[str, Any]:
    """A JSON object from a regular file, or a link to one, of at most so many bytes."""
    try:
        content = read_json(path, most_bytes=most_bytes)
    except CannotRead as error:
        raise BadModel(terminal_safe(str(error))) from error
    if not isinstance(content, dict):
        raise BadModel(f"{_name(path)}: expected a JSON object, came {type(content).__name__}")
    return content


def _check_keys(path: Path, config: dict[str, Any]) -> None:
    """Refuse settings by which a library would fetch code, or weights from elsewhere."""
    for key, value in _walk(path, config):
        if key.endswith("implementation") or key.endswith("implementation_internal"):
            if not re.fullmatch(r"[\w|]*", str(value or "")):
                raise BadModel(
                    f"{_name(path)}: {key} = {shown(value)}: code from elsewhere is never run"
                )
        elif key == "use_kernels" and value:
            raise BadModel(
                f"{_name(path)}: {key} = {shown(value)}: code from elsewhere is never run"
            )
    if "transformers_weights" in config:
        raise BadModel(
            f"{_name(path)}: transformers_weights is not supported; expected {WEIGHTS} or {INDEX}"
        )


def _check_numbers(path: Path, config: dict[str, Any]) -> None:
    for key, value in _walk(path, config):
        if isinstance(value, bool) or not isinstance(value, int):
            if key in AT_LEAST_ONE and value is not None and not isinstance(value, list | dict):
                raise BadModel(
                    f"{_name(path)}: {key} = {shown(value)}: expected a positive integer"
                )
            continue
        if (key in AT_LEAST_ONE and value < 1) or abs(value) > MOST_NUMBER:
            raise BadModel(
                f"{_name(path)}: {key} = {shown(value)}: expected an integer from 1 to "
                f"{MOST_NUMBER:,}"
            )
        if PILED.search(key) and value > MOST_PILED:
            raise BadModel(
                f"{_name(path)}: {key} = {shown(value)}: expected at most {MOST_PILED:,}"
            )


def _check_piles(path: Path, config: dict[str, Any], tensors: int) -> None:
    """A layer without a tensor is none."""
    for key in ("num_hidden_layers", "n_layer"):
        layers = config.get(key)
        if isinstance(layers, int) and layers > tensors:
            raise BadModel(
                f"{_name(path)}: {key} = {layers}: its files have no more than {tensors} tensors"
            )


def _walk(path: Path, config: Any, key: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    if depth > MOST_DEPTH:
        raise BadModel(f"{_name(path)}: is nested more than {MOST_DEPTH} deep")
    yield key, config
    if isinstance(config, dict):
        for inner, value in config.items():
            yield from _walk(path, value, inner, depth + 1)
    elif isinstance(config, list):
        for value in config:
            yield from _walk(path, value, "", depth + 1)


def weight_files(folder: Path) -> list[Path]:
    """The files with weights, as transformers chooses them.

    Only safetensors: others are pickles, and reading those runs code.
    """
    if os.path.lexists(folder / WEIGHTS):
        return [folder / WEIGHTS]
    if os.path.lexists(folder / INDEX):
        return [folder / shard for shard in shards_of(folder / INDEX)]
    pickles = sorted(entry.name for entry in os.scandir(folder) if entry.name.endswith(PICKLES))
    found = f"; {terminal_safe(pickles[0])} is a pickle, and is never opened" if pickles else ""
    raise BadModel(f"{folder}: expected {WEIGHTS} or {INDEX}: only safetensors are read{found}")


def shards_of(index: Path) -> list[str]:
    """The files that an index names, all of them in its folder."""
    weight_map = read_object(index, MOST_INDEX).get("weight_map")
    if not isinstance(weight_map, dict) or not all(
        isinstance(shard, str) for shard in weight_map.values()
    ):
        raise BadModel(f"{_name(index)}: expected a weight_map from names to files")
    shards = sorted(set(weight_map.values()))
    if len(shards) > MOST_SHARDS:
        raise BadModel(
            f"{_name(index)}: names {len(shards):,} files, expected at most {MOST_SHARDS:,}"
        )
    for shard in shards:
        if not shard.endswith(".safetensors") or "/" in shard or "\\" in shard or "\0" in shard:
            raise BadModel(
                f"{_name(index)}: names {shown(shard)}: expected the name of a "
                ".safetensors file beside it"
            )
    return shards


def stored_in(files: list[Path]) -> Stored:
    """From the headers alone."""
    from safetensors import safe_open

    shapes: dict[str, tuple[int, ...]] = {}
    for path in files:
        _check_header(path)
        with told_in_one_line(path), safe_open(path, "np") as file:
            for name in file.keys():  # noqa: SIM118  it is not a dictionary
                if name in shapes:
                    raise BadModel(f"{_name(path)}: {shown(name)} is in another file, too")
                shapes[name] = tuple(file.get_slice(name).get_shape())
        if len(shapes) > MOST_TENSORS:
            raise BadModel(f"{_name(path)}: more than {MOST_TENSORS:,} tensors")
    return Stored(tuple(files), shapes)


def _check_header(path: Path) -> None:
    size = size_of(path)
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
    if size < 10 or length > size - 8:
        raise BadModel(f"{_name(path)}: is truncated: {size:,} bytes, and a header of {length:,}")
    if length > MOST_HEADER:
        raise BadModel(
            f"{_name(path)}: has a header of {length:,} bytes, expected at most {MOST_HEADER:,}"
        )


def _name(path: Path | str) -> str:
    return terminal_safe(str(path))


def shown(value: Any) -> str:
    """An untrusted value, short and safe to print."""
    if isinstance(value, int) and value.bit_length() >= 128:
        return "a number of many digits"
    text = terminal_safe(repr(value))
    return text if len(text) <= 80 else f"{text[:80]}..."
