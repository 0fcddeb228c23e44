"""A recipe's objective in words and formulas, with its numbers filled in."""

from __future__ import annotations

from palestra.config.config import Config
from palestra.config.env import EnvSpec


def explain(config: Config) -> str:
    """What a training step of this run does."""
    config.refuse_unresolved("explain")
    rollout, optim = config.rollout, config.optim
    skipped = (
        f"; a task that taught nothing when it last came is skipped at {rollout.skip_solved:.0%}"
        if rollout.skip_solved
        else ""
    )
    resample_rounds = (
        f"; groups without a signal are replaced, in up to {rollout.resample_rounds} rounds"
        if rollout.resample_rounds
        else ""
    )
    after = {
        "constant": "constant",
        "linear": f"down to {optim.final:g} of it",
        "cosine": f"by a cosine to {optim.final:g} of it",
    }
    schedule = f"lr {optim.lr:g} ({optim.warmup} steps of warm-up, then {after[optim.schedule]})"
    updates = (
        f"{optim.epochs} x {optim.minibatches} optimizer steps, AdamW, {schedule}, gradient "
        f"norm at most {optim.clip_norm:g}, log-probs at temperature "
        f"{config.algo.temperature(rollout.temperature):g}"
    )
    sampling = (
        f"sampled at temperature {rollout.temperature:g}, replies of at most "
        f"{config.agent.reply_tokens} tokens"
    )
    when = f"each of {config.steps} steps" if config.algo.is_on_policy else "each exploration"
    lines = []
    if config.algo.plays:
        lines += [
            f"{when}: {rollout.tasks} tasks, {sampling}{skipped}{resample_rounds}",
            *map(_explain_place, config.env_specs),
        ]
        if rollout.prefetch:
            lines.append(
                "the next step is played while this one is learned from: by weights that "
                "are one update older"
            )
        if rollout.max_staleness:
            lines.append(
                "groups are played beside the learner, each step's by weights that are "
                f"up to {rollout.max_staleness} steps older"
            )
        if rollout.partial:
            lines.append(
                f"a step ends with up to {rollout.partial} groups still in play, which go "
                f"on with the new weights; those begun more than {rollout.most_age} steps ago are "
                "dropped"
            )
    ends = [f"{config.limit.tokens:,} tokens"] if config.limit.tokens else []
    ends += [f"{config.limit.minutes:g} minutes"] if config.limit.minutes else []
    if ends:
        lines.append(f"training ends earlier after {' or '.join(ends)}")
    before = "then" if config.algo.is_on_policy else f"each of {config.steps} steps:"
    return "\n".join(
        [*lines, f"{before} {updates}:", "", *(f"  {line}" for line in config.algo.explain())]
    )


def _explain_place(spec: EnvSpec) -> str:
    horizon = ", ".join(
        f"{name} = {value}" for name, value in spec.horizon.model_dump().items() if name != "kind"
    )
    scale = f", r_u = {spec.reward_scale:.10g} x its rewards" if spec.reward_scale != 1 else ""
    weight = f", weight {spec.weight:g}" if spec.weight != 1 else ""
    return (
        f"{spec.label}: {spec.group} trajectories a task, turns allowed: {spec.horizon.kind} "
        f"({horizon}){weight}{scale}"
    )
