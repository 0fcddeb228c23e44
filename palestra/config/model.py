"""Which model a run trains: a new one, or one that has learned something already."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveInt, model_validator

from palestra.core.registry import Registry
from palestra.core.settings import Settings


class TinyModel(Settings):
    """A small model with random weights, made on the spot."""

    kind: Literal["tiny"] = "tiny"
    width: PositiveInt = 128
    """The hidden size."""
    layers: PositiveInt = 3
    """Transformer layers."""
    heads: PositiveInt = 4
    """Attention heads of a layer."""
    tokenizer: Literal["words", "bpe", "bytes"] = "words"
    """One token per word of the environment's own vocabulary, per piece of a word as learned from
    its texts, or per byte.
    """
    vocab_size: int | None = Field(default=None, ge=512)
    """How many, with tokenizer = "bpe"; 2,048 where not set."""

    @model_validator(mode="after")
    def _divisible(self) -> TinyModel:
        if self.width % (2 * self.heads):
            raise ValueError(
                f"width ({self.width}) must be a multiple of twice the heads ({self.heads})"
            )
        return self

    @model_validator(mode="after")
    def _no_idle_pieces(self) -> TinyModel:
        if self.vocab_size is not None and self.tokenizer != "bpe":
            raise ValueError(
                f"vocab_size = {self.vocab_size}: has no effect with tokenizer = "
                f"{self.tokenizer!r}; did you mean 'bpe'?"
            )
        return self


class PretrainedModel(Settings):
    """A model that has learned something already. `model = "path"` says the same in short."""

    kind: Literal["pretrained"] = "pretrained"
    path: str
    """A Hugging Face directory, a name on the hub such as "Qwen/Qwen2.5-1.5B-Instruct", a GGUF
    file, or an adapter's directory.
    """


models: Registry[type[Settings]] = Registry(
    "models",
    {
        "tiny": "palestra.config.model:TinyModel",
        "pretrained": "palestra.config.model:PretrainedModel",
    },
    base="palestra.core.settings:Settings",
)
