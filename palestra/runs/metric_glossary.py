"""What each field of `metrics.jsonl` means, its unit, and the values that a healthy run has.

`make reference` writes docs/reference/metrics.md from this list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import NamedTuple

FRACTION = "0 to 1"


class Metric(NamedTuple):
    """One field of the metrics, or a family of fields."""

    name: str
    """With `*` for a part that depends on the run."""
    unit: str
    meaning: str
    healthy: str


SECTIONS: Mapping[str, tuple[Metric, ...]] = {
    "Every row": (
        Metric("step", "steps", "Training step. Rows before the first step have 0.", "Rises by 1."),
        Metric(
            "phase",
            "name",
            'Evaluation that the row belongs to ("raw", "warm start", "interim", "final"), or '
            '"imitation" for a warm start. Rows of training steps have none.',
            "-",
        ),
    ),
    "Episodes of a step": (
        Metric(
            "horizon", "turns", "Maximum number of turns of an episode.", "Follows the schedule."
        ),
        Metric("stage", "stages", "Stage of the horizon's schedule, counted from 1.", "Rises."),
        Metric("reward", "reward", "Mean reward of an episode.", "Rises."),
        Metric("reward/greedy", "reward", "Mean reward of greedy baselines (`remax`).", "Rises."),
        Metric(
            "success",
            FRACTION,
            "Fraction of episodes that succeed.",
            "Rises. Close to 0 or 1, groups have equal rewards and teach nothing.",
        ),
        Metric("turns", "turns", "Mean number of turns of an episode.", "Below `horizon`."),
        Metric(
            "invalid_actions",
            FRACTION,
            "Fraction of turns whose action the environment does not accept.",
            "Falls below 0.05. If it stays high, the model does not know the action format.",
        ),
        Metric("stop/done", FRACTION, "Fraction of episodes that the environment ended.", "Rises."),
        Metric(
            "stop/horizon",
            FRACTION,
            "Fraction of episodes that used all their turns.",
            "Falls within a stage, and rises when a new stage gives more turns to fail in.",
        ),
        Metric(
            "stop/truncated",
            FRACTION,
            "Fraction of episodes that the environment's own time limit ended.",
            "As `stop/horizon`.",
        ),
        Metric(
            "stop/context",
            FRACTION,
            "Fraction of episodes that ran out of `agent.context_tokens`.",
            "Below 0.05. The run warns above 0.5 (with `stop/length`).",
        ),
        Metric(
            "stop/length",
            FRACTION,
            "Fraction of episodes that ended in a reply cut at `agent.reply_tokens`.",
            "Below 0.05.",
        ),
        Metric(
            "stop/env_fault",
            FRACTION,
            "Fraction of episodes that ended because the environment broke.",
            "Absent.",
        ),
        Metric(
            "stop/timeout",
            FRACTION,
            "Fraction of episodes whose environment missed `env.deadline_s`.",
            "Absent.",
        ),
        Metric(
            "stop/cancelled",
            FRACTION,
            "Fraction of episodes that were dropped (`rollout.max_age`).",
            "Absent, or below 0.05.",
        ),
        Metric(
            "faults",
            "episodes",
            "Episodes that ended in a fault, retried ones included.",
            "0. A few in a thousand are tolerable: faults are never trained on.",
        ),
        Metric(
            "faults/collateral",
            "episodes",
            "Faults that another episode of the same worker caused. Absent if 0.",
            "Absent.",
        ),
        Metric(
            "env/cut_texts",
            "texts",
            "Texts of the environment that were truncated because of their length. Absent if 0.",
            "Absent.",
        ),
        Metric("tokens/sampled", "tokens", "Tokens that the policy sampled.", "Steady."),
        Metric(
            "tokens/all", "tokens", "All tokens of the episodes, observations included.", "Steady."
        ),
        Metric(
            "env/*",
            "as the metric",
            "In a mixture of environments: the metrics of one environment's episodes, such as "
            "`env/textcraft/success`.",
            "As the metric.",
        ),
    ),
    "Groups and tasks": (
        Metric(
            "groups/zero_advantage",
            FRACTION,
            "Fraction of groups without a learning signal.",
            "Below 0.5. Above 0.9 almost nothing is learned: change the tasks, the group size "
            "or the horizon.",
        ),
        Metric(
            "groups/dropped",
            "groups",
            "Groups that were not trained on for lack of a signal (`rollout.resample_rounds`).",
            "Below `rollout.tasks`.",
        ),
        Metric(
            "groups/outdated",
            "groups",
            "Groups that were dropped because they were older than `rollout.max_age`. Absent if 0.",
            "Absent.",
        ),
        Metric(
            "tasks/skippable",
            "tasks",
            "With `rollout.skip_solved`: tasks that may be skipped.",
            "Rises as tasks are solved.",
        ),
    ),
    "Learning": (
        Metric(
            "loss",
            "loss",
            "Loss of the update, as the algorithm normalizes it.",
            "No range for policy gradients, whose loss does not measure progress. Falls for "
            "`sft`, `rft`, `evol` and `dpo`.",
        ),
        Metric(
            "grad_norm",
            "norm",
            "Gradient norm before clipping.",
            "Steady. Values ten times the usual one, step after step, come before a collapse.",
        ),
        Metric("lr", "learning rate", "Learning rate of the step.", "Follows `optim.schedule`."),
        Metric(
            "updates_skipped",
            FRACTION,
            "Fraction of the step's updates that were skipped because loss or gradient was not "
            "finite. Three in a row end the run.",
            "0.",
        ),
    ),
    "Policy": (
        Metric(
            "policy/entropy",
            "nats per token",
            "Mean entropy of the policy over action tokens.",
            "0.1 to 1, and falling slowly. Below 0.05 the policy no longer explores. A rise to "
            "several times its first value means degenerate text.",
        ),
        Metric(
            "policy/kl",
            "nats per token",
            "KL divergence of the policy that sampled from the policy in training, k3.",
            "Below 0.05. More means too large a step: lower `optim.lr` or `optim.epochs`.",
        ),
        Metric(
            "policy/kl_reference",
            "nats per token",
            "With `algo.kl`: KL divergence of the policy from the model before the first step, k3.",
            "Rises slowly. A jump means that the policy left the reference.",
        ),
        Metric(
            "policy/clipped",
            FRACTION,
            "Fraction of action tokens whose importance ratio is clipped.",
            "Below 0.2. 0 with one update per batch. More with `gspo`, which clips far closer "
            "to 1.",
        ),
        Metric(
            "policy/correction",
            "factor",
            "With `algo.correction`: mean importance weight.",
            "0.9 to 1.1.",
        ),
        Metric(
            "policy/mismatch",
            "nats per token",
            "Mean absolute difference between the engine's and the learner's log-probs, before "
            "the first update of a step.",
            "Rounding errors: below 0.0001 in float32, below 0.05 in bfloat16.",
        ),
        Metric(
            "policy/mismatch_kl",
            "nats per token",
            "KL divergence between the engine's and the learner's policy.",
            "Below 0.001. Above 0.05 the two compute different policies.",
        ),
        Metric(
            "policy/drift",
            "nats per token",
            "As `policy/mismatch`, for tokens that older weights sampled. It includes the change "
            "of the policy since.",
            "Grows with staleness. Compare it with `policy/clipped`.",
        ),
    ),
    "Critic (`ppo`)": (
        Metric(
            "value/error",
            "reward",
            "Mean absolute difference between the critic's estimate and the return.",
            "Falls, and stays well below the spread of rewards.",
        ),
        Metric(
            "value/clipped",
            FRACTION,
            "Fraction of action tokens whose value loss is clipped (`algo.value_clip`).",
            "Below 0.2.",
        ),
        Metric(
            "value/grad_norm",
            "norm",
            "Norm of the critic's gradient before clipping.",
            "Steady.",
        ),
    ),
    "Preferences (`dpo`)": (
        Metric(
            "dpo/accuracy",
            FRACTION,
            "Fraction of pairs in which the policy prefers the chosen trajectory more than the "
            "reference does.",
            "Rises from 0.5 to 0.7 or more. 1 from the first steps on means pairs that are too "
            "easy.",
        ),
        Metric(
            "dpo/margin",
            "nats",
            "Mean difference of the log-ratios of the chosen and the rejected trajectory, times "
            "`algo.beta`.",
            "Rises above 0.",
        ),
        Metric(
            "dpo/chosen",
            "nats",
            "Mean log-ratio of policy to reference of the chosen trajectory.",
            "Close to 0 or above. If it falls far below, set `algo.imitation`.",
        ),
        Metric(
            "dpo/rejected",
            "nats",
            "Mean log-ratio of policy to reference of the rejected trajectory.",
            "Falls below 0.",
        ),
    ),
    "Overlap": (
        Metric(
            "staleness/mean",
            "updates",
            "By how many updates the weights that sampled a token are behind the learner's, mean "
            "over sampled tokens.",
            "Close to what the setting allows: 1 for `rollout.prefetch`.",
        ),
        Metric(
            "staleness/max",
            "updates",
            "As `staleness/mean`, maximum.",
            "At most `rollout.max_staleness`; with `rollout.partial`, `rollout.max_age`.",
        ),
        Metric(
            "queue/finished",
            "groups",
            "With `rollout.max_staleness`: finished groups when the learner asked for its groups.",
            "`rollout.tasks` or more: the learner does not wait.",
        ),
        Metric(
            "queue/in_play",
            "groups",
            "With `rollout.max_staleness`: groups in flight at that time.",
            "Above 0.",
        ),
        Metric(
            "queue/waited",
            FRACTION,
            "With `rollout.max_staleness`: fraction of the time since its previous groups that "
            "the learner waited.",
            "Close to 0 if sampling keeps up.",
        ),
    ),
    "Guard": (
        Metric(
            "guard/*",
            "0 or 1",
            "With a `[guard]`: 1 if this bound is broken, such as `guard/entropy_below`.",
            "0.",
        ),
        Metric(
            "guard/rollbacks", "rollbacks", "With a `[guard]`: rollbacks of the run so far.", "0."
        ),
    ),
    "Time": (
        Metric(
            "time/collect",
            "seconds",
            "Collecting the episodes of the step. With `rollout.prefetch`: the time that the "
            "learner waited for them.",
            "The larger part of a step, unless collecting overlaps with learning.",
        ),
        Metric(
            "time/collect_hidden",
            "seconds",
            "With `rollout.prefetch`: collecting that ran during the update.",
            "Close to `time/learn`.",
        ),
        Metric("time/learn", "seconds", "The update and the weight sync.", "Steady."),
        Metric("time/eval", "seconds", "An evaluation.", "Steady."),
        Metric("time/warm_start", "seconds", "The warm start.", "-"),
    ),
    "Evaluations and the warm start": (
        Metric(
            "eval/success",
            FRACTION,
            "Fraction of held-out episodes that succeed, at the full horizon.",
            "Rises with `success`. If it falls behind, the policy has overfit the training tasks.",
        ),
        Metric("eval/low", FRACTION, "Lower end of the 95% interval of `eval/success`.", "-"),
        Metric("eval/high", FRACTION, "Upper end of the 95% interval of `eval/success`.", "-"),
        Metric("eval/reward", "reward", "Mean reward of held-out episodes.", "Rises."),
        Metric("eval/turns", "turns", "Mean number of turns of held-out episodes.", "-"),
        Metric("eval/tasks", "tasks", "Number of held-out tasks.", "As `eval.tasks` says."),
        Metric(
            "eval/*/*",
            "as the metric",
            "In a mixture: the same of one environment, such as `eval/textcraft/success`.",
            "As the metric.",
        ),
        Metric("warm_start/episodes", "episodes", "Expert episodes imitated.", "-"),
        Metric(
            "warm_start/updates",
            "optimizer steps",
            "Optimizer steps of the warm start.",
            "Below `warm_start.updates`: the target was reached.",
        ),
        Metric(
            "warm_start/success",
            FRACTION,
            "Success rate on training tasks at the last check.",
            "`warm_start.target` or more.",
        ),
    ),
}


def all_metrics() -> Iterator[Metric]:
    for metrics in SECTIONS.values():
        yield from metrics


def describe(name: str) -> Metric | None:
    """The entry of a field of the metrics; None if there is none."""
    families = []
    for metric in all_metrics():
        if metric.name == name:
            return metric
        if fnmatchcase(name, metric.name):
            families.append(metric)
    return families[0] if families else None
