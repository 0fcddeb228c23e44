"""torch.compile and activation checkpointing of a model's layers.

Both apply only when gradients are enabled: the engine shares the layers and runs them unchanged.
"""

from __future__ import annotations

from functools import partial
from types import MethodType
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from palestra.models.attention import keep_attention_eager


def layers_of(model: PreTrainedModel) -> list[nn.Module]:
    """The transformer layers of a model."""
    return [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]


def rework_layers(model: PreTrainedModel, *, compiled: bool, recomputed: bool) -> None:
    """Change in place how layers run when gradients are enabled.

    `recomputed`: activation checkpointing. A layer keeps only its input and recomputes everything
    else in the backward pass. transformers' own switch acts only in training mode, which would also
    enable dropout and disable the engine's cache.
    """
    layers = layers_of(model)
    if not layers:
        raise ValueError(
            f"{type(model).__name__} has no layers that could be compiled or computed again"
        )
    if compiled:
        keep_attention_eager()
    forward_of: dict[type[nn.Module], Any] = {}
    for layer in layers:
        kind = type(layer)
        if kind not in forward_of:
            # Compiled once per class: all layers of a class share the code.
            forward = torch.compile(kind.forward, dynamic=True) if compiled else kind.forward
            forward_of[kind] = forward

    def run_layer(layer: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return type(layer).forward(layer, *args, **kwargs)
        run = partial(forward_of[type(layer)], layer)
        if recomputed:
            return checkpoint(run, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)
        return run(*args, **kwargs)

    for layer in layers:
        # A bound method, which deepcopy rebinds: a copy of the model runs its own layers.
        layer.forward = MethodType(run_layer, layer)
