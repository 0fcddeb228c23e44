"""The shapes of models, which memory and time depend on."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from palestra.config.config import Config
from palestra.config.model import PretrainedModel, TinyModel
from palestra.core.errors import ConfigError
from palestra.models.files import CONFIG, MOST_CONFIG, MOST_NUMBER, read_object, shown

NEW_VOCABULARY = 2048
"""Assumed for a model that is randomly initialized at startup, since its tokenizer does not exist
yet.
"""


@dataclass(frozen=True, slots=True)
class Shape:
    """A decoder of Llama's layout."""

    name: str
    layers: int
    width: int
    inner: int
    heads: int
    kv_heads: int
    vocabulary: int
    is_tied: bool = False
    """Whether the embedding and the head share their weights."""

    @property
    def head_width(self) -> int:
        return self.width // self.heads

    @property
    def layer_parameters(self) -> int:
        attention = 2 * self.width * self.width + 2 * self.width * self.kv_heads * self.head_width
        return attention + 3 * self.width * self.inner

    @property
    def parameters(self) -> int:
        """Without norms and biases, which are less than a thousandth."""
        embeddings = 1 if self.is_tied else 2
        return self.layers * self.layer_parameters + self.vocabulary * self.width * embeddings

    @property
    def cache_bytes(self) -> int:
        """Keys and values of one token, in bfloat16."""
        return 2 * 2 * self.layers * self.kv_heads * self.head_width

    def adapter_parameters(self, rank: int) -> int:
        """The parameters of LoRA adapters on all linear modules."""
        kv = self.kv_heads * self.head_width
        sides = (
            2 * (self.width + self.width) + 2 * (self.width + kv) + 3 * (self.width + self.inner)
        )
        return self.layers * rank * sides


KNOWN = {
    "qwen2.5-1.5b": Shape("Qwen2.5-1.5B", 28, 1536, 8960, 12, 2, 151936, True),
    "qwen2.5-7b": Shape("Qwen2.5-7B", 28, 3584, 18944, 28, 4, 152064),
    "qwen2.5-32b": Shape("Qwen2.5-32B", 64, 5120, 27648, 40, 8, 152064),
    "qwen2.5-72b": Shape("Qwen2.5-72B", 80, 8192, 29568, 64, 8, 152064),
    "llama-3-8b": Shape("Llama-3-8B", 32, 4096, 14336, 32, 8, 128256),
    "llama-3-70b": Shape("Llama-3-70B", 80, 8192, 28672, 64, 8, 128256),
}


def known_shape(name: str) -> Shape | None:
    """By a name such as "Qwen/Qwen2.5-Coder-7B-Instruct" or "meta-llama/Llama-3.1-70B"."""
    words = Path(name).name.lower().replace("meta-", "")
    words = re.sub(r"-(coder|math|instruct|base|chat)\b", "", words)
    return KNOWN.get(re.sub(r"llama-3\.\d", "llama-3", words))


def shape_of(config: Config) -> Shape:
    """The shape of the model that a recipe trains."""
    if isinstance(config.model, TinyModel):
        tiny = config.model
        return Shape(
            "a randomly initialized model",
            layers=tiny.layers,
            width=tiny.width,
            inner=4 * tiny.width,
            heads=tiny.heads,
            kv_heads=tiny.heads,
            vocabulary=NEW_VOCABULARY,
            is_tied=True,
        )
    assert isinstance(config.model, PretrainedModel)
    path = Path(config.model.path)
    if (path / CONFIG).is_file():
        return _described(path.name, read_object(path / CONFIG, MOST_CONFIG))
    found = known_shape(config.model.path)
    if found is None:
        raise ConfigError(
            f"model.path = {config.model.path!r}: expected a directory with a "
            f"config.json, or a model of a known shape: {', '.join(KNOWN)}"
        )
    return found


def _described(name: str, written: dict[str, Any]) -> Shape:
    inner = written.get("text_config")
    written = inner if isinstance(inner, dict) else written
    sizes = [
        "num_hidden_layers",
        "hidden_size",
        "intermediate_size",
        "num_attention_heads",
        "vocab_size",
    ]
    if written.get("num_key_value_heads") is not None:
        sizes.append("num_key_value_heads")
    for size in sizes:
        if size not in written:
            raise ConfigError(
                f"model.path = {name!r}: its config.json does not say {size!r}, which a plan needs"
            )
        value = written[size]
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST_NUMBER:
            raise ConfigError(
                f"model.path = {name!r}: its config.json has {size} = {shown(value)}; "
                "expected a positive integer"
            )
    heads = written["num_attention_heads"]
    return Shape(
        name,
        layers=written["num_hidden_layers"],
        width=written["hidden_size"],
        inner=written["intermediate_size"],
        heads=heads,
        kv_heads=written.get("num_key_value_heads") or heads,
        vocabulary=written["vocab_size"],
        is_tied=bool(written.get("tie_word_embeddings", False)),
    )
