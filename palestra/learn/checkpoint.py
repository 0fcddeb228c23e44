"""Checkpoints: a Hugging Face directory (or peft's), the optimiser's moments and the run's state. Whole or not there; no pickle."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from palestra.learn.learner import Learner
from palestra.lora import adapter_of, load_adapter, save_adapter

STATE = "state.json"
OPTIMIZER = "optimizer.safetensors"
CRITIC = "critic.safetensors"


class BadCheckpoint(ValueError):
    """A checkpoint that is not what was written."""


def save(
    folder: Path, learner: Learner, tokenizer: PreTrainedTokenizerBase, state: dict[str, Any], others: Mapping[str, bytes] | None = None
) -> None:
    """Write a checkpoint, with other files beside the learner's, under a temporary name, make sure it is on disk, and only then name it."""
    draft = folder.with_name(f".{folder.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    export(draft, learner.model, tokenizer)
    save_file(_moments(learner), draft / OPTIMIZER)
    if learner.critic is not None:
        save_file({name: value.contiguous() for name, value in learner.critic.state_dict().items()}, draft / CRITIC)
    for name, content in (others or {}).items():
        (draft / name).write_bytes(content)
    digests = {path.name: _digest(path) for path in sorted(draft.iterdir())}
    (draft / STATE).write_bytes(msgspec.json.format(msgspec.json.encode({**state, "files": digests})))
    for path in draft.iterdir():
        _sync(path)
    if folder.exists():
        remove(folder)
    draft.rename(folder)
    _sync(folder.parent)


def export(folder: Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """As a Hugging Face directory that any other program can load; where only an adapter learns, as peft's directory of it."""
    tokenizer.save_pretrained(folder)
    if adapter_of(model):
        save_adapter(folder, model)
        return
    ours = model.config._attn_implementation
    model.config._attn_implementation = "sdpa"  # the name of our attention means nothing elsewhere
    try:
        model.save_pretrained(folder)
    finally:
        model.config._attn_implementation = ours


def read_state(folder: Path) -> dict[str, Any]:
    """The run's state, after checking that every file is as it was written."""
    state: dict[str, Any] = msgspec.json.decode((folder / STATE).read_bytes())
    for name, digest in state.pop("files").items():
        if not (folder / name).is_file() or _digest(folder / name) != digest:
            raise BadCheckpoint(f"{folder / name} is missing or damaged; delete {folder} to go on from the one before it")
    return state


def load_weights(folder: Path, model: PreTrainedModel) -> None:
    """What `export` wrote, into a model of the same shape."""
    if adapter_of(model):
        try:
            load_adapter(folder, model)
        except (OSError, ValueError) as error:
            raise BadCheckpoint(f"{folder}: {error}") from error
        return
    weights: dict[str, torch.Tensor] = {}
    for path in sorted(folder.glob("model*.safetensors")):
        weights |= load_file(path)
    missing, unexpected = model.load_state_dict(weights, strict=False)
    tied = set(model.all_tied_weights_keys)
    if unexpected or set(missing) - tied:
        raise BadCheckpoint(f"{folder}: weights do not fit the model: missing {sorted(set(missing) - tied)}, unexpected {unexpected}")
    model.tie_weights()


def restore(folder: Path, learner: Learner) -> None:
    """Weights and moments as they were."""
    load_weights(folder, learner.model)
    moments = load_file(folder / OPTIMIZER)
    learner.begin_anew()
    if learner.critic is not None:
        if not (folder / CRITIC).is_file():
            raise BadCheckpoint(f"{folder} has no critic: the run was begun with an algorithm that needs none")
        learner.critic.load_state_dict(load_file(folder / CRITIC))
    for name, parameter in learner.trained().items():
        if f"{name}/master" in moments:
            parameter.data.copy_(moments[f"{name}/master"])
        found = {kind: moments[f"{name}/{kind}"] for kind in ("step", "exp_avg", "exp_avg_sq") if f"{name}/{kind}" in moments}
        if found:
            learner.optimizer.state[parameter] = {kind: moment.to(parameter.device) for kind, moment in found.items()}


def remove(folder: Path) -> None:
    """Delete a checkpoint, under another name first: a reader never sees half of one."""
    doomed = folder.with_name(f".{folder.name}.old")
    shutil.rmtree(doomed, ignore_errors=True)
    folder.rename(doomed)
    shutil.rmtree(doomed)


def newest(folder: Path) -> Path | None:
    """The last complete checkpoint in a folder of them."""
    found = [path for path in folder.glob("step-*") if re.fullmatch(r"step-\d+", path.name) and (path / STATE).is_file()]
    return max(found, key=lambda path: int(path.name[5:]), default=None)


def _moments(learner: Learner) -> dict[str, torch.Tensor]:
    """The optimiser's, and the exact weights where the model's own are rounded."""
    kept = {
        f"{name}/{kind}": moment.contiguous()
        for name, parameter in learner.trained().items()
        for kind, moment in learner.optimizer.state.get(parameter, {}).items()
    }
    if learner.model.dtype != torch.float32:
        kept |= {f"{name}/master": parameter.detach().contiguous() for name, parameter in learner.trained().items()}
    return kept


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
