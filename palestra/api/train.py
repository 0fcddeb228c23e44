"""Train from Python, and the same from the command line."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Unpack

from palestra.api.inputs import EnvInput, ModelInput, RunSettings, config_of, settings_tree
from palestra.api.run import Run
from palestra.config import config as configs
from palestra.config.config import Config
from palestra.core.errors import ConfigError
from palestra.training.display import check_display


def train(
    env: EnvInput | None = None,
    *,
    model: ModelInput | None = None,
    recipe: str | Path | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    display: str = "auto",
    **settings: Unpack[RunSettings],
) -> Run:
    """Train an agent in an environment, and return the run.

    `env`: a class, a callable that returns an environment, a registered name, a URL, or a list of
    these (a mixture). `model`: a Hugging Face name or folder, or a GGUF file; without one a tiny
    model is randomly initialized. `recipe`: a recipe's name or file to begin with. `out`: the run
    folder, default: runs/<name>-<time>. `resume`: continue the run in `out`. `display`: "auto",
    "live", "lines", "notebook" or "none". `settings`: the tables of a recipe as objects or
    mappings, such as `algo=GRPO(clip_high=0.28)` and `rollout={"tasks": 8}`; also by dotted name
    in a mapping: `**{"rollout.tasks": 8}`.

    Raises `UserError` for what can be fixed, in one line. Ctrl-C saves a checkpoint and raises
    `KeyboardInterrupt`.
    """
    check_display(display)
    if resume:
        if out is None:
            raise ConfigError("resume = True: expected out, the folder of the run to resume")
        if recipe is not None or model is not None:
            given = "recipe" if recipe is not None else "model"
            raise ConfigError(f"{given}: a resumed run has its own; leave it out")
        if env is not None:
            # A class of a script or notebook is found by its name from here on.
            config_of(env, None, None, {})
        resume_run(Path(out), _dotted(settings), display=display)
        return Run(out)
    if env is None and recipe is None:
        raise ConfigError("train: expected an environment or a recipe")
    config = config_of(env, model, recipe, settings)
    name = Path(str(recipe)).stem if recipe is not None else "+".join(_labels(config))
    folder = Path(out) if out is not None else default_folder(name)
    train_config(config, folder, display=display)
    return Run(folder)


def train_config(
    config: Config, folder: Path, *, display: str = "auto", owns_process: bool = False
) -> None:
    """Train a configuration in a new run folder.

    `owns_process`: whether the process may be ended where it does not stop in time, as that of the
    command line may.
    """
    from palestra.launch import launch
    from palestra.launch.worker import WorkerSpec
    from palestra.runs.run import Run as RunWriter
    from palestra.training.preflight import preflight

    prepared = preflight(config)
    run = RunWriter.create(folder, config)
    run.interrupts.may_end_process = owns_process
    launch(run, WorkerSpec(str(folder.resolve()), {}, display=display), prepared)


def resume_run(
    folder: Path,
    overrides: Mapping[str, Any],
    *,
    display: str = "auto",
    owns_process: bool = False,
) -> None:
    """Continue a run from its newest checkpoint. `overrides`: dotted settings to change."""
    from palestra.launch import launch
    from palestra.launch.worker import WorkerSpec
    from palestra.runs.run import Run as RunWriter
    from palestra.training.checkpointing import check_changes
    from palestra.training.preflight import preflight

    run = RunWriter.open(folder, dict(overrides))
    run.interrupts.may_end_process = owns_process
    with ExitStack() as held:
        held.enter_context(run.locked())
        check_changes(run)
        prepared = preflight(run.config)
        spec = WorkerSpec(str(folder.resolve()), dict(overrides), display=display)
        launch(run, spec, prepared)


def default_folder(name: str) -> Path:
    """A new folder under runs/, also where two runs begin in the same second."""
    stamped = Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    folder, number = stamped, 1
    while folder.exists():
        number += 1
        folder = stamped.with_name(f"{stamped.name}-{number}")
    return folder


def load_config(path: str | Path, **settings: Unpack[RunSettings]) -> Config:
    """The configuration of a recipe (a name or a file) or of a run folder, with `settings` on top.

    Nothing that it names is imported.
    """
    where = Path(path)
    source = where / "config.toml" if where.is_dir() else path
    tree, dotted = settings_tree(settings)
    return configs.build(configs.merge(configs.read_recipe(source), tree), dotted)


def _dotted(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Tables of settings by their dotted names, as a resumed run takes them."""
    tree, dotted = settings_tree(settings)
    for table, values in tree.items():
        if isinstance(values, dict):
            dotted |= {f"{table}.{name}": value for name, value in values.items()}
        else:
            dotted[table] = values
    return dotted


def _labels(config: Config) -> list[str]:
    return [spec.label.replace("/", "-") for spec in config.env_specs]
