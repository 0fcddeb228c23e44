"""The reference model, a copy from before training: for KL divergences, and for AgentEvol, which
resets the weights to it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from palestra.models.lora import adapter_of


class Reference:
    """A copy of the whole model; with an adapter or sharded weights, of these weights alone."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._weights = _clones(_swapped(model))
        self._model = None if self._weights else copy.deepcopy(model).requires_grad_(False)

    @contextmanager
    def activate(self, model: PreTrainedModel) -> Iterator[PreTrainedModel]:
        """The reference model; if only weights were copied, `model` with these swapped in."""
        if self._model is not None:
            yield self._model
            return
        current = _clones(_swapped(model))
        self.restore(model)
        try:
            yield model
        finally:
            _set(model, current)

    def restore(self, model: PreTrainedModel) -> None:
        """Reset the weights of `model` to the reference."""
        if self._model is not None:
            model.load_state_dict(self._model.state_dict())
        else:
            _set(model, self._weights)


def _swapped(model: PreTrainedModel) -> dict[str, nn.Parameter]:
    """The parameters that are copied instead of the whole model: the adapter's, or this rank's
    shards of all; none for a model that is copied whole.
    """
    adapter = adapter_of(model)
    if adapter:
        return adapter
    return {name: p for name, p in model.named_parameters() if isinstance(p, DTensor)}


def _clones(parameters: Mapping[str, nn.Parameter]) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in parameters.items()}


@torch.no_grad()
def _set(model: PreTrainedModel, weights: Mapping[str, Tensor]) -> None:
    for name, parameter in _swapped(model).items():
        parameter.copy_(weights[name])
