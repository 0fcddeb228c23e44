"""A recipe's objective in words and formulas, with its numbers filled in."""

from __future__ import annotations

from palestra.config.config import Config
from palestra.config.env import Playground


def explain(config: Config) -> str:
    """What a training step of this run does."""
    config.refuse_unresolved("explain")
    rollout, optim = config.rollout, config.optim
    redraws = f"; groups without a signal are replaced, in up to {rollout.redraws} rounds" if rollout.redraws else ""
    after = {"constant": "constant", "linear": f"down to {optim.final:g} of it", "cosine": f"by a cosine to {optim.final:g} of it"}
    schedule = f"lr {optim.lr:g} ({optim.warmup} steps of warm-up, then {after[optim.schedule]})"
    updates = f"{optim.epochs} x {optim.minibatches} optimiser steps, AdamW, {schedule}, gradient norm at most {optim.clip_norm:g}"
    sampling = f"sampled at temperature {rollout.temperature:g}, replies of at most {config.agent.reply_tokens} tokens"
    plays = {"play": f"each of {config.steps} steps", "rounds": "each exploration"}
    lines = []
    if config.algo.source in plays:
        lines += [f"{plays[config.algo.source]}: {rollout.tasks} tasks, {sampling}{redraws}", *map(_explain_place, config.playgrounds)]
        if rollout.ahead:
            lines.append("the next step is played while this one is learnt from: by weights that are one update older")
        if rollout.staleness:
            lines.append(f"groups are played beside the learner, each step's by weights that are up to {rollout.staleness} steps older")
        if rollout.carry:
            lines.append(f"a step ends with up to {rollout.carry} groups still in play, which go on with the new weights")
    ends = [f"{config.limit.tokens:,} tokens"] if config.limit.tokens else []
    ends += [f"{config.limit.minutes:g} minutes"] if config.limit.minutes else []
    if ends:
        lines.append(f"training ends earlier after {' or '.join(ends)}")
    before = "then" if config.algo.source == "play" else f"each of {config.steps} steps:"
    return "\n".join([*lines, f"{before} {updates}:", "", *(f"  {line}" for line in config.algo.explain())])


def _explain_place(place: Playground) -> str:
    horizon = ", ".join(f"{name} = {value}" for name, value in place.horizon.model_dump().items() if name != "kind")
    scale = f", rewards x {place.reward_scale:g}" if place.reward_scale != 1 else ""
    weight = f", weight {place.weight:g}" if place.weight != 1 else ""
    return f"{place.label}: {place.group} trajectories a task, turns allowed: {place.horizon.kind} ({horizon}){weight}{scale}"
