"""The loop. Read `train` and you know what the framework does."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import asdict, replace

from palestra.algos.base import Algorithm
from palestra.config.agent import AgentSettings
from palestra.config.guard import GuardSettings
from palestra.core import process_group as world
from palestra.core.evaluation import EvalResult
from palestra.core.files import CannotWrite
from palestra.core.types import Group, Stop, Task
from palestra.learner import checkpoint
from palestra.learner.token_stats import TokenStats
from palestra.rollout import metrics
from palestra.rollout.evaluation import evaluate, held_out, summarize
from palestra.rollout.groups import RolloutBatch
from palestra.runs.run import Run
from palestra.runs.state import State
from palestra.training import limits
from palestra.training.async_source import AsyncSource
from palestra.training.checkpointing import checkpoint_on_interrupt, is_due, resume, rollback, save
from palestra.training.data_sources import DataSource, StepData, data_source_for, horizon_of
from palestra.training.display import Display
from palestra.training.guard import GuardTripped, RollbackRequested, watch
from palestra.training.prefetch import PrefetchSource
from palestra.training.preflight import Prepared
from palestra.training.setup import Components, setup
from palestra.training.tracking import tracked
from palestra.training.warm_start import warm_start

log = logging.getLogger(__name__)

MOST_CUT = 0.5
"""A larger share of a step's episodes that end by `context` or `length` is worth a warning."""


def train(
    run: Run, components: Components, source: DataSource, state: State, display: Display
) -> State:
    """Collect episodes, compute advantages, update the policy, sync the weights; repeat.

    Episodes may be played during the update: with `rollout.prefetch` those of the next step, and
    weights are synced when both are done; with `rollout.max_staleness` those of the next few steps,
    and weights are synced between their turns.
    """
    config, learner, algo = run.config, components.learner, run.config.algo
    budgets = _Budgets(config.agent, display)
    is_over = limits.is_over(run, state, learner.parallel.world)
    while not is_over:
        with checkpoint_on_interrupt(run, components, state, source):
            _measure_if_due(run, components, state, display)
            step = state.step + 1
            display.begin_step(step)
            with run.timed("collect"):
                data = source.next_batch(state, display.episode_done)
        # Prefetched data carries the state of an earlier step, so tokens and guard come from ours.
        state = replace(data.state, step=step, tokens=state.tokens + data.tokens, guard=state.guard)
        components.engine.sleep()

        with source.overlap(state, display.episode_done), run.timed("learn"):
            stats, token_stats = {}, None
            if data.from_reference:
                learner.return_to_reference()
            if data.groups:
                batch = algo.add_advantages(learner.prepare(data.groups, algo))
                if config.save.token_stats and algo.is_on_policy:
                    token_stats = TokenStats(batch, _ids(data.groups, algo))
                progress = algo.lr_progress(step, limits.expected_steps(config, state))
                lr = config.optim.lr_at(*progress)
                stats = learner.update(batch, algo, lr=lr, step=step, watch=token_stats)
            if token_stats is not None:
                token_stats.gather(learner.parallel.world)
        with run.timed("learn"):
            components.loop.run(components.engine.sync_weights(version=step))

        state = replace(state, updates_skipped=learner.updates_skipped)
        state = _record(run, state, data, token_stats, stats, display)
        budgets.check(step, data.rollouts)

        is_over = limits.is_over(run, state, learner.parallel.world)
        if is_due(run, step) or is_over:
            save(run, components, state, source.files())
    return state


def make_data_source(run: Run, components: Components, state: State) -> DataSource:
    """The run's data source, positioned after `state`: it collects before each update, or
    concurrently with it.
    """
    if run.config.rollout.max_staleness:
        return AsyncSource(run, components, state)
    source = data_source_for(run, components, state)
    if run.config.rollout.prefetch:
        return PrefetchSource(run, components, source, state)
    return source


