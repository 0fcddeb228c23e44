"""The model as it was before training: what KL is measured against, and what AgentEvol goes back to."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager

from transformers import PreTrainedModel

from palestra.lora import adapter_of, set_adapter


class Reference:
    """A copy of the whole model or, where only an adapter learns, of the adapter alone."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._adapter = {name: parameter.detach().clone() for name, parameter in adapter_of(model).items()}
        self._model = None if self._adapter else copy.deepcopy(model).requires_grad_(False)

    @contextmanager
    def shown_by(self, model: PreTrainedModel) -> Iterator[PreTrainedModel]:
        """The model as it was. With an adapter, `model` itself is that one for a while."""
        if self._model is not None:
            yield self._model
            return
        now = {name: parameter.detach().clone() for name, parameter in adapter_of(model).items()}
        self.restore(model)
        try:
            yield model
        finally:
            set_adapter(model, now)

    def restore(self, model: PreTrainedModel) -> None:
        """Make `model` what it was."""
        if self._model is not None:
            model.load_state_dict(self._model.state_dict())
        else:
            set_adapter(model, self._adapter)
