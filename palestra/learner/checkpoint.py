"""Checkpoints: a Hugging Face directory (or peft's), the optimizer's moments and the run's state.

Whole or not there; no pickle.
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
"""What a checkpoint is called while another takes its name, and while it is being deleted."""


class BadCheckpoint(UserError, ValueError):
    """A checkpoint that is not what was written."""


def save(
    folder: Path,
    learner: Learner,
    tokenizer: PreTrainedTokenizerBase,
    state: dict[str, Any],
    others: Mapping[str, bytes] | None = None,
) -> None:
    """Write a checkpoint, with other files beside the learner's, under a temporary name, make sure
    it is on disk, and only then name it.
    """
    draft = folder.with_name(f".{folder.name}.draft")
    world = learner.parallel.world
    try:
        with writing(folder):
            if world.is_first:
                shutil.rmtree(draft, ignore_errors=True)
                draft.parent.mkdir(
                    exist_ok=True
                )  # but not the run folder: who deleted that does not want half of it again
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
        shutil.rmtree(
            draft, ignore_errors=True
        )  # what is on disk stays, and so does room for others
        raise


def _write(draft: Path, learner: Learner, tokenizer: PreTrainedTokenizerBase) -> None:
    """The learner's files: by the first rank or, where each has a share of the weights, by all."""
    world = learner.parallel.world
    export_learner(draft, learner, tokenizer)
    if learner.parallel.is_sharded:
        save_shares(draft, OPTIMIZER_STEM, _moments(learner), world)
    elif world.is_first:
        save_file(_moments(learner), draft / f"{OPTIMIZER_STEM}.safetensors")
    if learner.critic is not None and world.is_first:
        save_file(
            {name: value.contiguous() for name, value in learner.critic.state_dict().items()},
            draft / CRITIC,
        )


def export_learner(folder: Path, learner: Learner, tokenizer: PreTrainedTokenizerBase) -> None:
    """The learner's model as a directory that any other program can load.

    All ranks do this; the folder must be there.
    """
    world = learner.parallel.world
    if learner.parallel.is_sharded:
        save_model(folder, learner.model, learner.dtype, world)
        if world.is_first:
            tokenizer.save_pretrained(folder)
    elif world.is_first:
        export(folder, learner.model, tokenizer)


def keep_reference(folder: Path, learner: Learner, tokenizer: PreTrainedTokenizerBase) -> None:
    """The model as it is now, which KL will be measured against: a checkpoint without moments."""
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
    """Write the state, with the digests of all files and its own, and make sure that everything is
    on disk.

    Its own digest is that of the file with zeros in the digest's place.
    """
    digests = {path.name: _digest(path) for path in sorted(folder.iterdir())} | {STATE: NO_DIGEST}
    content = msgspec.json.format(msgspec.json.encode({**state, "files": digests}))
    own = hashlib.sha256(content).hexdigest()
    (folder / STATE).write_bytes(content.replace(NO_DIGEST.encode(), own.encode()))
    for path in (*folder.iterdir(), folder):
        sync(path)


