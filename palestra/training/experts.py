"""Episodes of the environments' own experts, as tokens of our model."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from palestra.agents.scripted import ExpertAgent
from palestra.core.errors import UserError
from palestra.core.seeds import derive_seed
from palestra.core.types import Sampling, Trajectory
from palestra.rollout.episode import EpisodeSpec
from palestra.rollout.groups import raise_if_all_failed, rollout_episodes
from palestra.training.setup import Components
from palestra.training.task_sampler import Cursor

log = logging.getLogger(__name__)


def expert_episodes(
    components: Components,
    cursor: Cursor,
    count: int,
    noise: float,
    *,
    on_progress: Callable[[int, int], None] | None = None,
) -> list[Trajectory]:
    """Play the next `count` tasks with the environments' experts and return the solved episodes.

    `noise`: the share of actions that is replaced by a random valid one. `on_progress`: called
    after each episode with the number of episodes played so far, and `count`.
    """
    context = replace(
        components.context,
        agent=partial(ExpertAgent, noise=noise),
        sampling=Sampling(max_tokens=components.config.agent.reply_tokens),
    )
    tasks = [cursor.next() for _ in range(count)]
    seed = components.config.seed
    episodes: list[EpisodeSpec] = []
    for number, task in enumerate(tasks):
        max_turns = components.envs[task.env].max_turns
        episode_seed = derive_seed(seed, "expert", number)
        episodes.append(EpisodeSpec(f"expert-{number:06d}", task, max_turns, episode_seed))
    done = itertools.count(1)

    def on_done(trajectory: Trajectory) -> None:
        if on_progress is not None:
            on_progress(next(done), count)

    played, faulted = components.loop.run(rollout_episodes(context, episodes, on_done=on_done))
    solved = [trajectory for trajectory in played if trajectory.success]
    labels = {task.env for task in tasks}
    for label in labels:
        own = [trajectory for trajectory in played if trajectory.task.env == label]
        attempts = [trajectory for trajectory in faulted if trajectory.task.env == label]
        raise_if_all_failed(f"the expert of {label}", own, attempts)
    for label in labels - {trajectory.task.env for trajectory in solved}:
        raise UserError(
            f"the expert of {label} solved none of its tasks, and there is nothing to imitate: "
            "expert() must be right, vocabulary() must have the words of its actions, and a solved "
            "task must end with success=True ('palestra env check' tries all three)"
        )
    log.info("the experts solved %d of %d tasks", len(solved), count)
    return solved
