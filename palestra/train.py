"""The loop. Read `train` and you know what the framework does."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from typing import Any

from palestra import metrics
from palestra.ahead import Ahead
from palestra.algos.base import Algorithm
from palestra.assemble import Parts, assemble, held_out
from palestra.config import ConfigError
from palestra.display import Display
from palestra.evaluate import evaluate, summarise
from palestra.experience import Experience, Gathered, experience_of, horizon_of
from palestra.interrupts import Interrupted
from palestra.learn import checkpoint
from palestra.learnt import Learnt
from palestra.run import Run, State, state_from_dict, state_to_dict
from palestra.streaming import Streaming
from palestra.track import tracked
from palestra.types import Group
from palestra.warm_start import warm_start

log = logging.getLogger(__name__)


def train(run: Run, parts: Parts, experience: Experience, state: State, display: Display) -> State:
    """Gather experience, credit, learn, hand the new weights over; again.

    Episodes may be played while the learner is at work: with `rollout.ahead` those of the next step, and weights are handed over when
    both are done; with `rollout.staleness` those of the next few, and weights are handed over between their turns.
    """
    config, learner, algo = run.config, parts.learner, run.config.algo
    while state.step < config.steps:
        with _saved_if_left(run, parts, state, experience):
            _measure_if_due(run, parts, state, display)
            step = state.step + 1
            display.begin_step(step)
            with run.timed("collect"):
                gathered = experience.gather(state, display.episode_done)
        state = replace(gathered.state, step=step)
        parts.engine.rest()

        with experience.meanwhile(state, display.episode_done), run.timed("learn"):
            stats, learnt = {}, None
            if gathered.from_reference:
                learner.return_to_reference()
            if gathered.groups:
                batch = algo.credit(learner.prepare(gathered.groups, algo))  # packed, with what the algorithm needs to know of it
                learnt = Learnt(batch, _ids(gathered.groups, algo)) if config.save.learnt and algo.source == "play" else None
                lr = config.optim.lr_at(*algo.lr_place(step, config.steps))
                stats = learner.update(batch, algo, lr=lr, step=step, watch=learnt)
        with run.timed("learn"):
            parts.loop.run(parts.engine.load(version=step))

        state = replace(state, updates_skipped=learner.updates_skipped)
        display.end_step(_record(run, state, gathered, learnt, stats))

        if step % config.save.every == 0 or step == config.steps:
            save(run, parts, state, experience.files())
    return state


def source_of(run: Run, parts: Parts, state: State) -> Experience:
    """Where the run's trajectories come from, after `state`: before each step, or beside the learner's work."""
    if run.config.rollout.staleness:
        return Streaming(run, parts, state)
    experience = experience_of(run, parts, state)
    return Ahead(run, parts, experience, state) if run.config.rollout.ahead else experience


@contextmanager
def _saved_if_left(run: Run, parts: Parts, state: State, experience: Experience) -> Iterator[None]:
    """What can be abandoned: the weights are those of `state`, and nothing in here changes them."""
    try:
        with run.interrupts.allowed():
            yield
    except Interrupted:
        if not (run.checkpoint(state.step) / checkpoint.STATE).is_file():
            save(run, parts, state, experience.files())
        raise


def _record(run: Run, state: State, gathered: Gathered, learnt: Learnt | None, stats: dict[str, float]) -> dict[str, Any]:
    """What a step played and learnt goes into the run folder. Returns its row of the metrics."""
    config, collected = run.config, gathered.collected
    played = {}
    if collected is not None:
        run.keep(f"step-{state.step:06d}", collected.trajectories)
        if learnt is not None:
            run.keep_learnt(state.step, learnt.episodes())
        played = metrics.of_play(collected, config.algo, [place.label for place in config.playgrounds])
        played |= metrics.of_staleness(collected, version=state.step - 1) if config.rollout.is_overlapped else {}
        played |= gathered.figures
    return run.log(state.step, played | stats)


def _measure_if_due(run: Run, parts: Parts, state: State, display: Display) -> None:
    """The evaluation between two steps, unless it was made already."""
    config = run.config
    if config.eval.every and state.step % config.eval.every == 0 and 0 < state.step < config.steps:
        if any(row["step"] == state.step and row.get("phase") == "interim" for row in run.metrics()):
            return
        measure(run, parts, state, "interim", config.eval.interim_tasks, display)


def _ids(groups: list[Group], algo: Algorithm) -> list[str]:
    """Of the episodes of a batch, in its order."""
    return [trajectory.id for group in groups for trajectory in algo.learnable(group)]


def begin(run: Run, parts: Parts, display: Display) -> State:
    """Before the first step: measure the model, warm it up where the recipe says so, measure again, keep it."""
    state = State()
    measure(run, parts, state, "raw", run.config.eval.tasks, display)
    if run.config.warm_start is not None:
        display.phase("warm start: imitating expert episodes")
        with run.timed("warm_start"):
            result = warm_start(parts, run.config.warm_start)
        row = run.log(0, {"phase": "imitation", **{f"warm_start/{name}": value for name, value in asdict(result).items()}})
        display.note(f"warm start: {result.updates} updates on {result.episodes} expert episodes in {row['time/warm_start']:.0f} s")
        measure(run, parts, state, "warm start", run.config.eval.tasks, display)
    if run.config.algo.keeps_reference:
        parts.learner.remember_reference()
        checkpoint.export(run.folder / "reference", parts.learner.model, parts.tokenizer)
    save(run, parts, state)
    return state


def resume(run: Run, parts: Parts, display: Display) -> State | None:
    """Back to the newest checkpoint that is not damaged; None where there is none at all."""

    def tell(damage: str) -> None:
        log.warning(damage)
        display.note(damage)

    checkpoint.tidy(run.checkpoints)
    found = checkpoint.newest_sound(run.checkpoints, on_damage=tell)
    if found is None:
        run.rewind(-1)
        return None
    folder, values = found
    state = state_from_dict(values)
    if run.config.algo.keeps_reference:
        if not (run.folder / "reference").is_dir():
            raise ConfigError("algo: the run was begun without a reference model, so one cannot be asked for when it is resumed")
        checkpoint.load_weights(run.folder / "reference", parts.learner.model)
        parts.learner.remember_reference()
    checkpoint.restore(folder, parts.learner)
    parts.learner.updates_skipped = state.updates_skipped
    parts.loop.run(parts.engine.load(version=state.step))
    run.rewind(state.step)
    run.write_config()  # with what was changed for the rest of the run
    return state


def save(run: Run, parts: Parts, state: State, others: Mapping[str, bytes] | None = None) -> None:
    """A checkpoint of this state; the oldest ones beyond those to keep go."""
    with run.interrupts.saving():
        checkpoint.save(run.checkpoint(state.step), parts.learner, parts.tokenizer, state_to_dict(state), others)
        until_now = [path for path in checkpoint.all_in(run.checkpoints) if checkpoint.step_of(path) <= state.step]
        for old in until_now[: -run.config.save.keep]:  # those of later steps are damaged, or this run would have begun with them
            checkpoint.remove(old)


def measure(run: Run, parts: Parts, state: State, phase: str, count: int, display: Display) -> dict[str, Any]:
    """Evaluate on held-out tasks of every environment; the result goes into the run folder."""
    config, places = run.config, run.config.playgrounds
    tasks = [task for place in places for task in held_out(parts.tasks(place.label, config.eval.split), count)]
    display.begin_eval(phase, len(tasks) * config.eval.k)
    parts.loop.run(parts.engine.load(version=state.step))
    with run.timed("eval"):
        played = parts.loop.run(
            evaluate(
                parts.eval_arena,
                tasks,
                k=config.eval.k,
                horizons={place.label: config.eval_horizon(place) for place in places},
                seed=config.seed,
                step=state.step,
                phase=phase.replace(" ", "-"),
                on_done=display.episode_done,
            )
        )
    horizons = {}
    for place in places:
        full, (now, _) = config.eval_horizon(place), horizon_of(place, state)
        horizons[place.label] = [min(now, full), full]
    result: dict[str, Any] = {"phase": phase, "step": state.step, "split": config.eval.split}
    result |= summarise(played, k=config.eval.k, horizons=horizons)
    name = f"step-{state.step:06d}-{phase.replace(' ', '-')}"
    run.write_eval(name, result)
    run.keep(f"eval-{name}", played)
    run.log(state.step, {"phase": phase, **metrics.of_eval(result)})
    display.end_eval(phase, result)
    return result


def run_training(run: Run, display: Display, *, env_urls: Mapping[str, Sequence[str]] | None = None) -> dict[str, Any]:
    """A whole run, from its first step or from where it was interrupted, with a final evaluation."""
    display.phase("setting up")
    parts = assemble(run.config, env_urls)
    try:
        state = resume(run, parts, display)
        with tracked(run, since=-1 if state is None else state.step):
            if state is None:
                state = begin(run, parts, display)
            else:
                display.note(f"resumed after step {state.step}")
            with closing(source_of(run, parts, state)) as experience, run.interrupts.held():
                state = train(run, parts, experience, state, display)
            return measure(run, parts, state, "final", run.config.eval.tasks, display)
    finally:
        parts.close()
