"""What all policy-gradient methods share: the surrogate, the bounds on it, and what is added to it. Credit is left to each."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Literal

import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator
from torch import Tensor

from palestra.algos.base import Algorithm, Need, Prediction
from palestra.algos.losses import (
    KL,
    Normalise,
    Stats,
    cispo_loss,
    clipped_policy_loss,
    entropy_weight,
    importance_correction,
    kl_divergence,
    sequence_log_ratio,
    token_weights,
)
from palestra.batch import Batch, Unit
from palestra.settings import Settings
from palestra.types import Group, Trajectory


class Correction(Settings):
    """Importance weights against the difference between the probabilities that sampled a token and the learner's before its update:
    that between two implementations, and that between older weights and new ones."""

    level: Literal["token", "sequence"] = "token"
    cap: PositiveFloat = 2.0
    mask: bool = False
    """Leave tokens beyond the cap out instead of counting them with it."""


class PolicyGradient(Algorithm):
    """A surrogate loss whose parts are settings; subclasses say who is credited."""

    weighs_rewards: ClassVar[bool] = True
    objective: Literal["clip", "cispo"] = "clip"
    ratio: Literal["token", "sequence"] = "token"
    """Importance ratios of single tokens, or one for each trajectory (GSPO)."""
    clip_low: NonNegativeFloat = 0.2
    clip_high: NonNegativeFloat = 0.2
    """Above `clip_low` it leaves unlikely tokens more room to grow (clip-higher)."""
    dual_clip: float | None = Field(default=None, gt=1)
    """The most that a bad token can cost, in advantages."""
    entropy: NonNegativeFloat = 0.0
    """What the entropy of the policy counts for beside its advantages."""
    entropy_target: PositiveFloat | None = None
    """The bonus is full at entropy 0, falls to nothing at this entropy (in nats a token), and stays so above it."""
    overlong: Literal["train", "mask"] = "train"
    """Trajectories that a token budget ended: learnt from, or left out of the gradient and of the group's statistics."""
    overlong_penalty: NonNegativeFloat = 0.0
    """Taken off the reward of a trajectory that a token budget ended."""
    invalid_penalty: NonNegativeFloat = 0.0
    """Taken off the reward for each turn whose action could not be read or done. The environment's own reward is what is reported."""
    turn_discount: float = Field(default=1.0, gt=0, le=1)
    """What a reward is multiplied by for each turn before it: below 1, of two successes the quicker one is better."""
    negative_weight: NonNegativeFloat = 1.0
    """What a reward below 0 counts for: below 1, a policy is not taught to shun whatever may fail before it knows how to succeed."""
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
    """Against a mismatch between engine and learner, and against older weights; needs `recompute_old`."""

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
        if self.entropy_target is not None and self.entropy == 0:
            raise ValueError("entropy_target does nothing while entropy = 0")
        if self.overlong == "mask" and self.overlong_penalty:
            raise ValueError("overlong_penalty does nothing while overlong = 'mask': such trajectories are left out")
        return self

    def learnable(self, group: Group) -> list[Trajectory]:
        kept = super().learnable(group)
        return kept if self.overlong == "train" else [t for t in kept if not t.stop.is_overlong]

    def turn_rewards(self, trajectory: Trajectory) -> list[float]:
        rewards = []
        for before, turn in enumerate(trajectory.turns):
            weight = self.negative_weight if turn.reward < 0 else 1.0
            reward = weight * trajectory.reward_scale * turn.reward * self.turn_discount**before
            rewards.append(reward - self.invalid_penalty * turn.invalid)
        if trajectory.stop.is_overlong and rewards:
            rewards[-1] -= self.overlong_penalty
        return rewards

    def has_signal(self, group: Group) -> bool:
        if not self.compares_within_groups:
            return super().has_signal(group)
        return len({sum(self.turn_rewards(trajectory)) for trajectory in self.learnable(group)}) > 1

    def turns_of(self, trajectories: list[Trajectory]) -> tuple[Tensor, Tensor]:
        """What each turn is credited with and whose it is, for judging a group before it is packed."""
        rewards = [self.turn_rewards(trajectory) for trajectory in trajectories]
        reward_U = torch.tensor([reward for own in rewards for reward in own])
        return reward_U, torch.tensor([owner for owner, own in enumerate(rewards) for _ in own], dtype=torch.long)

    @property
    def compares_within_groups(self) -> bool:
        return True

    @property
    def objection_to_older_weights(self) -> str:
        """Ratios against the log-probs as sampled make up for older weights, and so does a correction; else nothing would."""
        if self.recompute_old and self.correction is None:
            return "takes ratios against the newest weights (recompute_old), so episodes of older ones need algo.correction"
        return ""

    @property
    def corrects_older_weights(self) -> bool:
        return self.correction is not None

    @property
    @abstractmethod
    def credit_formula(self) -> str:
        """The formula of A_i."""

    def explain_credit(self, in_reward: str) -> str:
        """The formula of A_c, given what is taken off the reward of each token."""
        return f"A_c = A_i{in_reward};  A_i = {self.credit_formula}"

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
        if self.entropy:
            share = "" if self.entropy_target is None else f" x max(0, 1 - H / {self.entropy_target:g})"
            gain += f" + {self.entropy:g}{share} H_c"
        in_loss, in_reward = (f" - {self.kl:g} KL_c" if self.kl and self.kl_place == place else "" for place in ("loss", "reward"))
        kl = [f"KL_c = {self.kl_estimator} estimate of the divergence from the model before the first step"] if self.kl else []
        return [
            f"maximise the sum over chosen tokens c of  {weights[self.normalise]} x [ {gain}{in_loss} ]",
            f"r_c = {ratio};  p_old: {old}",
            self.explain_credit(in_reward),
            *kl,
            *(["H_c = entropy of the policy at c;  H = mean of -log p over what was sampled in the step"] if self.entropy else []),
            *self.explain_reward(),
        ]

    @property
    def needs(self) -> frozenset[Need]:
        wanted: dict[Need, bool] = {"old": self.recompute_old, "reference": self.kl > 0}
        return frozenset(need for need, is_wanted in wanted.items() if is_wanted)

    @property
    def learns_only_from_advantages(self) -> bool:
        return self.kl == 0

    @property
    def unit(self) -> Unit:
        is_whole = self.ratio == "sequence" or (self.correction is not None and self.correction.level == "sequence")
        return "trajectory" if is_whole else "segment"

    @abstractmethod
    def advantages(self, batch: Batch) -> Tensor:
        """How much better than expected it went from each chosen token on."""

    def credit(self, batch: Batch) -> Batch:
        batch = batch.with_(advantage_C=self.advantages(batch))
        if self.entropy == 0:
            return batch
        weight_C = entropy_weight(batch.sampled_logp_C, self.entropy, self.entropy_target)
        return batch.with_(entropy_weight_C=weight_C) if weight_C.any() else batch

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
        if batch.entropy_weight_C is not None:
            loss_C = loss_C - batch.entropy_weight_C * new.entropy_C
        if self.kl > 0 and self.kl_place == "loss":
            assert batch.reference_logp_C is not None
            kl_C = kl_divergence(new.logp_C, batch.reference_logp_C, self.kl_estimator)
            loss_C = loss_C + self.kl * kl_C
            stats["policy/kl_reference"] = kl_C.detach()
        stats["policy/kl"] = kl_divergence(new.logp_C.detach(), batch.old_logp_C)
        return loss_C, stats

    def explain_reward(self) -> list[str]:
        """What a trajectory is credited with, and which have no part."""
        penalty = f", each times {self.turn_discount:g} for every turn before it" if self.turn_discount < 1 else ""
        penalty += f", those below 0 times {self.negative_weight:g}" if self.negative_weight != 1 else ""
        penalty += f" - {self.invalid_penalty:g} x (turns with an invalid action)" if self.invalid_penalty else ""
        penalty += f" - {self.overlong_penalty:g} where a token budget ended it" if self.overlong_penalty else ""
        left_out = "a fault ended" if self.overlong == "train" else "a fault or a token budget ended"
        return [
            f"R_i = sum of the environment's rewards{penalty}",
            f"trajectories that {left_out} have no part, neither here nor in a mean or a deviation",
        ]

    def penalised(self, advantage_C: Tensor, batch: Batch) -> Tensor:
        """The advantages less the KL divergence from the reference, where that is part of the reward."""
        if self.kl == 0 or self.kl_place == "loss":
            return advantage_C
        assert batch.reference_logp_C is not None
        return advantage_C - self.kl * kl_divergence(batch.old_logp_C, batch.reference_logp_C, self.kl_estimator)
