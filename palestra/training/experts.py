"""Episodes of the environments' own experts, as tokens of our model."""

from __future__ import annotations

import logging

from palestra.agents.scripted import Scripted, noisy_expert
from palestra.core.seeds import derive_seed
from palestra.core.types import Sampling, Trajectory
from palestra.rollout.rollout import Episode, play_all, shared_persona, stop_if_all_broke
from palestra.training.setup import Parts
from palestra.training.task_sampler import Draw

log = logging.getLogger(__name__)


def expert_episodes(parts: Parts, draw: Draw, count: int, noise: float) -> list[Trajectory]:
    """Solved episodes of experts that every so often (`noise`) take any valid action. Their tasks are drawn."""
    persona = shared_persona(parts.arena.places)
    arena = parts.arena.with_(
        engine=Scripted(noisy_expert(persona.format, noise), persona.renderer),
        sampling=Sampling(max_tokens=parts.config.agent.reply_tokens),
    )
    wanted = [draw.next() for _ in range(count)]
    seed = parts.config.seed
    episodes = [
        Episode(f"expert-{n:06d}", task, parts.envs[task.env].max_turns, derive_seed(seed, "expert", n)) for n, task in enumerate(wanted)
    ]
    played, faulted = parts.loop.run(play_all(arena, episodes))
    for label in {task.env for task in wanted}:
        own, attempts = ([t for t in those if t.task.env == label] for those in (played, faulted))
        stop_if_all_broke(f"the expert of {label}", own, attempts)
    solved = [trajectory for trajectory in played if trajectory.success]
    for label in {task.env for task in wanted} - {trajectory.task.env for trajectory in solved}:
        raise RuntimeError(f"the expert of {label} solved none of its tasks; demonstrations need an expert")
    log.info("the experts solved %d of %d tasks", len(solved), count)
    return solved
