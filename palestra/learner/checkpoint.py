"""Checkpoints: a Hugging Face directory (or peft's), the optimizer's moments and the run's state.

A checkpoint appears atomically, complete or not at all; nothing is pickled.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from palestra.core.errors import UserError
from palestra.core.files import CannotWrite, delete, open_regular, read_regular, sync, writing
from palestra.core.untrusted import Unreadable, check_nesting
from palestra.learner.learner import Learner
from palestra.learner.sharded import described, read_tensors, save_model, save_shares, shard_like
from palestra.models.lora import adapter_of, load_adapter, save_adapter
from palestra.models.weights import fp32_or_wider

log = logging.getLogger(__name__)

STATE = "state.json"
OPTIMIZER_STEM = "optimizer"
CRITIC = "critic.safetensors"
NO_DIGEST = "0" * 64
REPLACED, DOOMED = "replaced", "doomed"
"""Suffixes of a checkpoint while another takes over its name, and while it is being deleted."""


class BadCheckpoint(UserError, ValueError):
    """A checkpoint that differs from what was written."""


def save(
    folder: Path,
    learner: Learner,
    tokenizer: PreTrainedTokenizerBase,
    state: dict[str, Any],
    others: Mapping[str, bytes] | None = None,
) -> None:
    """Write a checkpoint under a temporary name, sync it to disk, then rename it. All ranks call
    this together.

    `others`: contents of further files, by name.
    """
    draft = folder.with_name(f".{folder.name}.draft")
    world = learner.parallel.world
    try:
        with writing(folder):
            if world.is_first:
                shutil.rmtree(draft, ignore_errors=True)
                # Without parents: a run folder that somebody deleted must not come back in part.
                draft.parent.mkdir(exist_ok=True)
                draft.mkdir()
            world.wait()
            _write(draft, learner, tokenizer)
            world.wait()
            if world.is_first:
                for name, content in (others or {}).items():
                    (draft / name).write_bytes(content)
                write_manifest(draft, state)
                _put(draft, folder)
            world.wait()
    except CannotWrite:
        # Free the disk again: earlier checkpoints stay valid.
        shutil.rmtree(draft, ignore_errors=True)
        raise


def _write(draft: Path, learner: Learner, tokenizer: PreTrainedTokenizerBase) -> None:
    """Write the learner's files: all ranks if the weights are sharded, else the first rank."""
    world = learner.parallel.world
    export_learner(draft, learner, tokenizer)
    if learner.parallel.is_sharded:
        save_shares(draft, OPTIMIZER_STEM, _moments(learner), world)
    elif world.is_first:
        save_file(_moments(learner), draft / f"{OPTIMIZER_STEM}.safetensors")
    if learner.critic is not None and world.is_first:
        critic = learner.critic.state_dict()
        save_file({name: value.contiguous() for name, value in critic.items()}, draft / CRITIC)


def export_learner(folder: Path, learner: Learner, tokenizer: PreTrainedTokenizerBase) -> None:
    """Write the learner's model into an existing folder, in a format that other programs load.

    All ranks call this together.
    """
    world = learner.parallel.world
    if learner.parallel.is_sharded:
        save_model(folder, learner.model, learner.dtype, world)
        if world.is_first:
            tokenizer.save_pretrained(folder)
    elif world.is_first:
        export(folder, learner.model, tokenizer)


def keep_reference(folder: Path, learner: Learner, tokenizer: PreTrainedTokenizerBase) -> None:
    """Save the current model as the reference model: a checkpoint without moments."""
    world = learner.parallel.world
    with writing(folder):
        if world.is_first:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        world.wait()
        export_learner(folder, learner, tokenizer)
        world.wait()
        if world.is_first:
            write_manifest(folder, {})


def write_manifest(folder: Path, state: dict[str, Any]) -> None:
    """Write the state with the digests of all files and its own, and sync everything to disk.

    The file's own digest is computed with zeros in place of the digest.
    """
    digests = {path.name: _digest(path) for path in sorted(folder.iterdir())} | {STATE: NO_DIGEST}
    content = msgspec.json.format(msgspec.json.encode({**state, "files": digests}))
    own = hashlib.sha256(content).hexdigest()
    (folder / STATE).write_bytes(content.replace(NO_DIGEST.encode(), own.encode()))
    for path in (*folder.iterdir(), folder):
        sync(path)


