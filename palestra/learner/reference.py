"""The model as it was before training: what KL is measured against, and what AgentEvol goes back
to.
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
    """A copy of the whole model or, where only an adapter learns or weights are shared between
    ranks, of these weights alone.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self._kept = _clones(_changing(model))
        self._model = None if self._kept else copy.deepcopy(model).requires_grad_(False)

    @contextmanager
    def activate(self, model: PreTrainedModel) -> Iterator[PreTrainedModel]:
        """The model as it was.

        Where only weights were kept, `model` itself is that one for a while.
        """
        if self._model is not None:
            yield self._model
            return
        now = _clones(_changing(model))
        self.restore(model)
        try:
            yield model
        finally:
            _set(model, now)

    def restore(self, model: PreTrainedModel) -> None:
        """Make `model` what it was."""
        if self._model is not None:
            model.load_state_dict(self._model.state_dict())
        else:
            _set(model, self._kept)


def _changing(model: PreTrainedModel) -> dict[str, nn.Parameter]:
    """What differs from the reference, where that is kept as weights: the adapter's, or this rank's
    shares of all.
    """
    return adapter_of(model) or {
        name: p for name, p in model.named_parameters() if isinstance(p, DTensor)
    }


def _clones(parameters: Mapping[str, nn.Parameter]) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in parameters.items()}


@torch.no_grad()
def _set(model: PreTrainedModel, weights: Mapping[str, Tensor]) -> None:
    for name, parameter in _changing(model).items():
        parameter.copy_(weights[name])
