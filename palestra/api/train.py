"""Train from Python, and the same from the command line."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from palestra.api.inputs import (
    EnvInput,
    ModelInput,
    RunSettings,
    config_of,
    env_tables,
    settings_tree,
    tables_of,
)
from palestra.api.run import Run
from palestra.config import config as configs
from palestra.config.config import Config
from palestra.core.errors import ConfigError
from palestra.core.extras import naming_extras, require
from palestra.core.openmp import wait_politely
from palestra.training.display import check_display

if TYPE_CHECKING:
    from palestra.envs import Environment


@naming_extras("palestra.train")
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

    - `env`: a class, a callable that returns an environment, a registered name, a URL, or a list
      of these (a mixture).
    - `model`: a Hugging Face name or folder, or a GGUF file. Default: a tiny model, randomly
      initialized.
    - `recipe`: a recipe's name or file to begin with.
    - `out`: the run folder. Default: `runs/<name>-<time>`.
    - `resume`: continue the run in `out`.
    - `display`: "auto", "live", "lines", "notebook" or "none".
    - `settings`: the tables of a recipe as objects or mappings, such as
      `algo=GRPO(clip_high=0.28)` and `rollout={"tasks": 8}`; also by dotted name in a mapping:
      `**{"rollout.tasks": 8}`.

    Raises `UserError` for what can be fixed, in one line. Ctrl-C saves a checkpoint and raises
    `KeyboardInterrupt`.
    """
    check_display(display)
    # Before environments are asked for: the extra train brings BabyAI, too.
    require("palestra.train", "torch")
    wait_politely()
    if resume:
        if out is None:
            raise ConfigError("resume = True: expected out, the folder of the run to resume")
        if recipe is not None or model is not None:
            given = "recipe" if recipe is not None else "model"
            raise ConfigError(f"{given}: a resumed run has its own; leave it out")
        if env is not None:
            # A class of a script or notebook is found by its name from here on.
            env_tables(env)
        resume_run(Path(out), _dotted(settings), display=display)
        return Run(out)
    if recipe is not None:
        config = config_of(env, model, recipe, settings)
        folder = Path(out) if out is not None else default_folder(Path(recipe).stem)
        train_config(config, folder, display=display)
        return Run(folder)
    if env is None:
        raise ConfigError("train: expected an environment or a recipe")
    return Run(train_env(*tables_of(env, model, settings), out=out, display=display))


def configure(
    env: EnvInput | None = None,
    *,
    model: ModelInput | None = None,
    recipe: str | Path | None = None,
    **settings: Unpack[RunSettings],
) -> Config:
    """Build the configuration that `train` would use with the same arguments.

    With `setup` it is where a loop of your own begins:
    `parts = palestra.setup(palestra.configure(MyEnv, horizon=8))`.
    """
    if recipe is not None:
        return config_of(env, model, recipe, settings)
    if env is None:
        raise ConfigError("configure: expected an environment or a recipe")
    from palestra.api.defaults import choose_settings
    from palestra.training.preflight import close_envs

    given, dotted = tables_of(env, model, settings)
    config, envs, _ = choose_settings({**given, **dotted})
    close_envs(config, envs)
    return config


def train_env(
    given: Mapping[str, Any],
    dotted: Mapping[str, Any],
    *,
    out: str | Path | None = None,
    display: str = "auto",
    owns_process: bool = False,
) -> Path:
    """Train without a recipe: what is not given is chosen, and said. Returns the run folder."""
    from palestra.api.defaults import choose_settings
    from palestra.runs.run import Run as RunWriter

    if out is not None:
        RunWriter.check_new(Path(out))
    config, envs, lines = choose_settings({**given, **dotted})
    folder = Path(out) if out is not None else default_folder("+".join(_labels(config)))
    train_config(config, folder, display=display, owns_process=owns_process, envs=envs, notes=lines)
    return folder


def train_config(
    config: Config,
    folder: Path,
    *,
    display: str = "auto",
    owns_process: bool = False,
    envs: dict[str, Environment] | None = None,
    notes: Sequence[str] = (),
) -> None:
    """Train a configuration in a new run folder.

    `owns_process`: whether the process may be ended where it does not stop in time, as that of the
    command line may. `envs`: environments that were created already. `notes`: lines to show first.
    """
    from palestra.launch import launch
    from palestra.launch.worker import WorkerSpec
    from palestra.runs.run import Run as RunWriter
    from palestra.training.preflight import preflight

    RunWriter.check_new(folder)
    prepared = preflight(config, envs)
    configs.warn_of_dropped(config)
    run = RunWriter.create(folder, config)
    run.interrupts.may_end_process = owns_process
    launch(run, WorkerSpec(str(folder.resolve()), {}, display=display, notes=list(notes)), prepared)


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
    from palestra.training.preflight import preflight

    run = RunWriter.open(folder, dict(overrides))

    from palestra.training.checkpointing import check_changes  # torch

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
    """Read the configuration of a recipe (a name or a file) or of a run, with `settings` on top.

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