def _record(
    run: Run,
    state: State,
    data: StepData,
    token_stats: TokenStats | None,
    stats: Mapping[str, float],
    display: Display,
) -> State:
    """Write a step's episodes and metrics to the run folder, and show the metrics to the guard.

    Returns the state with the guard's memory updated.
    """
    config, rollouts = run.config, data.rollouts
    played: dict[str, float] = {}
    if rollouts is not None:
        run.keep(f"step-{state.step:06d}", rollouts.trajectories)
        if token_stats is not None:
            run.write_token_stats(state.step, token_stats.episodes())
        played = metrics.of_play(rollouts, config.algo, [spec.label for spec in config.env_specs])
        if config.rollout.is_overlapped:
            played |= metrics.of_staleness(rollouts, version=state.step - 1)
        played |= data.figures
    figures, before = played | dict(stats), state.guard
    if config.guard is None:
        display.end_step(run.log(state.step, figures))
        return state
    memory, broken = watch(config.guard, before, figures)
    figures |= {f"guard/{bound}": float(bound in broken) for bound in config.guard.bounds}
    display.end_step(run.log(state.step, figures | {"guard/rollbacks": float(memory.rollbacks)}))
    _act_on(broken, config.guard, state, display)
    return replace(state, guard=memory)


def _act_on(
    broken: Mapping[str, str], guard: GuardSettings, state: State, display: Display
) -> None:
    """Warn, stop or roll back, as `guard.action` says. A warning is given once, until the figure is
    within its bound again.
    """
    told = state.guard.broken if guard.action == "warn" else ()
    new = [what for bound, what in broken.items() if bound not in told]
    if not new:
        return
    reason = f"step {state.step}: {'; '.join(new)}"
    if guard.action == "rollback":
        raise RollbackRequested(reason, state.step, state.guard.rollbacks)
    if guard.action == "stop":
        raise GuardTripped(f"{reason}; to continue anyway: --guard.action warn")
    log.warning("%s", reason)
    display.note(reason)


class _Budgets:
    """Warns once when most episodes of a step end at a token budget. Warns again only after a step
    in which that was not so.
    """

    def __init__(self, settings: AgentSettings, display: Display) -> None:
        self._settings, self._display = settings, display
        self._is_told = False

    def check(self, step: int, rollouts: RolloutBatch | None) -> None:
        stops: list[Stop] = []
        for group in rollouts.played if rollouts is not None else ():
            stops += [trajectory.stop for trajectory in group.valid]
        if not stops:
            return
        by_context = stops.count(Stop.CONTEXT) / len(stops)
        by_reply = stops.count(Stop.LENGTH) / len(stops)
        cut = by_context + by_reply
        if cut > MOST_CUT and not self._is_told:
            agent = self._settings
            causes = []
            if by_context:
                causes.append(
                    f"{by_context:.0%} by agent.context_tokens = {agent.context_tokens} "
                    "(raise it, or shorten what the environment says)"
                )
            if by_reply:
                causes.append(
                    f"{by_reply:.0%} by agent.reply_tokens = {agent.reply_tokens} "
                    "(raise it, or ask for shorter replies)"
                )
            warning = (
                f"step {step}: {cut:.0%} of the episodes were cut off by a token budget: "
                f"{', '.join(causes)}"
            )
            log.warning("%s", warning)
            self._display.note(warning)
        self._is_told = cut > MOST_CUT


def _measure_if_due(run: Run, components: Components, state: State, display: Display) -> None:
    """The evaluation between two steps, unless it was made before an interruption."""
    every, step = run.config.eval.every, state.step
    if not every or step % every != 0 or not 0 < step < run.config.steps:
        return
    for row in run.metrics():
        if row["step"] == step and row.get("phase") == "interim":
            return
    measure(run, components, state, "interim", run.config.eval.interim_tasks, display)


def _ids(groups: list[Group], algo: Algorithm) -> list[str]:
    """Of the episodes of a batch, in its order."""
    ids: list[str] = []
    for group in groups:
        ids += [trajectory.id for trajectory in algo.learnable(group)]
    return ids


