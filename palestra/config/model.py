"""The model that a run trains: tiny and randomly initialized, or pretrained."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveInt, model_validator

from palestra.core.registry import Registry
from palestra.core.settings import Settings


class TinyModel(Settings):
    """A small model, randomly initialized at startup."""

    kind: Literal["tiny"] = "tiny"
    width: PositiveInt = 128
    """Hidden size."""
    layers: PositiveInt = 3
    """Number of transformer layers."""
    heads: PositiveInt = 4
    """Number of attention heads."""
    tokenizer: Literal["words", "bpe", "bytes"] = "words"
    """"words": one token per word of the environment's vocabulary. "bpe": byte-pair encoding
    trained on the environment's texts. "bytes": one token per byte.
    """
    vocab_size: int | None = Field(default=None, ge=512)
    """Vocabulary size of tokenizer = "bpe". Default: 2048."""

    @model_validator(mode="after")
    def _divisible(self) -> TinyModel:
        if self.width % (2 * self.heads):
            raise ValueError(
                f"width ({self.width}) must be a multiple of twice the heads ({self.heads})"
            )
        return self

    @model_validator(mode="after")
    def _no_idle_vocab_size(self) -> TinyModel:
        if self.vocab_size is not None and self.tokenizer != "bpe":
            raise ValueError(
                f"vocab_size = {self.vocab_size}: has no effect with tokenizer = "
                f"{self.tokenizer!r}; did you mean 'bpe'?"
            )
        return self


class PretrainedModel(Settings):
    """A pretrained model. `model = "path"` is the short form."""

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
