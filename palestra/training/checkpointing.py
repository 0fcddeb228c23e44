"""A run's checkpoints: when one is saved, how a run is resumed from it, and the rollback to an
earlier one.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from palestra.algos.sources import ExpertIteration
from palestra.core.errors import ConfigError
from palestra.core.files import open_regular, writing
from palestra.core.interrupts import Interrupted
from palestra.learner import checkpoint
from palestra.runs.resume import described_changes, refuse_changes, tree_of
from palestra.runs.run import Run
from palestra.runs.state import State, state_from_dict, state_to_dict
from palestra.training.data_sources import DataSource
from palestra.training.display import Display
from palestra.training.guard import GuardTripped, RollbackRequested
from palestra.training.setup import Components

log = logging.getLogger(__name__)

CONFIG, RECORDS = "config", "records"
"""In a checkpoint's state, next to the fields of `State`: the run's configuration, and digests of
the files that it needs outside the checkpoint.
"""
METRICS = "metrics.jsonl"


class Record(msgspec.Struct, frozen=True):
    """The content of a file outside the checkpoint when the checkpoint was written. The file may
    have grown since.
    """

    bytes: int
    lines: int
    sha256: str


def save(
    run: Run,
    components: Components,
    state: State,
    others: Mapping[str, bytes] | None = None,
    *,
    is_extra: bool = False,
) -> None:
    """Write a checkpoint of this state, unless `save.every` is 0, and delete those that are more
    than `save.keep`, extra ones first.

    An extra checkpoint is one between those of `save.every`. It deletes none if the guard may roll
    back, since the guard needs the regular ones.
    """
    if not run.config.save.every:
        return
    with run.interrupts.saving():
        run.check_folder()
        described = {
            **state_to_dict(state),
            CONFIG: tree_of(run.config),
            RECORDS: _records(run, state),
        }
        checkpoint.save(
            run.checkpoint(state.step), components.learner, components.tokenizer, described, others
        )
        is_spared = (
            is_extra and run.config.guard is not None and run.config.guard.action == "rollback"
        )
        if is_spared or not components.learner.parallel.world.is_first:
            return
        # Later ones stay: they are damaged, or this run would have been resumed from them.
        steps = [checkpoint.step_of(path) for path in checkpoint.all_in(run.checkpoints)]
        earlier = [step for step in steps if step < state.step]
        earlier.sort(key=lambda step: (is_due(run, step), step))
        for step in earlier[: max(len(earlier) + 1 - run.config.save.keep, 0)]:
            checkpoint.remove(run.checkpoint(step))


def is_due(run: Run, step: int) -> bool:
    every = run.config.save.every
    return every > 0 and step % every == 0


@contextmanager
def checkpoint_on_interrupt(
    run: Run, components: Components, state: State, source: DataSource
) -> Iterator[None]:
    """Around work that an interrupt may abandon: the weights are those of `state`, and nothing in
    the block changes them. Saves a checkpoint if there is none of this step.
    """
    try:
        with run.interrupts.allowed():
            yield
    except Interrupted:
        if not (run.checkpoint(state.step) / checkpoint.STATE).is_file():
            save(run, components, state, source.files(), is_extra=True)
        raise


def resume(run: Run, components: Components, display: Display) -> State | None:
    """Restore the newest checkpoint that is not damaged. Returns None if there is no checkpoint."""

    def tell(damage: str) -> None:
        log.warning(damage)
        display.note(damage)

    world = components.learner.parallel.world
    if world.is_first:
        checkpoint.tidy(run.checkpoints)
    world.wait()
    found = latest_usable(run.checkpoints, on_damage=tell)
    if found is None:
        run.rewind(-1)
        world.wait()
        return None
    folder, values = found
    changed = _changes_since(run, values)
    damage = _damage_of_records(run, values)
    state = _restore(run, components, folder, values, tell=tell, damage=damage)
    if changed and world.is_first:
        tell(f"changed since step {state.step}: {changed}")
    run.write_config()  # with the settings that were changed for the rest of the run
    world.wait()
    return state


def latest_usable(
    folder: Path, *, on_damage: Callable[[str], None]
) -> tuple[Path, dict[str, Any]] | None:
    """The checkpoint that a run is resumed from, and that is evaluated: the newest valid one, with
    its state.
    """
    return checkpoint.latest_valid(folder, on_damage=on_damage, read=_read)


def check_changes(run: Run) -> None:
    """Raise ConfigError if config.toml differs from what the run was started with, before anything
    is loaded.

    The other files of the checkpoints are not verified here: that takes longer, and `resume` does
    it. So it is not known yet which checkpoint will be used, and one that permits the changes is
    enough.
    """
    refused: ConfigError | None = None
    for folder in reversed(checkpoint.all_in(run.checkpoints)):
        try:
            _changes_since(run, checkpoint.read_description(folder)[0])
            return
        except checkpoint.BadCheckpoint:
            continue
        except ConfigError as error:
            refused = refused or error
    if refused is not None:
        raise refused


def _read(folder: Path) -> dict[str, Any]:
    values = checkpoint.read_state(folder)
    try:
        step = state_from_dict(values).step
        msgspec.convert(values.get(RECORDS, {}), dict[str, Record])
        msgspec.convert(values.get(CONFIG, {}), dict[str, Any])
    except msgspec.ValidationError as error:
        raise checkpoint.BadCheckpoint(
            f"{folder / checkpoint.STATE} is damaged: {error}"
        ) from error
    if step != checkpoint.step_of(folder):
        raise checkpoint.BadCheckpoint(f"{folder} is the checkpoint of another step: {step}")
    return values


def _changes_since(run: Run, values: Mapping[str, Any]) -> str:
    """The settings that were changed since a checkpoint, in words. Empty for checkpoints of older
    versions, which do not store the configuration.
    """
    begun = values.get(CONFIG)
    if not isinstance(begun, dict):
        return ""
    refuse_changes(begun, run.config)
    return described_changes(begun, run.config)


def _records(run: Run, state: State) -> dict[str, Record]:
    """Digests of the files outside a checkpoint that a resumed run reads, as they are now."""
    paths = [run.folder / METRICS]
    algo = run.config.algo
    if algo.keeps_reference:
        # Its state has the digests of its other files.
        paths.append(run.folder / "reference" / checkpoint.STATE)
    source = algo.source()
    if isinstance(source, ExpertIteration):
        for step in range(1, state.step + 1):
            if source.explores(step):
                paths.append(run.trajectory_file(f"step-{step:06d}"))
    found = {}
    for path in paths:
        with suppress(OSError), open_regular(path) as file:
            found[str(path.relative_to(run.folder))] = _record_of(file.read())
    return found


def _record_of(content: bytes) -> Record:
    return Record(len(content), content.count(b"\n"), hashlib.sha256(content).hexdigest())


def _damage_of_records(run: Run, values: Mapping[str, Any]) -> str:
    """What is wrong with the metrics. They are only displayed, so a damaged file is no error.

    Raises BadCheckpoint if a file that the run trains on was changed.
    """
    damage = ""
    for name, record in msgspec.convert(values.get(RECORDS, {}), dict[str, Record]).items():
        path = run.folder / name
        try:
            with open_regular(path) as file:
                now = _record_of(file.read(record.bytes))
        except OSError as error:
            what = f"{path} cannot be read: {error.strerror}"
        else:
            if now == record:
                continue
            what = f"{path} is damaged: it is not what was written"
        if name != METRICS:
            raise checkpoint.BadCheckpoint(f"{what}; the run cannot be resumed without it")
        damage = f"{what}: {record.lines} rows were recorded up to this checkpoint"
    return damage


def _put_aside(run: Run) -> str:
    """Rename a damaged metrics file, and write the rows that can be read to a new one."""
    path = run.folder / METRICS
    if not os.path.lexists(path):
        return ""
    number = 1
    while os.path.lexists(aside := path.with_name(f"{METRICS}.damaged-{number}")):
        number += 1
    rows = run.metrics()
    with writing(aside):
        path.rename(aside)
    run.write(path, b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
    return f"; {len(rows)} rows can be read, and the file is kept as {aside.name}"


def _restore(
    run: Run,
    components: Components,
    folder: Path,
    values: dict[str, Any],
    *,
    tell: Callable[[str], None] = log.warning,
    damage: str = "",
) -> State:
    """The learner, the engine and the run folder as they were at a checkpoint."""
    state = state_from_dict(values)
    reference = run.folder / "reference"
    if run.config.algo.keeps_reference:
        if not reference.is_dir():
            raise ConfigError(
                "algo: the run was begun without a reference model, so one cannot be "
                "asked for when it is resumed"
            )
        if (reference / checkpoint.STATE).exists():  # older versions wrote none
            checkpoint.read_state(reference)
        checkpoint.load_weights(reference, components.learner.model)
        components.learner.remember_reference()
    checkpoint.restore(folder, components.learner)
    components.learner.updates_skipped = state.updates_skipped
    components.loop.run(components.engine.sync_weights(version=state.step))
    if components.learner.parallel.world.is_first and damage:
        tell(damage + _put_aside(run))
    run.rewind(state.step)
    components.learner.parallel.world.wait()
    return state


def rollback(
    run: Run, components: Components, broken: RollbackRequested, display: Display
) -> State:
    """Restore the last checkpoint from before the guard's window, with another sampling seed. What
    came after it is deleted.

    An interruption at any point is harmless: until the checkpoint is replaced, a resumed run breaks
    the same bound again and repeats this rollback.
    """
    guard = run.config.guard
    assert guard is not None
    found = checkpoint.latest_valid(
        run.checkpoints,
        wanted=lambda step: is_due(run, step) and step <= broken.step - guard.window,
        read=_read,
    )
    if found is None:
        raise GuardTripped(
            f"{broken}; there is no checkpoint from before these steps to go back to"
        )
    if broken.rollbacks >= guard.most_rollbacks:
        raise GuardTripped(
            f"{broken}; the run went back {broken.rollbacks} times (guard.rollbacks), and "
            "that did not help"
        )
    back_to = checkpoint.step_of(found[0])
    line = (
        f"{broken}; back to step {back_to} ({broken.rollbacks + 1} of {guard.most_rollbacks} times)"
    )
    log.warning("%s", line)
    display.note(line)
    world = components.learner.parallel.world
    world.wait()
    if world.is_first:
        # Newest first: after an interruption, those that are left are still a run's history.
        for later in reversed(checkpoint.all_in(run.checkpoints)):
            if checkpoint.step_of(later) > back_to:
                checkpoint.remove(later)
    state = _restore(run, components, *found)
    state = replace(state, guard=replace(state.guard, rollbacks=broken.rollbacks + 1))
    save(run, components, state, is_extra=True)
    return state