def begin(run: Run, components: Components, display: Display) -> State:
    """Before the first step: evaluate the model; if the recipe has a warm start, do it and evaluate
    again; save the first checkpoint.
    """
    state = State()
    measure(run, components, state, "raw", run.config.eval.tasks, display)
    if run.config.warm_start is not None:
        with run.timed("warm_start"):
            result = warm_start(components, run.config.warm_start, display)
        figures = {f"warm_start/{name}": value for name, value in asdict(result).items()}
        row = run.log(0, {"phase": "imitation", **figures})
        display.note(
            f"warm start: {result.updates} updates on {result.episodes} expert episodes "
            f"in {row['time/warm_start']:.0f} s"
        )
        measure(run, components, state, "warm start", run.config.eval.tasks, display)
    if run.config.algo.keeps_reference:
        components.learner.remember_reference()
        run.check_folder()
        checkpoint.keep_reference(
            run.folder / "reference", components.learner, components.tokenizer
        )
    save(run, components, state)
    return state


def measure(
    run: Run, components: Components, state: State, phase: str, count: int, display: Display
) -> EvalResult:
    """Evaluate on held-out tasks of every environment and write the result to the run folder."""
    config, specs = run.config, run.config.env_specs
    tasks: list[Task] = []
    for spec in specs:
        tasks += held_out(components.tasks(spec.label, config.eval.split), count)
    display.begin_eval(phase, len(tasks) * config.eval.k)
    components.loop.run(components.engine.sync_weights(version=state.step))
    with run.timed("eval"):
        played = components.loop.run(
            evaluate(
                components.eval_context,
                tasks,
                k=config.eval.k,
                horizons={spec.label: config.eval_horizon(spec) for spec in specs},
                seed=config.seed,
                step=state.step,
                phase=phase.replace(" ", "-"),
                on_done=display.episode_done,
            )
        )
    horizons = {}
    for spec in specs:
        full, (now, _) = config.eval_horizon(spec), horizon_of(spec, state)
        horizons[spec.label] = [min(now, full), full]
    result = summarize(
        played,
        phase=phase,
        step=state.step,
        split=config.eval.split,
        k=config.eval.k,
        horizons=horizons,
    )
    run.keep_eval(result, played)
    display.end_eval(phase, result)
    return result


def _train_guarded(run: Run, components: Components, state: State, display: Display) -> State:
    """`train`, and again from an earlier checkpoint whenever the guard requests a rollback."""
    while True:
        try:
            with closing(make_data_source(run, components, state)) as source:
                return train(run, components, source, state, display)
        except RollbackRequested as broken:
            state = rollback(run, components, broken, display)


def run_training(
    run: Run,
    display: Display,
    *,
    env_urls: Mapping[str, Sequence[str]] | None = None,
    prepared: Prepared | None = None,
) -> EvalResult:
    """A whole run, from its first step or from where it was interrupted,
    with a final evaluation.
    """
    with run.locked() if world.current().is_first else nullcontext():
        try:
            return _run_training(run, display, env_urls, prepared)
        except CannotWrite:
            # If the whole folder is gone, its own error says so; a file's name would mislead.
            run.check_folder()
            raise


def _run_training(
    run: Run,
    display: Display,
    env_urls: Mapping[str, Sequence[str]] | None,
    prepared: Prepared | None,
) -> EvalResult:
    display.phase("setting up")
    components = setup(run.config, env_urls, prepared)
    try:
        state = resume(run, components, display)
        is_first = components.learner.parallel.world.is_first
        since = -1 if state is None else state.step
        with tracked(run, since=since) if is_first else nullcontext():
            if state is None:
                state = begin(run, components, display)
            else:
                display.note(f"resumed after step {state.step}")
            with run.interrupts.held():
                state = _train_guarded(run, components, state, display)
            if state.step < run.config.steps:
                display.note(
                    f"the limit ended training after step {state.step} of {run.config.steps}"
                )
            return measure(run, components, state, "final", run.config.eval.tasks, display)
    finally:
        components.close()
