"""The warm start: imitate expert episodes until the model succeeds often enough for its own exploration to pay."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import torch

from palestra.algos.sft import SFT
from palestra.assemble import Parts, TaskStream
from palestra.config import WarmStart
from palestra.engines.scripted import Scripted, noisy_expert
from palestra.evaluate import evaluate, score, valid
from palestra.learn.learner import demonstrations
from palestra.metrics import mean
from palestra.rollout import Episode, play_all
from palestra.seeds import derive_seed
from palestra.types import Sampling, Trajectory

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WarmStartResult:
    """What the warm start came to."""

    episodes: int
    """Expert episodes imitated."""
    updates: int
    success: float
    """On training tasks, at the last check."""


def expert_episodes(parts: Parts, stream: TaskStream, count: int, noise: float) -> list[Trajectory]:
    """Solved episodes of the environment's own expert, as tokens of our model."""
    arena = parts.arena.with_(
        engine=Scripted(noisy_expert(parts.arena.persona.format, noise), parts.arena.persona.renderer),
        sampling=Sampling(max_tokens=parts.config.agent.reply_tokens),
    )
    horizon = parts.env.max_turns
    seed = parts.config.seed
    tasks = enumerate(stream.slice(0, count))
    episodes = [Episode(f"expert-{n:06d}", task, horizon, derive_seed(seed, "expert", n)) for n, task in tasks]
    played, _ = parts.loop.run(play_all(arena, episodes))
    solved = [trajectory for trajectory in played if trajectory.success]
    if not solved:
        raise RuntimeError(f"the expert of {parts.config.env.name} solved none of {count} tasks; a warm start needs an expert")
    log.info("the expert solved %d of %d tasks", len(solved), count)
    return solved


def warm_start(parts: Parts, settings: WarmStart) -> WarmStartResult:
    """Fine-tune on expert episodes, checking every few updates how often the model itself succeeds."""
    config, learner = parts.config, parts.learner
    stream = TaskStream(parts.env.tasks("train"), derive_seed(config.seed, "expert"))
    groups = demonstrations(expert_episodes(parts, stream, settings.episodes, settings.noise))
    check_tasks = stream.slice(settings.episodes, settings.check_tasks)
    algo = SFT()
    success = 0.0
    update = 0
    while update < settings.updates:
        generator = torch.Generator().manual_seed(derive_seed(config.seed, "warm start", update))
        picked = torch.randperm(len(groups), generator=generator)[: settings.batch].tolist()
        batch = learner.prepare([groups[i] for i in picked], algo)
        stats = learner.update(batch, algo, lr=settings.lr_at(update), step=-1 - update, minibatches=1, epochs=1)
        update += 1
        if update % settings.check_every == 0 or update == settings.updates:
            parts.loop.run(parts.engine.load(0))
            played = parts.loop.run(evaluate(parts.arena, check_tasks, k=1, horizon=config.eval_horizon, seed=config.seed))
            success = score(valid(played), horizon=config.eval_horizon).success
            invalid = mean([float(turn.invalid) for t in played for turn in t.turns])
            log.info(
                "warm start: update %d, loss %.3f, success %.1f%%, invalid %.1f%%", update, stats["loss"], 100 * success, 100 * invalid
            )
            if success >= settings.target:
                break
    learner.restart_optimizer()
    return WarmStartResult(len(groups), update, success)
