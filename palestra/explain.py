"""A recipe's objective in words and formulas, with its numbers filled in."""

from __future__ import annotations

from palestra.config import Config


def explain(config: Config) -> str:
    """What a training step of this run does."""
    rollout, optim = config.rollout, config.optim
    redraws = f"; groups without a signal are replaced, in up to {rollout.redraws} rounds" if rollout.redraws else ""
    after = {"constant": "constant", "linear": f"down to {optim.final:g} of it", "cosine": f"by a cosine to {optim.final:g} of it"}
    schedule = f"lr {optim.lr:g} ({optim.warmup} steps of warm-up, then {after[optim.schedule]})"
    updates = f"{optim.epochs} x {optim.minibatches} optimiser steps, AdamW, {schedule}, gradient norm at most {optim.clip_norm:g}"
    horizon = ", ".join(f"{name} = {value}" for name, value in config.horizon.model_dump().items() if name != "kind")
    sampling = f"sampled at temperature {rollout.temperature:g}, replies of at most {config.agent.reply_tokens} tokens"
    lines = [
        f"each of {config.steps} steps: {rollout.tasks} tasks x {rollout.group} trajectories, {sampling}{redraws}",
        f"turns allowed: {config.horizon.kind} ({horizon})",
        f"then {updates}:",
        "",
        *(f"  {line}" for line in config.algo.explain()),
    ]
    return "\n".join(lines)
