"""Episodes of the environments' own experts, as tokens of our model."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial

from palestra.agents.scripted import ExpertAgent
from palestra.core.seeds import derive_seed
from palestra.core.types import Sampling, Trajectory
from palestra.rollout.episode import EpisodeSpec
from palestra.rollout.groups import raise_if_all_failed, rollout_episodes
from palestra.training.setup import Components
from palestra.training.task_sampler import Cursor

log = logging.getLogger(__name__)


def expert_episodes(
    components: Components, cursor: Cursor, count: int, noise: float
) -> list[Trajectory]:
    """Solved episodes of experts that every so often (`noise`) take any valid action.

    Their tasks are drawn.
    """
    context = replace(
        components.context,
        agent=partial(ExpertAgent, noise=noise),
        sampling=Sampling(max_tokens=components.config.agent.reply_tokens),
    )
    wanted = [cursor.next() for _ in range(count)]
    seed = components.config.seed
    episodes = [
        EpisodeSpec(
            f"expert-{n:06d}",
            task,
            components.envs[task.env].max_turns,
            derive_seed(seed, "expert", n),
        )
        for n, task in enumerate(wanted)
    ]
    played, faulted = components.loop.run(rollout_episodes(context, episodes))
    for label in {task.env for task in wanted}:
        own, attempts = ([t for t in those if t.task.env == label] for those in (played, faulted))
        raise_if_all_failed(f"the expert of {label}", own, attempts)
    solved = [trajectory for trajectory in played if trajectory.success]
    for label in {task.env for task in wanted} - {trajectory.task.env for trajectory in solved}:
        raise RuntimeError(
            f"the expert of {label} solved none of its tasks; demonstrations need an expert"
        )
    log.info("the experts solved %d of %d tasks", len(solved), count)
    return solved