def _put(draft: Path, folder: Path) -> None:
    """Give the draft its name.

    One that has the name already goes only when the new one is there: `tidy` finds whatever is left
    between.
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
    """As a Hugging Face directory that any other program can load; where only an adapter learns, as
    peft's directory of it.
    """
    tokenizer.save_pretrained(folder)
    if adapter_of(model):
        save_adapter(folder, model)
        return
    with described(model, model.dtype):
        model.save_pretrained(folder)


def read_description(folder: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """The run's state and the digests of the files, after checking the file that has them by its
    own digest.
    """
    try:
        content = read_regular(folder / STATE)
        check_nesting(content)
        state: dict[str, Any] = msgspec.json.decode(content, type=dict)
        digests = msgspec.convert(state.pop("files"), dict[str, str])
    except OSError as error:
        raise BadCheckpoint(f"{folder / STATE} cannot be read: {error.strerror}") from error
    except KeyError as error:
        raise BadCheckpoint(f"{folder / STATE} is damaged: it has no {error}") from error
    except (
        msgspec.MsgspecError,
        ValueError,
        Unreadable,
        RecursionError,
    ) as error:  # what is no UTF-8 is a ValueError, too
        raise BadCheckpoint(f"{folder / STATE} is damaged: {error}") from error
    for name in digests:
        if Path(name).name != name or name in ("", ".."):
            raise BadCheckpoint(
                f"{folder / STATE} is damaged: {name!r} is not the name of a file in this folder"
            )
    own = digests.pop(STATE, None)  # older versions have none
    if (
        own is not None
        and hashlib.sha256(content.replace(own.encode(), NO_DIGEST.encode())).hexdigest() != own
    ):
        raise BadCheckpoint(f"{folder / STATE} is damaged: it is not what was written")
    return state, digests


def read_state(folder: Path) -> dict[str, Any]:
    """The run's state, after checking that every file is as it was written."""
    state, digests = read_description(folder)
    strangers = sorted(
        path.name for path in folder.iterdir() if path.name not in digests and _is_read(path.name)
    )
    if strangers:
        raise BadCheckpoint(
            f"{folder / strangers[0]} is not of this checkpoint: it was put there later"
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
    """What the checkpoint consists of, and its state vouches for."""
    return sorted(msgspec.json.decode((folder / STATE).read_bytes(), type=dict)["files"])


def load_weights(folder: Path, model: PreTrainedModel) -> None:
    """What `export` wrote, into a model of the same shape."""
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
    """Weights and moments as they were."""
    load_weights(folder, learner.model)
    learner.reset_optimizer()
    if learner.critic is not None:
        if not (folder / CRITIC).is_file():
            raise BadCheckpoint(
                f"{folder} has no critic: the run was begun with an algorithm that needs none"
            )
        with _readable(folder / CRITIC):
            stored, own = load_file(folder / CRITIC), learner.critic.state_dict()
            if {name: value.shape for name, value in stored.items()} != {
                name: value.shape for name, value in own.items()
            }:
                raise ValueError("it is another critic's")
            learner.critic.load_state_dict(stored)
    with _readable(folder):
        _restore_moments(folder, learner)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Around files whose digests are right, but which somebody has put together from other ones."""
    try:
        yield
    except (SafetensorError, OSError, ValueError) as error:
        raise BadCheckpoint(
            f"{path}: not what the run's model and algorithm need: "
            f"{str(error).splitlines()[0][:200]}"
        ) from error


def _restore_moments(folder: Path, learner: Learner) -> None:
    trained = learner.trained()
    for place, moment in read_tensors(sorted(folder.glob(f"{OPTIMIZER_STEM}*.safetensors"))):
        name, _, kind = place.rpartition("/")
        if name not in trained:
            continue
        parameter = trained[name]
        if moment.shape != (
            parameter.shape if kind != "step" else torch.Size(())
        ):  # else it would be spread over all numbers
            raise ValueError(f"{place} has the shape {tuple(moment.shape)}")
        if kind == "master":
            parameter.data.copy_(shard_like(moment, parameter))
        elif kind in ("step", "exp_avg", "exp_avg_sq"):
            own = moment.to(parameter.device) if kind == "step" else shard_like(moment, parameter)
            learner.optimizer.state.setdefault(parameter, {})[kind] = own


def remove(folder: Path) -> None:
    """Delete a checkpoint, under another name first: a reader never sees half of one."""
    doomed = _hidden(folder, DOOMED)
    with writing(folder):
        delete(doomed)
        folder.rename(doomed)
        delete(doomed)


def tidy(folder: Path) -> None:
    """After a crash: what was being written or removed goes, and what was about to be replaced has
    its name again.
    """
    for path in folder.glob(f".step-*.{REPLACED}"):
        full_tensor = path.with_name(path.name[1 : -len(REPLACED) - 1])
        if os.path.lexists(full_tensor):
            remove(path)
        else:
            path.rename(full_tensor)
    for path in [*folder.glob(f".step-*.{DOOMED}"), *folder.glob(".step-*.draft")]:
        with writing(path):
            delete(path)


def step_of(folder: Path) -> int:
    return int(folder.name[5:])


def all_in(folder: Path) -> list[Path]:
    """The checkpoints in a folder of them, damaged or not, the oldest first."""
    return sorted(
        (path for path in folder.glob("step-*") if re.fullmatch(r"step-\d+", path.name)),
        key=step_of,
    )


def newest(folder: Path) -> Path | None:
    """The last complete checkpoint in a folder of them."""
    return next((path for path in reversed(all_in(folder)) if (path / STATE).is_file()), None)


def latest_valid(
    folder: Path,
    *,
    wanted: Callable[[int], bool] = lambda step: True,
    on_damage: Callable[[str], None] = log.warning,
    read: Callable[[Path], dict[str, Any]] = read_state,
) -> tuple[Path, dict[str, Any]] | None:
    """The last checkpoint in which every file is as it was written, and its state; None where there
    is no checkpoint at all.

    Damaged ones are passed over and left alone. `wanted`: which steps will do. `read`: raises
    BadCheckpoint for one that will not.
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
    return folder.with_name(
        f".{folder.name.removeprefix('.').removesuffix('.' + REPLACED)}.{suffix}"
    )


def _moments(learner: Learner) -> dict[str, torch.Tensor]:
    """The optimizer's, and the exact weights where the model's own are rounded."""
    kept = {
        f"{name}/{kind}": moment.contiguous()
        for name, parameter in learner.trained().items()
        for kind, moment in learner.optimizer.state.get(parameter, {}).items()
    }
    if learner.dtype != fp32_or_wider(learner.dtype):
        kept |= {
            f"{name}/master": parameter.detach().contiguous()
            for name, parameter in learner.trained().items()
        }
    return kept


def _is_read(name: str) -> bool:
    """Whether a file of this name would have a part in what is restored."""
    return name.endswith(".safetensors") or name == "prefetch.json"


def _digest(path: Path) -> str:
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
