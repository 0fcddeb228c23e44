"""What surrounds training: the warm start, evaluations, limits and checkpoints."""

from __future__ import annotations

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from palestra.core.settings import Settings


class WarmStart(Settings):
    """Imitate expert episodes before the first training step, until the model succeeds often enough
    to explore.
    """

    episodes: PositiveInt = 1000
    """Demonstrations to imitate."""
    noise: float = Field(default=0.0, ge=0, le=1)
    """The share of the demonstrator's actions that are any valid ones: it shows what can be done
    more than what should be.
    """
    lr: PositiveFloat = 2e-3
    """Learning rate of the warm start."""
    batch: PositiveInt = 32
    """Episodes per optimizer step."""
    updates: PositiveInt = 100
    """Optimizer steps at the most."""
    copying: NonNegativeInt = 0
    """Optimizer steps before these in which passages are repeated word by word: a model made on the
    spot has to learn that too.
    """
    target: float = Field(default=0.4, gt=0, le=1)
    """The success rate on training tasks at which to stop."""
    check_every: PositiveInt = 5
    """Optimizer steps between two looks at the success rate."""
    check_tasks: PositiveInt = 128
    """Training tasks that such a look plays."""

    def lr_at(self, update: int) -> float:
        """Ten updates of warm-up, then a straight line down to a tenth."""
        return self.lr * min((update + 1) / 10, 1 - 0.9 * update / (self.copying + self.updates))


class EvalSettings(Settings):
    every: NonNegativeInt = 0
    """Training steps between evaluations; 0 evaluates only before and after."""
    tasks: PositiveInt = 300
    """Held-out tasks: a sample of the split that is the same in every run."""
    split: str = "test"
    """The split whose tasks are held out."""
    k: PositiveInt = 1
    """Episodes per task."""
    temperature: NonNegativeFloat | None = None
    """Default: that of training, `rollout.temperature`."""
    horizon: PositiveInt | None = None
    """Turns; the schedule's longest where not set."""
    interim_tasks: PositiveInt = 100
    """Tasks of the evaluations between the first and the last."""


class LimitSettings(Settings):
    """What ends training before its last step, whichever comes first.

    The final evaluation comes after it.
    """

    tokens: PositiveInt | None = None
    """Of all training episodes, what the environments said included.

    The learning rate falls with these where they are the nearer end.
    """
    minutes: PositiveFloat | None = None
    """Since the command began, evaluations included. A resumed run has as many again."""


class SaveSettings(Settings):
    every: NonNegativeInt = 50
    """Training steps between checkpoints; the last step always has one.

    0: none at all, where only a run's numbers are wanted.
    """
    keep: PositiveInt = 2
    """Checkpoints that are kept, the newest ones."""
    token_stats: bool = True
    """Keep what training made of each token: advantage, the learner's log-prob and entropy
    (`token_stats/` in the run folder).
    """
