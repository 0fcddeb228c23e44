"""Loading a causal language model, and verifying that it computes the same with Palestra's
attention as with its own.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import MethodType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.utils import logging as transformers_logging

from palestra.core.untrusted import terminal_safe
from palestra.models.attention import ATTENTION, PackedLayout, hidden_states
from palestra.models.files import CONFIG, BadModel, Stored, check_folder, told_in_one_line

log = logging.getLogger(__name__)
transformers_logging.disable_progress_bar()  # a bar per checkpoint would break the display

LOCAL: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
"""Nothing is fetched, no code of a model's is run, and nobody is asked whether it may be."""
MOST_PACKED = 16
"""Parameters in an element of a quantized checkpoint."""
MOST_BUFFERS = 4 << 30
"""Bytes of a model's tables, such as masks over all positions."""


def load_model(path: Path | str, *, device: torch.device, dtype: torch.dtype) -> PreTrainedModel:
    """A Hugging Face directory as a model that uses our attention, proven to compute what the
    original does.

    Only safetensors are read and no code of the directory's own is run; `BadModel` where that is
    not enough.
    """
    stored = check_folder(Path(path))
    with told_in_one_line(path), quiet():
        config = AutoConfig.from_pretrained(path, **LOCAL)
        _check_size(path, config, stored)
        others: dict[str, Any] = {
            "use_safetensors": True,
            "output_loading_info": True,
            "ignore_mismatched_sizes": True,
        }
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            path, config=config, dtype=dtype, **others, **LOCAL
        )
        model, told = loaded
        check_loading(path, told)
        return prepare_model(model.to(device, dtype))


def check_loading(path: Path | str, told: dict[str, Any]) -> None:
    """Refuse weights that transformers made up, because they were not there or had other shapes."""
    for name, stored, expected in sorted(told["mismatched_keys"]):
        shapes = f"{list(stored)}; {CONFIG} describes {list(expected)}"
        raise BadModel(
            f"{terminal_safe(str(path))}: its files hold {terminal_safe(name)} with the "
            f"shape {shapes}"
        )
    if missing := sorted(told["missing_keys"]):
        more = f" and {len(missing) - 1} more" if missing[1:] else ""
        raise BadModel(
            f"{terminal_safe(str(path))}: its files hold no {terminal_safe(missing[0])}{more}"
        )


def _check_size(path: Path | str, config: PretrainedConfig, stored: Stored) -> None:
    """Refuse a configuration of a larger model than its files hold: the rest would be made up, at
    any size.
    """
    with torch.device("meta"):
        described = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    place = terminal_safe(str(Path(path) / CONFIG))
    tables = sum(buffer.nbytes for buffer in described.buffers())
    if tables > MOST_BUFFERS:
        raise BadModel(
            f"{place}: describes tables of {tables:,} bytes, expected at most {MOST_BUFFERS:,}"
        )
    parameters = sum(parameter.numel() for parameter in described.parameters())
    packed = 1 if getattr(config, "quantization_config", None) is None else MOST_PACKED
    if parameters > stored.elements * packed:
        raise BadModel(
            f"{place}: describes {parameters:,} parameters, and the files hold {stored.elements:,}"
        )


@contextmanager
def quiet() -> Iterator[None]:
    """Transformers prints tables of what is wrong with a model;
    what counts of it is in the error.
    """
    level = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)


def prepare_model(model: PreTrainedModel) -> PreTrainedModel:
    """Switch to our attention, and refuse a model whose results that would change."""
    model.eval()
    if "position_ids" not in inspect.signature(model.base_model.forward).parameters:
        raise ValueError(
            f"{type(model).__name__} takes no position_ids; only models with explicit "
            "positions are supported"
        )
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, model.config.vocab_size, (1, 12), generator=generator).to(model.device)
    with torch.no_grad():
        expected = torch.cat([model(ids[:, :5]).logits, model(ids[:, 5:]).logits], dim=1)
        model.set_attn_implementation(ATTENTION)
        if model.dtype == torch.float64:
            _norms_in_float64(model)
        elif model.device.type == "cuda" and find_spec("liger_kernel") is not None:
            from palestra.models.fused_layers import fuse_layers

            log.debug("%d modules run by Liger's kernels", fuse_layers(model))
        elif model.device.type == "cuda":
            log.info("learning is faster with Liger's kernels: pip install 'palestra[gpu]'")
        positions = torch.tensor([[*range(5), *range(7)]], device=model.device)
        hidden = hidden_states(model, ids, positions, layout=PackedLayout([5, 7]))
        found = model.get_output_embeddings()(hidden)
    if not expected.isfinite().all():
        raise ValueError(
            f"{type(model).__name__}: its weights give logits that are no finite numbers"
        )
    tolerance = 0.05 if model.dtype == torch.bfloat16 else 1e-3
    error = ((found - expected).abs().max() / expected.abs().max()).item()
    if not error < tolerance:
        raise ValueError(
            f"{type(model).__name__} gives other results with packed attention (relative "
            f"difference {error:.2g}); "
            "it may use sliding windows, soft caps or scaled logits, which are not supported"
        )
    return model


def _norms_in_float64(model: PreTrainedModel) -> None:
    """Hugging Face's compute in float32, whatever the model computes in."""
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm") and hasattr(module, "variance_epsilon"):
            module.forward = MethodType(_norm, module)


def _norm(module: Any, x: Tensor) -> Tensor:
    return functional.rms_norm(x, module.weight.shape, module.weight, module.variance_epsilon)


def largest_context(model: PreTrainedModel) -> int:
    """The most tokens a segment may have: the model's positions, and its sliding window where it
    has one.
    """
    config = model.config
    limits = [config.max_position_embeddings]
    if getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True):
        limits.append(config.sliding_window)
    return min(limits)
