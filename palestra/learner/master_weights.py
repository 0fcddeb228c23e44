"""Master weights in float32 behind a model that computes in bfloat16."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import Parameter

from palestra.models.weights import fp32_or_wider


class MasterWeights:
    """A float32 copy of each low-precision parameter; other parameters are their own masters.

    Updates of a small learning rate vanish in bfloat16, and so do small gradients added to large
    ones: both are done in float32 here.
    """

    def __init__(self, parameters: dict[str, Parameter]) -> None:
        self.full_precision: dict[str, Parameter] = {}
        self._pairs: list[tuple[Parameter, Parameter]] = []
        """(low precision, master)"""
        for name, parameter in parameters.items():
            if parameter.dtype == fp32_or_wider(parameter.dtype):
                self.full_precision[name] = parameter
            else:
                master = Parameter(parameter.detach().float())
                self.full_precision[name] = master
                self._pairs.append((parameter, master))

    def accumulate_grads(self) -> None:
        """Move the gradients of the low-precision parameters to the masters, adding in float32."""
        totals, gradients = [], []
        for parameter, master in self._pairs:
            if parameter.grad is not None:
                if master.grad is None:
                    master.grad = torch.zeros_like(master)
                totals.append(master.grad)
                gradients.append(parameter.grad)
                parameter.grad = None
        if totals:
            torch._foreach_add_(totals, gradients)

    def add_to(self, totals: dict[str, Tensor]) -> None:
        """Add the gradients of this accumulation part to `totals`, and reset them."""
        for name, parameter in self.full_precision.items():
            if parameter.grad is not None:
                if name in totals:
                    totals[name] = totals[name] + parameter.grad
                else:
                    totals[name] = parameter.grad
                parameter.grad = None

    def set_grads(self, totals: dict[str, Tensor]) -> None:
        """Set the gradients of the masters."""
        for name, gradient in totals.items():
            self.full_precision[name].grad = gradient

    @torch.no_grad()
    def copy_to_model(self) -> None:
        """Round the master weights into the model's parameters."""
        if self._pairs:
            parameters, masters = zip(*self._pairs, strict=True)
            torch._foreach_copy_(parameters, masters)
