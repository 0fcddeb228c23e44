"""A run's checkpoints: when there is one, what it brings back, and going back to one that was better."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from palestra.assemble import Parts
from palestra.config import ConfigError
from palestra.display import Display
from palestra.experience import Experience
from palestra.guard import BoundBroken, Collapsed
from palestra.interrupts import Interrupted
from palestra.learn import checkpoint
from palestra.run import Run, State, state_from_dict, state_to_dict

log = logging.getLogger(__name__)


def save(run: Run, parts: Parts, state: State, others: Mapping[str, bytes] | None = None, *, is_extra: bool = False) -> None:
    """A checkpoint of this state, unless the run is to have none.

    Others go that are more than those to keep, extra ones first; an extra one spares what a guard needs.
    """
    if not run.config.save.every:
        return
    with run.interrupts.saving():
        checkpoint.save(run.checkpoint(state.step), parts.learner, parts.tokenizer, state_to_dict(state), others)
        is_spared = is_extra and run.config.guard is not None and run.config.guard.action == "rollback"
        if is_spared or not parts.learner.parallel.world.is_first:
            return
        earlier = [step for path in checkpoint.all_in(run.checkpoints) if (step := checkpoint.step_of(path)) < state.step]
        earlier.sort(key=lambda step: (is_due(run, step), step))  # later ones are damaged, or this run would have begun with them
        for step in earlier[: max(len(earlier) + 1 - run.config.save.keep, 0)]:
            checkpoint.remove(run.checkpoint(step))


def is_due(run: Run, step: int) -> bool:
    every = run.config.save.every
    return every > 0 and step % every == 0


@contextmanager
def saved_if_left(run: Run, parts: Parts, state: State, experience: Experience) -> Iterator[None]:
    """What can be abandoned: the weights are those of `state`, and nothing in here changes them."""
    try:
        with run.interrupts.allowed():
            yield
    except Interrupted:
        if not (run.checkpoint(state.step) / checkpoint.STATE).is_file():
            save(run, parts, state, experience.files(), is_extra=True)
        raise


def resume(run: Run, parts: Parts, display: Display) -> State | None:
    """Back to the newest checkpoint that is not damaged; None where there is none at all."""

    def tell(damage: str) -> None:
        log.warning(damage)
        display.note(damage)

    world = parts.learner.parallel.world
    if world.is_first:
        checkpoint.tidy(run.checkpoints)
    world.wait()
    found = checkpoint.newest_sound(run.checkpoints, on_damage=tell)
    if found is None:
        run.rewind(-1)
        world.wait()
        return None
    state = _restore(run, parts, *found)
    run.write_config()  # with what was changed for the rest of the run
    world.wait()
    return state


def _restore(run: Run, parts: Parts, folder: Path, values: dict[str, Any]) -> State:
    """The learner, the engine and the run folder as they were at a checkpoint."""
    state = state_from_dict(values)
    if run.config.algo.keeps_reference:
        if not (run.folder / "reference").is_dir():
            raise ConfigError("algo: the run was begun without a reference model, so one cannot be asked for when it is resumed")
        if (run.folder / "reference" / checkpoint.STATE).exists():  # those of older versions have none
            checkpoint.read_state(run.folder / "reference")
        checkpoint.load_weights(run.folder / "reference", parts.learner.model)
        parts.learner.remember_reference()
    checkpoint.restore(folder, parts.learner)
    parts.learner.updates_skipped = state.updates_skipped
    parts.loop.run(parts.engine.load(version=state.step))
    run.rewind(state.step)
    parts.learner.parallel.world.wait()
    return state


def go_back(run: Run, parts: Parts, broken: BoundBroken, display: Display) -> State:
    """To the last checkpoint from before the window, with the noise of sampling drawn anew. What came after it is forgotten.

    Wherever this is interrupted, a resumed run comes to the same: until the checkpoint is replaced, it breaks the same bound again.
    """
    guard = run.config.guard
    assert guard is not None
    found = checkpoint.newest_sound(run.checkpoints, wanted=lambda step: is_due(run, step) and step <= broken.step - guard.window)
    if found is None:
        raise Collapsed(f"{broken}; there is no checkpoint from before these steps to go back to")
    if broken.rollbacks >= guard.most_rollbacks:
        raise Collapsed(f"{broken}; the run went back {broken.rollbacks} times (guard.rollbacks), and that did not help")
    back_to = checkpoint.step_of(found[0])
    line = f"{broken}; back to step {back_to} ({broken.rollbacks + 1} of {guard.most_rollbacks} times)"
    log.warning("%s", line)
    display.note(line)
    world = parts.learner.parallel.world
    world.wait()
    for later in reversed(checkpoint.all_in(run.checkpoints)) if world.is_first else ():
        if checkpoint.step_of(later) > back_to:
            checkpoint.remove(later)
    state = _restore(run, parts, *found)
    state = replace(state, guard=replace(state.guard, rollbacks=broken.rollbacks + 1))
    save(run, parts, state, is_extra=True)
    return state
