"""Evaluate a run, a model or a baseline, from Python and from the command line."""

from __future__ import annotations

import logging
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palestra.api.inputs import (
    EnvInput,
    ModelInput,
    Table,
    env_tables,
    model_table,
    settings_tree,
)
from palestra.api.run import Run
from palestra.config import config as configs
from palestra.config.agent import AgentSettings
from palestra.core.errors import ConfigError
from palestra.core.evaluation import EvalResult
from palestra.core.extras import naming_extras
from palestra.core.openmp import wait_politely

if TYPE_CHECKING:
    from collections.abc import Callable

    from palestra.config.config import Config

log = logging.getLogger(__name__)

ATTEMPTS = 3
"""A run that is being trained may replace the checkpoint that is about to be evaluated."""


@naming_extras("palestra.evaluate")
def evaluate(
    subject: Run | ModelInput | None = None,
    env: EnvInput | None = None,
    *,
    recipe: str | Path | None = None,
    agent: str | AgentSettings | Table | None = None,
    split: str | None = None,
    tasks: int | None = None,
    ids: str | Path | None = None,
    k: int | None = None,
    horizon: int | None = None,
    temperature: float | None = None,
    keep: str | Path | None = None,
    display: str = "none",
    **settings: Any,
) -> EvalResult:
    """Play held-out tasks, and return success and reward with their 95% intervals.

    - `subject`: a run (its newest checkpoint plays), or a model.
    - `agent`: a baseline in its place, "expert" or "random"; or settings of the agent.
    - `env`: where to play. Default: where the run, or `recipe`, plays.
    - `split`, `tasks`, `ids`: the split, the number of its tasks, or a file with ids of tasks.
    - `k`: episodes per task. `horizon`: turns per episode. `temperature`: of sampling.
    - `keep`: a new folder for all episodes, to be opened with `load_run`.
    """
    wait_politely()
    if agent is not None and not isinstance(agent, str):
        settings["agent"], agent = agent, None
    if subject is None and agent is None and recipe is None:
        raise ConfigError("evaluate: expected a run, a model, an agent or a recipe")
    is_run = isinstance(subject, Run)
    if env is None and recipe is None and not is_run:
        raise ConfigError("evaluate: expected env, the environment to play")
    if subject is not None and agent is not None and not is_run:
        raise ConfigError(f"agent = {agent!r}: it plays in place of a model; leave the model out")
    given, dotted = settings_tree(settings)
    chosen = {
        "eval.split": split,
        "eval.tasks": tasks,
        "eval.k": k,
        "eval.horizon": horizon,
        "eval.temperature": temperature,
    }
    dotted |= {name: value for name, value in chosen.items() if value is not None}

    def resolve() -> Config:
        """Looked up again where a trainer has replaced the checkpoint."""
        tree: dict[str, Any] = {}
        if isinstance(subject, Run):
            tree = configs.read_recipe(subject.folder / "config.toml")
        elif recipe is not None:
            tree = configs.read_recipe(recipe)
        if env is not None:
            tree = {name: table for name, table in tree.items() if name not in ("env", "mixture")}
            tree |= env_tables(env)
        if isinstance(subject, Run) and agent is None:
            tree |= {"model": model_table(newest_checkpoint(subject.folder))}
            tree.pop("lora", None)
        elif subject is not None and not isinstance(subject, Run):
            tree |= {"model": model_table(subject)}
            tree.pop("lora", None)
        return configs.build(configs.merge(tree, given), dotted, imports=True)

    baseline, own_horizon = agent, env is None
    return evaluate_resolved(
        resolve, agent=baseline, own_horizon=own_horizon, ids=ids, keep=keep, display=display
    )


def evaluate_resolved(
    resolve: Callable[[], Config],
    *,
    agent: str | None = None,
    own_horizon: bool = False,
    ids: str | Path | None = None,
    keep: str | Path | None = None,
    display: str = "none",
) -> EvalResult:
    """Evaluate what `resolve` returns. It is asked again where its checkpoint was replaced."""
    config = resolve()  # a mistake in it is found before torch is imported

    from palestra.training.display import Display, ProgressDisplay
    from palestra.training.evaluation import evaluate_config

    for attempt in range(ATTEMPTS):
        shown = Display() if display == "none" else ProgressDisplay()
        try:
            with closing(shown):
                return evaluate_config(
                    config,
                    agent=agent,
                    own_horizon=own_horizon,
                    ids=None if ids is None else Path(ids),
                    display=shown,
                    keep=None if keep is None else Path(keep),
                )
        except (OSError, ValueError):  # libraries raise these, too
            before = config
            config = resolve()
            if config.model == before.model or attempt + 1 == ATTEMPTS:
                raise
    raise AssertionError("the last attempt returns or raises")


def newest_checkpoint(run: Path, on_damage: Callable[[str], None] = log.warning) -> Path:
    """The checkpoint that a resumed run would continue from."""
    if not any((run / "checkpoints").glob("step-*")):
        raise ConfigError(f"{run}: the run has no checkpoint yet; train it first (--resume {run})")

    from palestra.training.checkpointing import latest_usable  # torch

    found = latest_usable(run / "checkpoints", on_damage=on_damage)
    if found is None:
        raise ConfigError(f"{run}: the run has no checkpoint that can be read")
    return found[0]
