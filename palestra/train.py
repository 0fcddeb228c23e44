"""The loop. Read `train` and you know what the framework does."""

from __future__ import annotations

import logging
from dataclasses import asdict, replace
from typing import Any

from palestra import metrics
from palestra.algos.base import Algorithm
from palestra.assemble import Parts, TaskStream, assemble, held_out
from palestra.config import ConfigError
from palestra.display import Display
from palestra.evaluate import evaluate, summarise
from palestra.learn import checkpoint
from palestra.model import load_model
from palestra.rollout import Collected, collect
from palestra.run import Run, State, state_from_dict, state_to_dict
from palestra.types import Group, Task
from palestra.warm_start import warm_start

log = logging.getLogger(__name__)


def train(run: Run, parts: Parts, state: State, display: Display) -> State:
    """Collect, credit, learn, hand the new weights over; again."""
    config, learner, algo = run.config, parts.learner, run.config.algo
    tasks = TaskStream(parts.env.tasks("train"), config.seed)

    while state.step < config.steps:
        step = state.step + 1
        horizon, stage = config.horizon(state.progress), config.horizon.stage(state.progress)
        display.begin_step(step, horizon, stage)

        with run.timed("collect"):
            collected, state = _collect(parts, tasks, state, horizon, display)
        played = metrics.of_play(collected, algo)

        with run.timed("learn"):
            stats = {}
            if groups := _learnable(collected, algo):
                batch = learner.prepare(groups, algo)  # packed, with old and reference log-probs where needed
                batch = batch.with_(advantage_C=algo.advantages(batch))
                stats = learner.update(batch, algo, lr=config.optim.lr_at(state.step, config.steps), step=step)
            parts.loop.run(parts.engine.load(version=step))

        state = replace(state, step=step, success=(*state.success, played["success"]), updates_skipped=learner.updates_skipped)
        run.keep(f"step-{step:06d}", [t for group in collected.played for t in group.trajectories] + collected.faulted)
        display.end_step(run.log(step, {"horizon": horizon, "stage": stage, **played, **stats}))

        if config.eval.every and step % config.eval.every == 0 and step < config.steps:
            measure(run, parts, state, "interim", config.eval.interim_tasks, display)
        if step % config.save.every == 0 or step == config.steps:
            save(run, parts, state)
    return state


def _collect(parts: Parts, tasks: TaskStream, state: State, horizon: int, display: Display) -> tuple[Collected, State]:
    """The episodes of one step, and the state with the tasks that were drawn for them."""
    rollout = parts.config.rollout
    drawn = state.tasks_drawn

    def draw(count: int) -> list[Task]:
        nonlocal drawn
        drawn += count
        return tasks.slice(drawn - count, count)

    collected = parts.loop.run(
        collect(
            parts.arena,
            draw,
            tasks=rollout.tasks,
            group=rollout.group,
            horizon=horizon,
            seed=parts.config.seed,
            step=state.step + 1,
            redraws=rollout.redraws,
            has_signal=parts.config.algo.has_signal,
            on_done=display.episode_done,
        )
    )
    return collected, replace(state, tasks_drawn=drawn)


def _learnable(collected: Collected, algo: Algorithm) -> list[Group]:
    """The groups with something to learn from. A step of nothing but faults means that the environment is broken: stop."""
    if not any(group.valid for group in collected.groups):
        last = collected.groups[-1].trajectories[-1]
        raise RuntimeError(f"every episode of this step ended in a fault; the last one: {last.stop}: {last.fault}")
    groups = [group for group in collected.groups if algo.learnable(group)]
    if not groups:
        log.warning("no episode of this step may be learnt from (all of them are faults or overlong)")
    return groups


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
    if "reference" in run.config.algo.needs:
        parts.learner.remember_reference()
        checkpoint.export(run.folder / "reference", parts.learner.model, parts.tokenizer)
    save(run, parts, state)
    return state


def resume(run: Run, parts: Parts) -> State | None:
    """Back to the newest checkpoint; None where there is none."""
    folder = checkpoint.newest(run.checkpoints)
    if folder is None:
        run.rewind(-1)
        return None
    state = state_from_dict(checkpoint.read_state(folder))
    checkpoint.restore(folder, parts.learner)
    parts.learner.updates_skipped = state.updates_skipped
    if "reference" in run.config.algo.needs:
        if not (run.folder / "reference").is_dir():
            raise ConfigError("algo: the run was begun without a reference model, so KL to one cannot be switched on when it is resumed")
        model = parts.learner.model
        parts.learner.remember_reference(load_model(run.folder / "reference", device=model.device, dtype=model.dtype))
    parts.loop.run(parts.engine.load(version=state.step))
    run.rewind(state.step)
    run.write_config()  # with what was changed for the rest of the run
    return state


def save(run: Run, parts: Parts, state: State) -> None:
    """A checkpoint of this state; the oldest ones beyond those to keep go."""
    checkpoint.save(run.checkpoint(state.step), parts.learner, parts.tokenizer, state_to_dict(state))
    for old in sorted(run.checkpoints.glob("step-*"))[: -run.config.save.keep]:
        checkpoint.remove(old)


def measure(run: Run, parts: Parts, state: State, phase: str, count: int, display: Display) -> dict[str, Any]:
    """Evaluate on held-out tasks; the result goes into the run folder."""
    config = run.config
    tasks = held_out(parts.env.tasks(config.eval.split), count)
    display.begin_eval(phase, len(tasks) * config.eval.k)
    parts.loop.run(parts.engine.load(version=state.step))
    with run.timed("eval"):
        played = parts.loop.run(
            evaluate(
                parts.eval_arena,
                tasks,
                k=config.eval.k,
                horizon=config.eval_horizon,
                seed=config.seed,
                step=state.step,
                phase=phase.replace(" ", "-"),
                on_done=display.episode_done,
            )
        )
    horizons = [min(config.horizon(state.progress), config.eval_horizon), config.eval_horizon]
    result: dict[str, Any] = {"phase": phase, "step": state.step, "env": config.env.name, "split": config.eval.split}
    result |= summarise(played, k=config.eval.k, horizons=horizons)
    name = f"step-{state.step:06d}-{phase.replace(' ', '-')}"
    run.write_eval(name, result)
    run.keep(f"eval-{name}", played)
    full = result["horizons"][str(config.eval_horizon)]["all"]
    low, high = full.success_interval
    row = {"phase": phase, "eval/success": full.success, "eval/low": low, "eval/high": high, "eval/reward": full.reward}
    run.log(state.step, row | {"eval/turns": full.turns, "eval/tasks": full.tasks})
    display.end_eval(phase, result, config.eval_horizon)
    return result


def run_training(run: Run, display: Display) -> dict[str, Any]:
    """A whole run, from its first step or from where it was interrupted, with a final evaluation."""
    display.phase("setting up")
    parts = assemble(run.config)
    try:
        state = resume(run, parts)
        if state is None:
            state = begin(run, parts, display)
        else:
            display.note(f"resumed after step {state.step}")
        state = train(run, parts, state, display)
        return measure(run, parts, state, "final", run.config.eval.tasks, display)
    finally:
        parts.close()
