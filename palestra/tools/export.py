"""Take the model of a run out of it, as a directory that transformers and vLLM load, or peft."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch

from palestra.config import config as configs
from palestra.core.errors import ConfigError
from palestra.learner import checkpoint
from palestra.models.folder import load_pretrained

PRIVATE = (checkpoint.STATE, checkpoint.OPTIMIZER_STEM, checkpoint.CRITIC)
"""What of a checkpoint is the run's own business begins so."""


def export_run(run_folder: Path, out: Path, *, adapter: bool = False) -> None:
    """Write the newest weights to `out`; `adapter`: only what was trained beside the base model,
    not the sum of both.
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
        for name in checkpoint.files_of(
            source
        ):  # and nothing else that lies there, such as a link to somebody's keys
            if not name.startswith(PRIVATE):
                shutil.copyfile(source / name, out / name)
        return
    model, tokenizer = load_pretrained(
        str(source), device=torch.device("cpu"), dtype=getattr(torch, config.dtype)
    )
    checkpoint.export(out, model, tokenizer)
