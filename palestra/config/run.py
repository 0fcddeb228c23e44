"""Settings of the warm start, evaluations, limits and checkpoints."""

from __future__ import annotations

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from palestra.core.settings import Settings


class WarmStart(Settings):
    """Supervised fine-tuning on expert episodes before the first training step, until the model
    succeeds often enough to explore.
    """

    episodes: PositiveInt = 1000
    """Expert episodes to train on."""
    noise: float = Field(default=0.0, ge=0, le=1)
    """Probability that the expert takes a random valid action instead: noisy demonstrations cover
    more of the action space.
    """
    lr: PositiveFloat = 2e-3
    """Learning rate of the warm start. Default: 2e-3 for a tiny model, 1e-4 for an adapter, 2e-5
    for all weights of a pretrained model.
    """
    batch: PositiveInt = 32
    """Episodes per optimizer step."""
    updates: PositiveInt = 100
    """Maximum number of optimizer steps."""
    copying: NonNegativeInt = 0
    """Optimizer steps on a copying task before these: a randomly initialized model has to learn to
    repeat text from its context first.
    """
    target: float = Field(default=0.4, gt=0, le=1)
    """Success rate on training tasks at which the warm start ends."""
    check_every: PositiveInt = 5
    """Optimizer steps between measurements of the success rate."""
    check_tasks: PositiveInt = 128
    """Training tasks per measurement of the success rate."""

    def lr_at(self, update: int) -> float:
        """Ten updates of linear warm-up, then linear decay to a tenth."""
        return self.lr * min((update + 1) / 10, 1 - 0.9 * update / (self.copying + self.updates))


class EvalSettings(Settings):
    """Evaluations on held-out tasks."""

    every: NonNegativeInt = 0
    """Training steps between evaluations; 0 evaluates only before and after training."""
    tasks: PositiveInt = 300
    """Number of held-out tasks: a fixed sample of the split, the same in every run."""
    split: str = "test"
    """The environment's split to evaluate on."""
    k: PositiveInt = 1
    """Episodes per task, for avg@k and pass@k."""
    temperature: NonNegativeFloat | None = None
    """Sampling temperature of evaluations. Default: `rollout.temperature`."""
    horizon: PositiveInt | None = None
    """Maximum number of turns. Default: the longest horizon of the schedule."""
    interim_tasks: PositiveInt = 100
    """Number of tasks in evaluations between the first and the last."""


class LimitSettings(Settings):
    """Limits that end training before its last step, whichever comes first.

    The final evaluation runs after that.
    """

    tokens: PositiveInt | None = None
    """Maximum number of tokens in all training episodes, observations included.

    The learning-rate schedule follows tokens if this limit is closer than the last step.
    """
    minutes: PositiveFloat | None = None
    """Maximum wall time in minutes since the command started, evaluations included. A resumed run
    has the full time again.
    """


class SaveSettings(Settings):
    """What a run saves in its folder."""

    every: NonNegativeInt = 50
    """Training steps between checkpoints; the last step is always saved. 0 saves none at all."""
    keep: PositiveInt = 2
    """Number of latest checkpoints to keep."""
    token_stats: bool = True
    """Save each token's advantage and the learner's log-prob and entropy (`token_stats/` in the run
    folder).
    """
