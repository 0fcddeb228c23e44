"""Export a run's model to a directory that transformers and vLLM can load, or its adapter to one
for peft.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from palestra.config import config as configs
from palestra.core.errors import ConfigError
from palestra.core.lazy import torch
from palestra.models.folder import load_pretrained


def export_run(run_folder: Path, out: Path, *, adapter: bool = False) -> None:
    """Write the newest weights to `out`. `adapter`: write the adapter, instead of the model with
    the adapter merged into it.
    """
    if out.exists():
        raise ConfigError(f"{out}: exists already; expected a new folder for the model")
    config = configs.load(run_folder / "config.toml")
    if adapter and config.lora is None:
        raise ConfigError(f"--adapter: {run_folder} trained all weights, it has no adapter")
    folder = run_folder / "checkpoints"
    none = f"{run_folder}: there is no checkpoint in this run; train it (--resume {run_folder})"
    if not folder.is_dir() or not any(folder.iterdir()):
        raise ConfigError(none)

    from palestra.learner import checkpoint  # torch

    private = (checkpoint.STATE, checkpoint.OPTIMIZER_STEM, checkpoint.CRITIC)
    source = checkpoint.newest(folder)
    if source is None:
        raise ConfigError(none)
    checkpoint.read_state(source)
    if config.lora is None or adapter:
        out.mkdir(parents=True)
        # Only files of the manifest: the folder may have others, such as a link to private keys.
        for name in checkpoint.files_of(source):
            if not name.startswith(private):
                shutil.copyfile(source / name, out / name)
        return
    model, tokenizer = load_pretrained(
        str(source), device=torch.device("cpu"), dtype=getattr(torch, config.dtype)
    )
    checkpoint.export(out, model, tokenizer)
