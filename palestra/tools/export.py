"""Export a run's model to a directory that transformers and vLLM can load, or its adapter to one
for peft.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import torch

from palestra.config import config as configs
from palestra.core.errors import ConfigError
from palestra.learner import checkpoint
from palestra.models.folder import load_pretrained

PRIVATE = (checkpoint.STATE, checkpoint.OPTIMIZER_STEM, checkpoint.CRITIC)
"""Prefixes of a checkpoint's files that only the run itself needs."""


def export_run(run_folder: Path, out: Path, *, adapter: bool = False) -> None:
    """Write the newest weights to `out`. `adapter`: write the adapter, instead of the model with
    the adapter merged into it.
    """
    source = checkpoint.newest(run_folder / "checkpoints")
    if source is None:
        raise ConfigError(f"{run_folder}: there is no checkpoint in this run")
    if out.exists():
        raise ConfigError(f"{out}: exists already")
    config = configs.load(run_folder / "config.toml")
    if adapter and config.lora is None:
        raise ConfigError(f"--adapter: {run_folder} trained all weights, it has no adapter")
    checkpoint.read_state(source)
    if config.lora is None or adapter:
        out.mkdir(parents=True)
        # Only files of the manifest: the folder may have others, such as a link to private keys.
        for name in checkpoint.files_of(source):
            if not name.startswith(PRIVATE):
                shutil.copyfile(source / name, out / name)
        return
    model, tokenizer = load_pretrained(
        str(source), device=torch.device("cpu"), dtype=getattr(torch, config.dtype)
    )
    checkpoint.export(out, model, tokenizer)
