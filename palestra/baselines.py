"""Evaluate whatever a configuration describes: a model, or a baseline without one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from palestra.assemble import assemble, held_out, make_persona, make_pool
from palestra.config import Config, ConfigError, PretrainedModel
from palestra.engines.scripted import Scripted, expert, uniform
from palestra.evaluate import evaluate, summarise
from palestra.learn import checkpoint
from palestra.model import byte_tokenizer
from palestra.registry import nearest
from palestra.rollout import Arena
from palestra.types import Sampling

UNBOUNDED = 1 << 30


def evaluate_config(config: Config, *, agent: str | None, trained_horizon: int | None) -> dict[str, Any]:
    """Play the held-out tasks with the configured model, or with the `expert` or `random` baseline.

    `trained_horizon` is that of the run the model comes from; without one the environment's own is used.
    """
    env = config.env.make()
    if config.eval.split not in env.splits:
        raise ConfigError(f"eval.split = {config.eval.split!r}: no such split; {nearest(config.eval.split, env.splits)}")
    tasks = held_out(env.tasks(config.eval.split), config.eval.tasks)
    horizon = config.eval.horizon or (trained_horizon or env.max_turns)
    with asyncio.Runner() as loop:
        if agent is None:
            parts = assemble(config)
            arena, step = parts.eval_arena, _step_of(config)
        else:
            arena, step = _baseline_arena(config, agent), 0
        played = loop.run(evaluate(arena, tasks, k=config.eval.k, horizon=horizon, seed=config.seed, step=step))
        loop.run(arena.pool.close())
    result = {"phase": agent or "eval", "step": step, "env": config.env.name, "split": config.eval.split}
    return result | summarise(played, k=config.eval.k, horizons=[min(trained_horizon or horizon, horizon), horizon])


def _step_of(config: Config) -> int:
    """The training step of the checkpoint, where the model is one."""
    if not isinstance(config.model, PretrainedModel):
        return 0
    folder = Path(config.model.path)
    return int(checkpoint.read_state(folder)["step"]) if (folder / checkpoint.STATE).is_file() else 0


def _baseline_arena(config: Config, agent: str) -> Arena:
    env = config.env.make()
    persona = make_persona(config, env, byte_tokenizer())
    persona.context_tokens = UNBOUNDED
    script = {"expert": expert, "random": uniform}[agent](persona.format)
    return Arena(persona, Scripted(script, persona.renderer), make_pool(config.env), Sampling(max_tokens=4096))
