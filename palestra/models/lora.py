"""LoRA (arXiv:2106.09685): only low-rank matrices next to the frozen weights are trained. By
`peft`, in peft's format.

The adapter is injected, so the model stays what it was: the same class, the same calls, its linear
layers replaced in place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from palestra.models.files import ADAPTER as CONFIG
from palestra.models.files import ADAPTER_WEIGHTS as WEIGHTS
from palestra.models.files import MOST_CONFIG, BadModel, read_object, shown, stored_in
from palestra.models.weights import full_tensor

PREFIX = "base_model.model."
"""What peft puts before every name in its files."""
NAME = "default"
"""peft's own name for the only adapter of a model."""
ALL_LINEAR = "all-linear"


def add_adapter(
    model: PreTrainedModel, *, rank: int, alpha: int, targets: tuple[str, ...], base: str, seed: int
) -> None:
    """Give `model` an adapter that changes nothing yet, and freeze all else.

    `base`: where the model came from, for peft's file.
    """
    from peft import LoraConfig, inject_adapter_in_model

    if targets != (ALL_LINEAR,):
        _check_targets(model, targets)
    config = LoraConfig(
        r=rank,
        lora_alpha=alpha,
        target_modules=ALL_LINEAR if targets == (ALL_LINEAR,) else list(targets),
        task_type="CAUSAL_LM",
        base_model_name_or_path=base,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        inject_adapter_in_model(config, model, adapter_name=NAME)
    model.eval()


def _check_targets(model: PreTrainedModel, targets: tuple[str, ...]) -> None:
    head = model.get_output_embeddings()
    linear = {
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and module is not head
    }
    for target in targets:
        if not any(name == target or name.endswith(f".{target}") for name in linear):
            known = sorted({name.rpartition(".")[2] for name in linear})
            raise ValueError(
                f"no linear module below the head is called {target!r}; there are "
                f"{', '.join(known)}, or {ALL_LINEAR!r}"
            )


def adapter_of(model: PreTrainedModel) -> dict[str, nn.Parameter]:
    """The adapter's parameters by name; none where the model has no adapter."""
    return {name: parameter for name, parameter in model.named_parameters() if ".lora_" in name}


@torch.no_grad()
def set_adapter(model: PreTrainedModel, weights: Mapping[str, Tensor]) -> None:
    """Overwrite the adapter's parameters in place."""
    for name, parameter in adapter_of(model).items():
        parameter.copy_(weights[name])


def save_adapter(folder: Path, model: PreTrainedModel) -> None:
    """Write peft's directory, which any program with peft can load on top of the base model."""
    config = model.peft_config[NAME]
    config.save_pretrained(str(folder))
    named = {
        name.replace(f".{NAME}.", "."): parameter.detach().contiguous()
        for name, parameter in adapter_of(model).items()
    }
    save_file(
        {f"{PREFIX}{name}": weight for name, weight in named.items()},
        folder / WEIGHTS,
        metadata={"format": "pt"},
    )


def load_adapter(folder: Path, model: PreTrainedModel) -> None:
    """What `save_adapter` wrote, into the adapter that the model has.

    ValueError where it is another one's.
    """
    stored = load_file(folder / WEIGHTS)
    names = {name: f"{PREFIX}{name.replace(f'.{NAME}.', '.')}" for name in adapter_of(model)}
    different = set(names.values()) ^ set(stored)
    if different:
        raise ValueError(
            f"the adapter has other modules than the model's: {', '.join(sorted(different)[:3])}"
        )
    set_adapter(model, {name: stored[in_file] for name, in_file in names.items()})


def merge_folder(model: PreTrainedModel, folder: Path) -> PreTrainedModel:
    """`model` with the adapter of a peft directory added into its weights."""
    from peft import PeftModel

    config = adapter_config(folder)
    merged: PreTrainedModel = PeftModel.from_pretrained(
        model, str(folder), config=config, local_files_only=True
    ).merge_and_unload()
    if not all(parameter.isfinite().all() for parameter in merged.parameters()):
        raise BadModel(
            f"{folder}: the sums of its weights and the base model's are no finite numbers"
        )
    return merged.requires_grad_(True)


UNDERSTOOD = (
    "lora_alpha",
    "use_rslora",
    "use_dora",
    "fan_in_fan_out",
    "bias",
    "lora_bias",
    "alpha_pattern",
)
"""What is taken from an adapter's configuration as it is written there."""
TOLD_BY_WEIGHTS = (
    "r",
    "rank_pattern",
    "target_modules",
    "exclude_modules",
    "layers_to_transform",
    "layers_pattern",
)
"""Names, regular expressions and sizes that its weights tell more safely."""
WITHOUT_EFFECT = (
    "task_type",
    "peft_type",
    "auto_mapping",
    "peft_version",
    "base_model_name_or_path",
    "revision",
    "inference_mode",
    "lora_dropout",
    "init_lora_weights",
    "loftq_config",
    "runtime_config",
    "megatron_core",
    "qalora_group_size",
    "eva_config",
    "corda_config",
    "lora_ga_config",
    "ensure_weight_tying",
)
"""Settings that matter only during training, or to other programs."""
MOST_RANK = 1 << 16


def adapter_config(folder: Path) -> Any:
    """Of a peft directory, for peft.

    A setting by which peft would import modules or read other files is refused.
    """
    from peft import LoraConfig

    path = folder / CONFIG
    written = read_object(path, MOST_CONFIG)
    if written.get("peft_type") not in ("LORA", None):
        raise BadModel(f"{path}: peft_type = {shown(written['peft_type'])}: only LORA is supported")
    known = {*UNDERSTOOD, *TOLD_BY_WEIGHTS, *WITHOUT_EFFECT}
    if others := sorted(name for name, value in written.items() if value and name not in known):
        raise BadModel(
            f"{path}: {shown(others[0])} = {shown(written[others[0]])}: is not supported"
        )
    alphas = written.get("alpha_pattern") or {}
    if not isinstance(alphas, dict) or not all(
        re.fullmatch(r"[\w.]+", name) and _is_number(value) for name, value in alphas.items()
    ):
        raise BadModel(
            f"{path}: alpha_pattern = {shown(alphas)}: expected numbers by names of modules"
        )
    flags = {name: written[name] for name in UNDERSTOOD if isinstance(written.get(name), bool)}
    alpha, bias = written.get("lora_alpha", 8), written.get("bias", "none")
    if not _is_number(alpha) or bias not in ("none", "all", "lora_only"):
        raise BadModel(
            f"{path}: lora_alpha = {shown(alpha)}, bias = {shown(bias)}: expected a "
            "number, and none, all or lora_only"
        )
    ranks = _ranks_in(folder / WEIGHTS)
    rank_pattern = {}
    if len(set(ranks.values())) > 1:
        rank_pattern = {f"^{name}": rank for name, rank in ranks.items()}
    return LoraConfig(
        r=next(iter(ranks.values())),
        rank_pattern=rank_pattern,
        target_modules=list(ranks),
        lora_alpha=alpha,
        alpha_pattern=alphas,
        bias=bias,
        task_type="CAUSAL_LM",
        inference_mode=True,
        **flags,
    )


def _ranks_in(path: Path) -> dict[str, int]:
    """The rank of each module's adapter, by the weights."""
    ranks = {}
    for name, shape in stored_in([path]).shapes.items():
        if name.endswith(".lora_A.weight") and len(shape) == 2:
            module = name.removeprefix(PREFIX).removesuffix(".lora_A.weight")
            if not re.fullmatch(r"[\w.]+", module) or not 1 <= shape[0] <= MOST_RANK:
                raise BadModel(
                    f"{path}: {shown(name)}: expected a module's name, and a rank from 1 "
                    f"to {MOST_RANK:,}; came {shape}"
                )
            ranks[module] = shape[0]
    if not ranks:
        raise BadModel(f"{path}: holds no weights of a LoRA adapter")
    return ranks


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e9


@torch.no_grad()
def plain_weights(model: PreTrainedModel) -> Iterator[tuple[str, Tensor]]:
    """The weights as a model without an adapter has and names them, tied ones once.

    Sums are taken, and stay, in float32.
    """
    modules = dict(model.named_modules())
    for name, parameter in model.named_parameters():
        if ".lora_" in name:
            continue
        owner, _, own = name.rpartition(".")
        adapted = modules[owner.removesuffix(".base_layer")]
        if owner.endswith(".base_layer") and own == "weight":
            up, down = adapted.lora_B[NAME].weight, adapted.lora_A[NAME].weight
            yield plain_name(name), parameter + adapted.scaling[NAME] * (up.float() @ down.float())
        else:
            yield plain_name(name), full_tensor(parameter.detach())


def plain_name(name: str) -> str:
    return name.replace(".base_layer.", ".")
