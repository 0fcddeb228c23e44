"""Where a model is: a directory, a GGUF file, or a name on the Hugging Face hub; all of them end as
a directory.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from palestra.core.errors import ConfigError
from palestra.core.untrusted import terminal_safe
from palestra.models.files import (
    ADAPTER,
    CONFIG,
    MOST_CONFIG,
    BadModel,
    check_folder,
    read_object,
    shards_of,
    told_in_one_line,
)
from palestra.models.files import ADAPTER_WEIGHTS as WEIGHTS
from palestra.models.gguf_import import check_gguf, import_gguf

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

FILES = ("*.safetensors", "*.json", "*.jinja", "*.model", "*.txt")
"""Of a repository on the hub: weights, configurations, tokenizers, chat templates."""
NOT_THESE = ("*/*", "consolidated*")
"""The same weights in other formats."""
MOST_ADAPTERS = 4
"""On top of each other."""


def check_model(path: str) -> None:
    """What can be found wrong with `model.path` without fetching anything."""
    for number, place in enumerate(chain_of(path)):
        folder = Path(place)
        if _is(Path.is_file, folder):
            check_gguf(folder)
        elif _is(Path.is_file, folder / ADAPTER):
            _check_adapter(folder)
        elif _is(Path.is_dir, folder) and os.path.lexists(folder / CONFIG):
            check_folder(folder)
        elif not _is_hub_name(place):
            expected = (
                "expected a Hugging Face directory with a config.json, a GGUF file, or a name "
                "on the hub"
            )
            whose = f" (the base model of {terminal_safe(path)})" if number else ""
            raise ConfigError(f"model.path = {_shown(place)}: {expected}{whose}")


def chain_of(path: str) -> list[str]:
    """A model's path, and those of the base models below it: an adapter's base may have an adapter
    of its own.
    """
    chain = [path]
    while _is(Path.is_dir, Path(chain[-1])) and os.path.lexists(Path(chain[-1]) / ADAPTER):
        base = _base_of(Path(chain[-1]))
        if len(chain) > MOST_ADAPTERS:
            raise BadModel(
                f"{terminal_safe(path)}: an adapter of an adapter, more than "
                f"{MOST_ADAPTERS} deep or in a circle"
            )
        chain.append(base)
    return chain


def _is(question: Callable[[Path], bool], path: Path) -> bool:
    """A path may be one that no system knows: too long, or with a zero in it."""
    try:
        return question(path)
    except (OSError, ValueError):
        return False


def _shown(path: str) -> str:
    text = repr(terminal_safe(path))
    return text if len(text) <= 300 else f"{text[:300]}..."


def find_model(path: str) -> Path:
    """The directory of a model, fetched or converted first where it has to be.

    An adapter's has no weights but its own.
    """
    check_model(path)
    folder = Path(path)
    if folder.is_file():
        return _imported(folder)
    return folder if folder.is_dir() else _fetched(path)


def load_pretrained(
    path: str, *, device: torch.device, dtype: torch.dtype
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A model and its tokenizer; an adapter is added into the weights of its base model."""
    from palestra.models.loading import load_model
    from palestra.models.lora import merge_folder
    from palestra.models.tokenizers import load_tokenizer

    folder = find_model(path)
    if not (folder / ADAPTER).is_file():
        model, tokenizer = load_model(folder, device=device, dtype=dtype), load_tokenizer(folder)
        _check_vocabulary(path, model, tokenizer)
        return model, tokenizer
    model, _ = load_pretrained(_base_of(folder), device=device, dtype=dtype)
    with told_in_one_line(folder):
        return merge_folder(model, folder), load_tokenizer(tokenizer_folder(path))


def _check_vocabulary(
    path: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> None:
    """Refuse a tokenizer that writes texts in tokens which the model does not know.

    Added ones, such as an image's, may be unknown.
    """
    rows = next(model.get_input_embeddings().parameters()).shape[0]
    added = set(tokenizer.get_added_vocab().values()) - {tokenizer.eos_token_id}
    highest = max(
        (number for number in tokenizer.get_vocab().values() if number not in added), default=0
    )
    if highest >= rows:
        raise BadModel(
            f"{terminal_safe(path)}: its tokenizer has tokens up to {highest:,}, and the "
            f"model has {rows:,} embeddings"
        )


def tokenizer_folder(path: str) -> Path:
    """Where the tokenizer is: with an adapter, or else with its base model."""
    folder = find_model(path)
    has_own = os.path.lexists(folder / "tokenizer_config.json") or not (folder / ADAPTER).is_file()
    return folder if has_own else tokenizer_folder(_base_of(folder))


def _is_directory(folder: Path) -> bool:
    return (folder / "config.json").is_file()


def _is_hub_name(path: str) -> bool:
    return re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", path) is not None and not Path(path).exists()


def has_peft() -> bool:
    return find_spec("peft") is not None


def _check_adapter(folder: Path) -> None:
    if not has_peft():
        raise ConfigError(f"{folder}: adapters need the package peft; pip install 'palestra[lora]'")
    if not (folder / WEIGHTS).is_file():
        raise ConfigError(
            f"{folder}: an adapter without {WEIGHTS}; only safetensors are read, pickles "
            "are never opened"
        )
    from palestra.models.lora import adapter_config

    adapter_config(folder)


def _base_of(folder: Path) -> str:
    """The model that an adapter was trained on."""
    base = read_object(folder / ADAPTER, MOST_CONFIG).get("base_model_name_or_path")
    if not base or not isinstance(base, str):
        raise ConfigError(
            f"{folder / ADAPTER}: base_model_name_or_path does not say what model the "
            "adapter belongs to"
        )
    return base


def _fetched(name: str) -> Path:
    """From the hub's cache where it is whole, else from the hub."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    reason = "not all of its weights are there as safetensors"
    for how in (
        {"local_files_only": True},
        {"allow_patterns": list(FILES), "ignore_patterns": list(NOT_THESE)},
    ):
        try:
            folder = Path(snapshot_download(name, **how))
            if _is_whole(folder):
                return folder
        except (OSError, HfHubHTTPError, HFValidationError) as error:
            reason = str(error).splitlines()[0]
    raise ConfigError(
        f"model.path = {name!r}: expected a Hugging Face directory or a name on the hub; "
        f"not whole in its cache, not fetched ({reason}); "
        f"where there is a network: hf download {name}"
    )


def _is_whole(folder: Path) -> bool:
    """Whether a snapshot has all its weights: a cache may hold a tokenizer alone."""
    if (folder / ADAPTER).is_file():
        return (folder / WEIGHTS).is_file()
    index = folder / "model.safetensors.index.json"
    shards = shards_of(index) if index.is_file() else ["model.safetensors"]
    return _is_directory(folder) and all((folder / shard).is_file() for shard in shards)


def _imported(file: Path) -> Path:
    """A GGUF file as a directory, converted once and kept in the user's cache."""
    state = file.stat()
    digest = hashlib.sha256(
        f"{file.resolve()} {state.st_size} {state.st_mtime_ns}".encode()
    ).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "palestra" / "gguf"
    folder = cache / f"{file.stem}-{digest}"
    if not folder.is_dir():
        draft = folder.with_name(f".{folder.name}.{os.getpid()}")
        shutil.rmtree(draft, ignore_errors=True)
        import_gguf(file, draft)
        draft.rename(folder)
    return folder
