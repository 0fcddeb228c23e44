"""The warm start: imitate expert episodes until the model succeeds often enough to learn from its
own exploration.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

import torch

from palestra.algos.sft import SFT
from palestra.config.run import WarmStart
from palestra.core.seeds import derive_seed
from palestra.core.types import Group, Segment, Task, Trajectory, Turn
from palestra.rollout.evaluation import evaluate, valid
from palestra.rollout.metrics import mean, success_rate
from palestra.runs.state import State
from palestra.training.display import Display
from palestra.training.experts import expert_episodes
from palestra.training.setup import Components
from palestra.training.task_sampler import TaskSampler

log = logging.getLogger(__name__)

PASSAGE = 64
"""Tokens that are repeated."""


@dataclass(frozen=True, slots=True)
class WarmStartResult:
    """The outcome of a warm start."""

    episodes: int
    """Expert episodes imitated."""
    updates: int
    success: float
    """On training tasks, at the last check."""


def warm_start(
    components: Components, settings: WarmStart, display: Display | None = None
) -> WarmStartResult:
    """Fine-tune on expert episodes, checking every few updates how often the
    model itself succeeds.
    """
    config, learner = components.config, components.learner
    display = display or Display()
    cursor = TaskSampler(components, derive_seed(config.seed, "expert")).after(State())
    display.phase("warm start: expert episodes")
    shown = expert_episodes(
        components, cursor, settings.episodes, settings.noise, on_progress=display.progress
    )
    imitating = "warm start: imitating them"
    display.phase(imitating)
    check_tasks = [cursor.next() for _ in range(settings.check_tasks)]
    algo = SFT()
    success = 0.0
    update = 0
    while update < settings.copying + settings.updates:
        generator = torch.Generator().manual_seed(derive_seed(config.seed, "warm start", update))
        order = torch.randperm(len(shown), generator=generator)
        lessons = [shown[i] for i in order[: settings.batch].tolist()]
        if update < settings.copying:
            lessons = [twice_over(lesson, generator) for lesson in lessons]
        batch = learner.prepare([Group.of_one(lesson) for lesson in lessons], algo)
        stats = learner.update(
            batch, algo, lr=settings.lr_at(update), step=-1 - update, minibatches=1, epochs=1
        )
        update += 1
        display.progress(update, settings.copying + settings.updates)
        imitated = update - settings.copying
        if imitated > 0 and (imitated % settings.check_every == 0 or imitated == settings.updates):
            display.begin_eval(f"warm start, update {update}", len(check_tasks))
            played = _try_out(components, check_tasks, display)
            success = success_rate(played)
            display.note(f"warm start: {success:.1%} of training tasks after update {update}")
            is_invalid: list[float] = []
            for trajectory in played:
                is_invalid += [float(turn.invalid) for turn in trajectory.turns]
            log.info(
                "warm start: update %d, loss %.3f, success %.1f%%, invalid %.1f%%",
                update,
                stats["loss"],
                100 * success,
                100 * mean(is_invalid),
            )
            if success >= settings.target:
                break
            display.phase(imitating)
    learner.reset_optimizer()
    return WarmStartResult(len(shown), update, success)


def twice_over(trajectory: Trajectory, generator: torch.Generator) -> Trajectory:
    """A passage of an episode, and the same passage again: from the second token of the repetition
    on, the next token can be copied.
    """
    ids = trajectory.segments[0].ids
    length = min(PASSAGE, len(ids))
    start = int(torch.randint(len(ids) - length + 1, (), generator=generator))
    passage, known = ids[start : start + length], length - 1
    segment = Segment(
        ids=[*passage, *passage],
        mask=[0] * (length + 1) + [1] * known,
        logprobs=[0.0] * 2 * length,
        versions=[0] * 2 * length,
    )
    turn = Turn("", "", None, 0.0, (length + 1, 2 * length), 0)
    return replace(trajectory, segments=[segment], turns=[turn])


def _try_out(components: Components, tasks: list[Task], display: Display) -> list[Trajectory]:
    """Episodes of the current model."""
    config, loop = components.config, components.loop
    loop.run(components.engine.sync_weights(0))
    horizons = {spec.label: config.eval_horizon(spec) for spec in config.env_specs}
    played = evaluate(
        components.context,
        tasks,
        k=1,
        horizons=horizons,
        seed=config.seed,
        on_done=display.episode_done,
    )
    return valid(loop.run(played))