def _put(draft: Path, folder: Path) -> None:
    """Rename the draft to its final name.

    An older checkpoint of that name is deleted only after the new one is in place; after a crash in
    between, `tidy` finishes the work.
    """
    replaced = _hidden(folder, REPLACED)
    delete(replaced)
    if os.path.lexists(folder):
        folder.rename(replaced)
    draft.rename(folder)
    sync(folder.parent)
    if replaced.exists():
        remove(replaced)


def export(folder: Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Write a Hugging Face directory that other programs load; if only an adapter is trained,
    peft's directory of the adapter.
    """
    tokenizer.save_pretrained(folder)
    if adapter_of(model):
        save_adapter(folder, model)
        return
    with described(model, model.dtype):
        model.save_pretrained(folder)


def read_description(folder: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """The run's state and the digests of the files, after verifying the state file's own digest."""
    try:
        content = read_regular(folder / STATE)
        check_nesting(content)
        state: dict[str, Any] = msgspec.json.decode(content, type=dict)
        digests = msgspec.convert(state.pop("files"), dict[str, str])
    except OSError as error:
        raise BadCheckpoint(f"{folder / STATE} cannot be read: {error.strerror}") from error
    except KeyError as error:
        raise BadCheckpoint(f"{folder / STATE} is damaged: it has no {error}") from error
    except (msgspec.MsgspecError, ValueError, Unreadable, RecursionError) as error:
        # Bytes that are not UTF-8 raise a ValueError, too.
        raise BadCheckpoint(f"{folder / STATE} is damaged: {error}") from error
    for name in digests:
        if Path(name).name != name or name in ("", ".."):
            raise BadCheckpoint(
                f"{folder / STATE} is damaged: {name!r} is not the name of a file in this folder"
            )
    own = digests.pop(STATE, None)  # older versions have none
    if own is not None:
        without_digest = content.replace(own.encode(), NO_DIGEST.encode())
        if hashlib.sha256(without_digest).hexdigest() != own:
            raise BadCheckpoint(f"{folder / STATE} is damaged: it is not what was written")
    return state, digests


def read_state(folder: Path) -> dict[str, Any]:
    """The run's state, after verifying the digest of every file."""
    state, digests = read_description(folder)
    unknown = sorted(
        path.name for path in folder.iterdir() if path.name not in digests and _is_read(path.name)
    )
    if unknown:
        raise BadCheckpoint(
            f"{folder / unknown[0]} is not of this checkpoint: it was put there later"
        )
    for name, digest in digests.items():
        path = folder / name
        try:
            found = _digest(path)
        except OSError as error:
            raise BadCheckpoint(f"{path} cannot be read: {error.strerror}") from error
        if found != digest:
            raise BadCheckpoint(f"{path} is damaged: it is not what was written")
    return state


def files_of(folder: Path) -> list[str]:
    """The names of the checkpoint's files, as its manifest lists them."""
    return sorted(msgspec.json.decode((folder / STATE).read_bytes(), type=dict)["files"])


def load_weights(folder: Path, model: PreTrainedModel) -> None:
    """Load what `export` wrote into a model of the same shape."""
    if adapter_of(model):
        try:
            load_adapter(folder, model)
        except (OSError, ValueError) as error:
            raise BadCheckpoint(f"{folder}: {error}") from error
        return
    wanted = dict(model.named_parameters()) | dict(model.named_buffers())
    seen, unexpected = set[str](), []
    with _readable(folder), torch.no_grad():
        for name, weight in read_tensors(sorted(folder.glob("model*.safetensors"))):
            if name not in wanted or wanted[name].shape != weight.shape:
                unexpected.append(name)
                continue
            wanted[name].copy_(shard_like(weight, wanted[name]))
            seen.add(name)
    missing = {name for name, _ in model.named_parameters()} - seen
    unexpected = [name for name in unexpected if name not in model.all_tied_weights_keys]
    if unexpected or missing:
        raise BadCheckpoint(
            f"{folder}: its weights are not those of the model in config.toml: "
            f"{len(missing)} are missing, "
            f"{len(unexpected)} are of another name or shape"
        )


def restore(folder: Path, learner: Learner) -> None:
    """Restore the learner's weights and optimizer state."""
    load_weights(folder, learner.model)
    learner.reset_optimizer()
    if learner.critic is not None:
        if not (folder / CRITIC).is_file():
            raise BadCheckpoint(
                f"{folder} has no critic: the run was begun with an algorithm that needs none"
            )
        with _readable(folder / CRITIC):
            stored = load_file(folder / CRITIC)
            if _shapes(stored) != _shapes(learner.critic.state_dict()):
                raise ValueError("it is another critic's")
            learner.critic.load_state_dict(stored)
    with _readable(folder):
        _restore_moments(folder, learner)


def _shapes(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in tensors.items()}


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Report files with valid digests that do not fit the run, such as another run's."""
    try:
        yield
    except (SafetensorError, OSError, ValueError) as error:
        raise BadCheckpoint(
            f"{path}: not what the run's model and algorithm need: "
            f"{str(error).splitlines()[0][:200]}"
        ) from error


def _restore_moments(folder: Path, learner: Learner) -> None:
    trained = learner.trained()
    for key, moment in read_tensors(sorted(folder.glob(f"{OPTIMIZER_STEM}*.safetensors"))):
        name, _, kind = key.rpartition("/")
        if name not in trained:
            continue
        parameter = trained[name]
        expected = torch.Size(()) if kind == "step" else parameter.shape
        # Another shape might be broadcast without an error.
        if moment.shape != expected:
            raise ValueError(f"{key} has the shape {tuple(moment.shape)}")
        if kind == "master":
            parameter.data.copy_(shard_like(moment, parameter))
        elif kind in ("step", "exp_avg", "exp_avg_sq"):
            own = moment.to(parameter.device) if kind == "step" else shard_like(moment, parameter)
            learner.optimizer.state.setdefault(parameter, {})[kind] = own


def remove(folder: Path) -> None:
    """Delete a checkpoint, after renaming it: a reader never sees half of one."""
    doomed = _hidden(folder, DOOMED)
    with writing(folder):
        delete(doomed)
        folder.rename(doomed)
        delete(doomed)


def tidy(folder: Path) -> None:
    """Clean up after a crash: delete drafts and half-deleted checkpoints, and give a checkpoint
    that was about to be replaced its name back.
    """
    for path in folder.glob(f".step-*.{REPLACED}"):
        final = path.with_name(path.name[1 : -len(REPLACED) - 1])
        if os.path.lexists(final):
            remove(path)
        else:
            path.rename(final)
    for path in [*folder.glob(f".step-*.{DOOMED}"), *folder.glob(".step-*.draft")]:
        with writing(path):
            delete(path)


def step_of(folder: Path) -> int:
    return int(folder.name[5:])


def all_in(folder: Path) -> list[Path]:
    """All checkpoints in a folder, damaged or not, the oldest first."""
    found = [path for path in folder.glob("step-*") if re.fullmatch(r"step-\d+", path.name)]
    return sorted(found, key=step_of)


def newest(folder: Path) -> Path | None:
    """The latest complete checkpoint in a folder."""
    for path in reversed(all_in(folder)):
        if (path / STATE).is_file():
            return path
    return None


def latest_valid(
    folder: Path,
    *,
    wanted: Callable[[int], bool] = lambda step: True,
    on_damage: Callable[[str], None] = log.warning,
    read: Callable[[Path], dict[str, Any]] = read_state,
) -> tuple[Path, dict[str, Any]] | None:
    """The latest checkpoint whose files all have their digests, and its state; None if there is no
    checkpoint at all.

    Damaged checkpoints are skipped and kept. `wanted`: selects steps. `read`: returns the state, or
    raises BadCheckpoint.
    """
    found = [path for path in all_in(folder) if wanted(step_of(path))]
    for path in reversed(found):
        try:
            return path, read(path)
        except BadCheckpoint as damage:
            on_damage(f"{damage}; this checkpoint is passed over")
            last = damage
    if found:
        raise BadCheckpoint(
            f"{folder}: none of the checkpoints can be used ({len(found)}); the oldest: {last}"
        )
    return None


def _hidden(folder: Path, suffix: str) -> Path:
    name = folder.name.removeprefix(".").removesuffix(f".{REPLACED}")
    return folder.with_name(f".{name}.{suffix}")


def _moments(learner: Learner) -> dict[str, torch.Tensor]:
    """The optimizer's moments, and the master weights if the model's own are rounded."""
    kept: dict[str, torch.Tensor] = {}
    for name, parameter in learner.trained().items():
        for kind, moment in learner.optimizer.state.get(parameter, {}).items():
            kept[f"{name}/{kind}"] = moment.contiguous()
    if learner.dtype != fp32_or_wider(learner.dtype):
        for name, parameter in learner.trained().items():
            kept[f"{name}/master"] = parameter.detach().contiguous()
    return kept


def _is_read(name: str) -> bool:
    """Whether resuming reads a file of this name."""
    return name.endswith(".safetensors") or name == "prefetch.json"


def _digest(path: Path) -> str:
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
