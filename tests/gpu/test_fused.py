"""Kernels that stand in for a model's modules compute what the modules compute, forwards and
backwards.
"""

import os
from importlib.util import find_spec

import pytest
import torch

CAN_RUN = find_spec("triton") is not None and (
    torch.cuda.is_available() or os.environ.get("TRITON_INTERPRET") == "1"
)
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not CAN_RUN, reason="needs CUDA, or Triton with TRITON_INTERPRET=1"),
]

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def gradients(function, *inputs):
    inputs = [x.clone().requires_grad_() for x in inputs]
    out = function(*inputs)
    out.backward(torch.linspace(-1, 1, out.numel(), device=DEVICE).view_as(out))
    return [out.detach(), *(x.grad for x in inputs)]


def inputs(*shapes):
    rng = torch.Generator().manual_seed(0)
    return [torch.randn(*shape, generator=rng).to(DEVICE) for shape in shapes]


@pytest.mark.parametrize("rows", [1, 7, 300])
def test_normalization(rows):
    from palestra.models.fused_kernels import RMSNorm

    def plain(x, weight):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight

    data = inputs((rows, 24), (24,))
    for found, expected in zip(
        gradients(lambda x, w: RMSNorm.apply(x, w, 1e-6), *data),
        gradients(plain, *data),
        strict=True,
    ):
        assert torch.allclose(found, expected, atol=1e-4, rtol=1e-4)


def test_gate():
    from palestra.models.fused_kernels import Gate

    data = inputs((9, 133), (9, 133))
    for found, expected in zip(
        gradients(Gate.apply, *data),
        gradients(lambda g, u: torch.nn.functional.silu(g) * u, *data),
        strict=True,
    ):
        assert torch.allclose(found, expected, atol=1e-5, rtol=1e-4)
