"""GRPO (arXiv:2402.03300): a trajectory is judged against the others of its task."""

from __future__ import annotations

from typing import Literal

from pydantic import NonNegativeFloat, PositiveInt, model_validator
from torch import Tensor

from palestra.algos.advantages import group_relative
from palestra.algos.base import Algorithm, Need, Prediction
from palestra.algos.losses import Normalise, Stats, clipped_policy_loss, kl_to_reference, token_weights
from palestra.batch import Batch


class GRPO(Algorithm):
    name: Literal["grpo"] = "grpo"
    scale: bool = True
    """Divide by the group's standard deviation."""
    clip_low: NonNegativeFloat = 0.2
    clip_high: NonNegativeFloat = 0.2
    """Above `clip_low` it leaves unlikely tokens more room to grow (clip-higher)."""
    normalise: Normalise = "token"
    constant: PositiveInt | None = None
    """The divisor of `normalise = "constant"`: usually the token budget of an episode."""
    kl: NonNegativeFloat = 0.0
    """Weight of the KL divergence from the reference, the model as it was before the first step."""
    recompute_old: bool = False
    """Take ratios against the learner's own log-probs instead of the engine's."""

    @model_validator(mode="after")
    def _constant_is_for_constant(self) -> GRPO:
        if (self.normalise == "constant") != (self.constant is not None):
            raise ValueError(f"constant goes with normalise = 'constant' and only with it; normalise is {self.normalise!r}")
        return self

    @property
    def needs(self) -> frozenset[Need]:
        wanted: dict[Need, bool] = {"old": self.recompute_old, "reference": self.kl > 0}
        return frozenset(need for need, is_wanted in wanted.items() if is_wanted)

    @property
    def learns_only_from_advantages(self) -> bool:
        return self.kl == 0

    def advantages(self, batch: Batch) -> Tensor:
        return group_relative(batch.reward_N, batch.group_N, scale=self.scale)[batch.owner_C]

    def weights(self, batch: Batch) -> Tensor:
        trajectories = len(set(batch.owner_S.tolist()))
        return token_weights(batch.owner_C, trajectories, normalise=self.normalise, constant=self.constant or 1)

    def loss(self, new: Prediction, batch: Batch) -> tuple[Tensor, Stats]:
        assert batch.advantage_C is not None
        loss_C, stats = clipped_policy_loss(
            new.logp_C, batch.old_logp_C, batch.advantage_C, clip_low=self.clip_low, clip_high=self.clip_high
        )
        if self.kl > 0:
            assert batch.reference_logp_C is not None
            kl_C = kl_to_reference(new.logp_C, batch.reference_logp_C)
            loss_C = loss_C + self.kl * kl_C
            stats["policy/kl_reference"] = kl_C.detach()
        return loss_C, stats
