"""What all policy-gradient methods share: the surrogate, the bounds on it, and what is added to it. Credit is left to each."""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator
from torch import Tensor

from palestra.algos.base import Algorithm, Need, Prediction
from palestra.algos.losses import (
    KL,
    Normalise,
    Stats,
    cispo_loss,
    clipped_policy_loss,
    importance_correction,
    kl_divergence,
    sequence_log_ratio,
    token_weights,
)
from palestra.batch import Batch
from palestra.settings import Settings


class Correction(Settings):
    """Importance weights against the difference between the engine's probabilities and the learner's."""

    level: Literal["token", "sequence"] = "token"
    cap: PositiveFloat = 2.0
    mask: bool = False
    """Leave tokens beyond the cap out instead of counting them with it."""


class PolicyGradient(Algorithm):
    """A surrogate loss whose parts are settings; subclasses say who is credited."""

    objective: Literal["clip", "cispo"] = "clip"
    ratio: Literal["token", "sequence"] = "token"
    """Importance ratios of single tokens, or one for each trajectory (GSPO)."""
    clip_low: NonNegativeFloat = 0.2
    clip_high: NonNegativeFloat = 0.2
    """Above `clip_low` it leaves unlikely tokens more room to grow (clip-higher)."""
    dual_clip: float | None = Field(default=None, gt=1)
    """The most that a bad token can cost, in advantages."""
    normalise: Normalise = "token"
    constant: PositiveInt | None = None
    """The divisor of `normalise = "constant"`: usually the token budget of an episode."""
    kl: NonNegativeFloat = 0.0
    """Weight of the KL divergence from the reference, the model as it was before the first step."""
    kl_estimator: KL = "k3"
    kl_place: Literal["loss", "reward"] = "loss"
    """Added to the loss, or taken off each token's advantage."""
    recompute_old: bool = False
    """Take ratios against the learner's own log-probs instead of the engine's."""
    correction: Correction | None = None
    """Against a mismatch between engine and learner; needs `recompute_old`."""

    @model_validator(mode="after")
    def _no_idle_settings(self) -> PolicyGradient:
        """A setting that would do nothing is an error."""
        if (self.normalise == "constant") != (self.constant is not None):
            raise ValueError(f"constant goes with normalise = 'constant' and only with it; normalise is {self.normalise!r}")
        if self.correction is not None and not self.recompute_old:
            raise ValueError("correction needs recompute_old = true: without it the engine's log-probs are the old ones")
        if self.kl == 0 and (self.kl_estimator, self.kl_place) != ("k3", "loss"):
            raise ValueError("kl_estimator and kl_place do nothing while kl = 0")
        if self.objective == "cispo" and (self.dual_clip is not None or self.ratio == "sequence"):
            raise ValueError("dual_clip and ratio = 'sequence' go with objective = 'clip' only")
        return self

    @property
    @abstractmethod
    def credit(self) -> str:
        """The formula of A_i."""

    def explain(self) -> list[str]:
        low, high = f"{1 - self.clip_low:g}", f"{1 + self.clip_high:g}"
        if self.objective == "cispo":
            gain = f"stop_gradient(clip(r_c, {low}, {high})) A_c log p(c)"
        else:
            gain = f"min(r_c A_c, clip(r_c, {low}, {high}) A_c)"
        if self.dual_clip is not None:
            gain += f", and at least {self.dual_clip:g} A_c where A_c < 0"
        if self.correction is not None:
            beyond = "0 beyond it" if self.correction.mask else "cut there"
            gain = f"w_c {gain}, where w = p_learner / p_engine per {self.correction.level}, at most {self.correction.cap:g} ({beyond})"
        ratio = "p(c) / p_old(c)" if self.ratio == "token" else "exp(mean over the tokens of i of log p(c) / p_old(c))"
        old = "the learner's own before the first update of the step" if self.recompute_old else "as the engine sampled"
        weights = {
            "token": "1 / (all chosen tokens)",
            "sequence": "1 / (trajectories x chosen tokens of i)",
            "constant": f"1 / (trajectories x {self.constant})",
        }
        in_loss, in_reward = (f" - {self.kl:g} KL_c" if self.kl and self.kl_place == place else "" for place in ("loss", "reward"))
        kl = [f"KL_c = {self.kl_estimator} estimate of the divergence from the model before the first step"] if self.kl else []
        return [
            f"maximise the sum over chosen tokens c of  {weights[self.normalise]} x [ {gain}{in_loss} ]",
            f"r_c = {ratio};  p_old: {old}",
            f"A_c = A_i{in_reward};  A_i = {self.credit}",
            *kl,
            *self.explain_reward(),
        ]

    @property
    def needs(self) -> frozenset[Need]:
        wanted: dict[Need, bool] = {"old": self.recompute_old, "reference": self.kl > 0}
        return frozenset(need for need, is_wanted in wanted.items() if is_wanted)

    @property
    def learns_only_from_advantages(self) -> bool:
        return self.kl == 0

    def weights(self, batch: Batch) -> Tensor:
        trajectories = len(set(batch.owner_S.tolist()))
        return token_weights(batch.owner_C, trajectories, normalise=self.normalise, constant=self.constant or 1)

    def loss(self, new: Prediction, batch: Batch) -> tuple[Tensor, Stats]:
        assert batch.advantage_C is not None
        log_ratio_C = new.logp_C - batch.old_logp_C
        clip = {"clip_low": self.clip_low, "clip_high": self.clip_high}
        if self.objective == "cispo":
            loss_C, stats = cispo_loss(log_ratio_C, new.logp_C, batch.advantage_C, **clip)
        else:
            if self.ratio == "sequence":
                log_ratio_C = sequence_log_ratio(log_ratio_C, batch.owner_C, new.logp_C)
            loss_C, stats = clipped_policy_loss(log_ratio_C, batch.advantage_C, **clip, dual_clip=self.dual_clip)
        if self.correction is not None:
            weight_C = importance_correction(batch.old_logp_C, batch.sampled_logp_C, batch.owner_C, **self.correction.model_dump())
            loss_C = loss_C * weight_C
            stats["policy/correction"] = weight_C
        if self.kl > 0 and self.kl_place == "loss":
            assert batch.reference_logp_C is not None
            kl_C = kl_divergence(new.logp_C, batch.reference_logp_C, self.kl_estimator)
            loss_C = loss_C + self.kl * kl_C
            stats["policy/kl_reference"] = kl_C.detach()
        stats["policy/kl"] = kl_divergence(new.logp_C.detach(), batch.old_logp_C)
        return loss_C, stats

    def penalised(self, advantage_C: Tensor, batch: Batch) -> Tensor:
        """The advantages less the KL divergence from the reference, where that is part of the reward."""
        if self.kl == 0 or self.kl_place == "loss":
            return advantage_C
        assert batch.reference_logp_C is not None
        return advantage_C - self.kl * kl_divergence(batch.old_logp_C, batch.reference_logp_C, self.kl_estimator)
