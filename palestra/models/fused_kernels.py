"""Triton kernels that take the place of a model's own normalization and gate: the same numbers,
read and written once.

Importing this needs Triton. `fuse` changes a model in place; where a model's modules are not of a
known kind they stay as they are.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from types import MethodType
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

GRADIENT_ROWS = 256
"""Programs that share the rows of a normalization's gradient; each adds up its own share of the
weight's.
"""


@triton.jit
def _norm_forward(x, weight, out, scales, eps, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    row, column = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    inside = column < WIDTH
    value = tl.load(x + row * WIDTH + column, mask=inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(value * value, 0) / WIDTH + eps)
    tl.store(scales + row, scale)
    normal = (value * scale).to(out.dtype.element_ty)
    tl.store(
        out + row * WIDTH + column,
        normal * tl.load(weight + column, mask=inside, other=0.0),
        mask=inside,
    )


@triton.jit
def _norm_backward(
    x,
    weight,
    scales,
    gradient,
    to_x,
    to_weight,
    rows,
    share,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    program, column = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    w = tl.load(weight + column, mask=column < WIDTH, other=0.0).to(tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    for number in range(0, share):
        row = program * share + number
        inside = (column < WIDTH) & (row < rows)
        place = row * WIDTH + column
        value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
        g = tl.load(gradient + place, mask=inside, other=0.0).to(tl.float32)
        scale = tl.load(scales + row, mask=row < rows, other=0.0)
        normal = value * scale
        total += g * normal
        weighted = g * w
        mean = tl.sum(weighted * normal, 0) / WIDTH
        tl.store(
            to_x + place,
            (scale * (weighted - normal * mean)).to(to_x.dtype.element_ty),
            mask=inside,
        )
    tl.store(to_weight + program * WIDTH + column, total, mask=column < WIDTH)


@triton.jit
def _gate_forward(gate, up, out, count, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    g = tl.load(gate + place, mask=place < count, other=0.0).to(tl.float32)
    silu = (g * tl.sigmoid(g)).to(out.dtype.element_ty)
    tl.store(
        out + place, silu * tl.load(up + place, mask=place < count, other=0.0), mask=place < count
    )


@triton.jit
def _gate_backward(gate, up, gradient, to_gate, to_up, count, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    g = tl.load(gate + place, mask=inside, other=0.0).to(tl.float32)
    u = tl.load(up + place, mask=inside, other=0.0).to(tl.float32)
    d = tl.load(gradient + place, mask=inside, other=0.0).to(tl.float32)
    s = tl.sigmoid(g)
    tl.store(to_up + place, (d * g * s).to(to_up.dtype.element_ty), mask=inside)
    tl.store(
        to_gate + place, (d * u * s * (1 + g * (1 - s))).to(to_gate.dtype.element_ty), mask=inside
    )


class RMSNorm(torch.autograd.Function):
    """x / sqrt(mean x^2 + eps) * weight (arXiv:1910.07467), with the mean in float32."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        x = x.contiguous()
        width = x.shape[-1]
        out, scales = torch.empty_like(x), torch.empty(x.numel() // width, device=x.device)
        _norm_forward[(len(scales),)](
            x, weight, out, scales, eps, WIDTH=width, BLOCK=triton.next_power_of_2(width)
        )
        ctx.save_for_backward(x, weight, scales)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight, scales = ctx.saved_tensors
        rows, width = len(scales), x.shape[-1]
        programs = min(GRADIENT_ROWS, rows)
        to_x, to_weight = torch.empty_like(x), torch.empty(programs, width, device=x.device)
        _norm_backward[(programs,)](
            x, weight, scales, gradients[0].contiguous(), to_x, to_weight, rows, triton.cdiv(rows,
            programs),
            WIDTH=width, BLOCK=triton.next_power_of_2(width),
        )  # fmt: skip
        return to_x, to_weight.sum(0).to(weight.dtype), None


class Gate(torch.autograd.Function):
    """silu(gate) * up."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        gate, up = gate.contiguous(), up.contiguous()
        ctx.save_for_backward(gate, up)
        out = torch.empty_like(gate)
        _gate_forward[(triton.cdiv(gate.numel(), 1024),)](gate, up, out, gate.numel(), BLOCK=1024)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        gate, up = ctx.saved_tensors
        to_gate, to_up = torch.empty_like(gate), torch.empty_like(up)
        blocks = (triton.cdiv(gate.numel(), 1024),)
        _gate_backward[blocks](
            gate, up, gradients[0].contiguous(), to_gate, to_up, gate.numel(), BLOCK=1024
        )
        return to_gate, to_up


_SILU = ("SiLU", "SiLUActivation")


def fuse(model: nn.Module) -> int:
    """Let a model's normalizations and gated networks run by these kernels. Returns how many do."""
    changed = 0
    for module in model.modules():
        kind = type(module).__name__
        if kind in ("LlamaRMSNorm", "Qwen2RMSNorm", "Qwen3RMSNorm", "MistralRMSNorm"):
            module.forward = MethodType(_norm, module)
        elif (
            kind in ("LlamaMLP", "Qwen2MLP", "Qwen3MLP", "MistralMLP")
            and type(module.act_fn).__name__ in _SILU
        ):
            module.forward = MethodType(_gated, module)
        else:
            continue
        changed += 1
    return changed


def _norm(module: Any, x: Tensor) -> Tensor:
    normal: Tensor = RMSNorm.apply(x, module.weight, module.variance_epsilon)
    return normal


def _gated(module: Any, x: Tensor) -> Tensor:
    out: Tensor = module.down_proj(Gate.apply(module.gate_proj(x), module.up_proj(x)))
    return out
