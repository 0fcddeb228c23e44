"""A recipe's objective in words and formulas, with its numbers filled in."""

from __future__ import annotations

from palestra.config.config import Config
from palestra.config.env import EnvSpec


def explain(config: Config) -> str:
    """What a training step of this run does."""
    config.refuse_unresolved("explain")
    rollout, optim = config.rollout, config.optim
    skipped = ""
    if rollout.skip_solved:
        skipped = (
            f"; a task whose last group had zero advantage is skipped at {rollout.skip_solved:.0%}"
        )
    resampling = ""
    if rollout.resample_rounds:
        resampling = (
            f"; groups without a signal are replaced, in up to {rollout.resample_rounds} rounds"
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
            f"{when}: {rollout.tasks} tasks, {sampling}{skipped}{resampling}",
            *map(_explain_env, config.env_specs),
        ]
        if rollout.prefetch:
            lines.append(
                "the next step is played during this step's update, with weights that are one "
                "update older"
            )
        if rollout.max_staleness:
            lines.append(
                "groups are played concurrently with the learner, with weights that are up to "
                f"{rollout.max_staleness} steps older"
            )
        if rollout.partial:
            lines.append(
                f"up to {rollout.partial} unfinished groups carry over to the next step and "
                f"continue with the new weights; those begun more than {rollout.most_age} steps "
                "ago are dropped"
            )
    ends = [f"{config.limit.tokens:,} tokens"] if config.limit.tokens else []
    ends += [f"{config.limit.minutes:g} minutes"] if config.limit.minutes else []
    if ends:
        lines.append(f"training ends earlier after {' or '.join(ends)}")
    before = "then" if config.algo.is_on_policy else f"each of {config.steps} steps:"
    objective = [f"  {line}" for line in config.algo.explain()]
    return "\n".join([*lines, f"{before} {updates}:", "", *objective])


def _explain_env(spec: EnvSpec) -> str:
    settings = spec.horizon.model_dump(exclude={"kind"})
    horizon = ", ".join(f"{name} = {value}" for name, value in settings.items())
    scale = f", r_u = {spec.reward_scale:.10g} x its rewards" if spec.reward_scale != 1 else ""
    weight = f", weight {spec.weight:g}" if spec.weight != 1 else ""
    return (
        f"{spec.label}: {spec.group} trajectories a task, turns allowed: {spec.horizon.kind} "
        f"({horizon}){weight}{scale}"
    )
