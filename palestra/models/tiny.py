"""A small model with random weights, for runs that begin from nothing."""

from __future__ import annotations

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from palestra.models.loading import prepare_model


def tiny_model(
    *,
    vocabulary: int,
    width: int,
    layers: int,
    heads: int,
    context: int,
    stop_id: int,
    seed: int,
    device: torch.device,
    dtype: torch.dtype = torch.float32,
) -> PreTrainedModel:
    """A small model in Llama's layout with random weights, the same for the same seed."""
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=4 * width * 2 // 3 // 8 * 8,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=context,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=stop_id,
        pad_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    return prepare_model(model.to(device, dtype))  # type: ignore[arg-type]
