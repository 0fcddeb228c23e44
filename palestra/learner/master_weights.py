"""Weights in full precision behind a model that computes in less."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import Parameter

from palestra.models.weights import fp32_or_wider


class MasterWeights:
    """An exact copy of each working weight; weights that are exact already are their own.

    Steps of a small learning rate vanish in bfloat16, and so do small gradients that are added to
    large ones: both are done here.
    """

    def __init__(self, working: dict[str, Parameter]) -> None:
        self.full_precision = {
            name: p if p.dtype == fp32_or_wider(p.dtype) else Parameter(p.detach().float())
            for name, p in working.items()
        }
        self._pairs = [
            (p, self.full_precision[name])
            for name, p in working.items()
            if p is not self.full_precision[name]
        ]

    def accumulate_grads(self) -> None:
        """Take the gradients of the working weights over, added up exactly."""
        totals, gradients = [], []
        for working, exact in self._pairs:
            if working.grad is not None:
                exact.grad = torch.zeros_like(exact) if exact.grad is None else exact.grad
                totals.append(exact.grad)
                gradients.append(working.grad)
                working.grad = None
        if totals:
            torch._foreach_add_(totals, gradients)

    def add_to(self, totals: dict[str, Tensor]) -> None:
        """A part of the batch ends here: its gradients are added to those of the parts before, and
        the next part begins with none.
        """
        for name, parameter in self.full_precision.items():
            if parameter.grad is not None:
                totals[name] = (
                    parameter.grad if name not in totals else totals[name] + parameter.grad
                )
                parameter.grad = None

    def set_grads(self, totals: dict[str, Tensor]) -> None:
        """Have these gradients."""
        for name, gradient in totals.items():
            self.full_precision[name].grad = gradient

    @torch.no_grad()
    def copy_to_model(self) -> None:
        """Round the exact weights into the working ones."""
        if self._pairs:
            torch._foreach_copy_(
                [working for working, _ in self._pairs], [exact for _, exact in self._pairs]
            )
