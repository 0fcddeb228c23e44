"""Evaluate what a configuration describes: a model, or a baseline that needs none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import msgspec

from palestra.agents import agents
from palestra.config.config import Config, warn_of_dropped
from palestra.config.model import PretrainedModel
from palestra.core.evaluation import EvalResult
from palestra.core.event_loop import EventLoop
from palestra.core.types import Sampling, Task
from palestra.engines.base import NoEngine
from palestra.envs.serving.handles import listed
from palestra.envs.task_ids import tasks_in
from palestra.models.folder import check_model
from palestra.rollout.episode import RolloutContext
from palestra.rollout.evaluation import evaluate, held_out, summarize
from palestra.runs.run import Run
from palestra.training.display import Display
from palestra.training.preflight import Prepared, close_envs, guarded, make_envs, prepare

UNBOUNDED = 1 << 30


def evaluate_config(
    config: Config,
    *,
    agent: str | None,
    own_horizon: bool,
    ids: Path | None = None,
    display: Display | None = None,
    keep: Path | None = None,
) -> EvalResult:
    """Play the held-out tasks with the configured model, or with the `expert` or `random` baseline.

    `own_horizon`: use the configured horizon; otherwise the environment's own. `ids`: a file that
    names the tasks, of any split. `keep`: a new run folder for the episodes and the result.
    """
    display = display or Display()
    if keep is not None:
        Run.check_new(keep)
    if agent is None and isinstance(config.model, PretrainedModel):
        check_model(config.model.path)
    envs = make_envs(config)
    horizons = {}
    for spec in config.env_specs:
        known = spec.horizon.full if own_horizon else envs[spec.label].max_turns
        full = config.eval.horizon or known
        horizons[spec.label] = [min(known, full), full]
    tasks: list[Task] = []
    if ids is None:
        for spec in config.env_specs:
            with guarded(spec, f"tasks({config.eval.split!r})"):
                own = listed(spec.label, envs[spec.label], config.eval.split)
            tasks += [replace(task, env=spec.label) for task in held_out(own, config.eval.tasks)]
    else:
        longest_s = max(spec.env.deadline_s for spec in config.env_specs)
        tasks = tasks_in(ids, envs, deadline_s=longest_s)
        named = {task.env for task in tasks}
        horizons = {label: turns for label, turns in horizons.items() if label in named}
    warn_of_dropped(config)
    prepared = prepare(config, envs) if agent is None else Prepared(envs, None)
    step = _step_of(config) if agent is None else 0
    with playing(config, agent, prepared) as (context, loop):
        # The folder is created last: a mistake in the tasks or the model leaves none behind.
        run = Run.create(keep, config) if keep is not None else None
        display.begin_eval(agent or "model", len(tasks) * config.eval.k)
        played = loop.run(
            evaluate(
                context,
                tasks,
                k=config.eval.k,
                horizons={label: full for label, (_, full) in horizons.items()},
                seed=config.seed,
                step=step,
                on_done=display.episode_done,
            )
        )
    result = summarize(
        played,
        phase=agent or "eval",
        step=step,
        split=config.eval.split if ids is None else "ids",
        k=config.eval.k,
        horizons=horizons,
    )
    if ids is not None:
        splits = dict(Counter(task.split for task in tasks))
        result = msgspec.structs.replace(result, ids=str(ids), splits=splits)
    if run is not None:
        run.keep_eval(result, played)
    return result


@contextmanager
def playing(
    config: Config, agent: str | None, prepared: Prepared
) -> Iterator[tuple[RolloutContext, EventLoop]]:
    """A rollout context for the model or the baseline. Closes the environments at the end."""
    from palestra.models.tokenizers import byte_tokenizer
    from palestra.training.setup import bind_envs, setup

    if agent is None:
        components = setup(config, prepared=prepared)
        try:
            components.loop.run(components.engine.sync_weights(version=0))
            yield components.eval_context, components.loop
        finally:
            components.close()
        return
    bindings = bind_envs(config, prepared.envs, byte_tokenizer())
    for spec in bindings.values():
        spec.prompt.context_tokens = UNBOUNDED
    with closing(EventLoop()) as loop:
        try:
            context = RolloutContext(
                bindings,
                NoEngine(),
                Sampling(max_tokens=4096),
                agents[agent],
                concurrency=config.rollout.concurrency,
                retries=config.rollout.retries,
            )
            yield context, loop
        finally:
            for spec in bindings.values():
                loop.run(spec.pool.close())
            close_envs(config, prepared.envs)


def _step_of(config: Config) -> int:
    """The training step of the model's checkpoint; 0 if the model is not a checkpoint."""
    from palestra.learner import checkpoint

    if not isinstance(config.model, PretrainedModel):
        return 0
    folder = Path(config.model.path)
    if not (folder / checkpoint.STATE).is_file():
        return 0
    return int(checkpoint.read_state(folder)["step"])
