"""How the learner runs a model's layers: compiled, or keeping less for the way back.

Only where a gradient is wanted: the engine, which shares the layers, wants none and runs them as
they are.
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
    """The blocks that a model is a pile of."""
    return [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]


def rework_layers(model: PreTrainedModel, *, compiled: bool, recomputed: bool) -> None:
    """Change in place how layers run where a gradient is wanted.

    `recomputed`: a layer keeps its input alone and computes all else again on the way back. Not by
    transformers' own switch, which acts only in training mode, and there dropout and the loss of
    the engine's cache come with it.
    """
    layers = layers_of(model)
    if not layers:
        raise ValueError(
            f"{type(model).__name__} has no layers that could be compiled or computed again"
        )
    if compiled:
        keep_attention_eager()
    forward_of = {
        kind: torch.compile(kind.forward, dynamic=True) if compiled else kind.forward
        for kind in {type(x) for x in layers}
    }

    def forward(layer: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return type(layer).forward(layer, *args, **kwargs)
        run = partial(forward_of[type(layer)], layer)
        if recomputed:
            return checkpoint(run, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)
        return run(*args, **kwargs)

    for layer in layers:
        layer.forward = MethodType(forward, layer)  # bound: a copy of the model runs its own layers
