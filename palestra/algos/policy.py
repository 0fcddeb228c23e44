"""What all policy-gradient methods share: the surrogate loss, its clipping, KL and entropy terms.

Each method computes its own advantages.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from palestra.algos.advantages import returns_to_go
from palestra.algos.base import Algorithm, Need, PolicyOutput
from palestra.algos.batch import Batch, Unit, rewards_only
from palestra.algos.losses import (
    KL,
    MOST_LOG_RATIO,
    Normalize,
    Stats,
    cispo_loss,
    clipped_policy_loss,
    entropy_weight,
    importance_correction,
    kl_divergence,
    sequence_log_ratio,
    token_weights,
)
from palestra.core.lazy import torch
from palestra.core.settings import Settings
from palestra.core.types import Group, Trajectory

if TYPE_CHECKING:
    from torch import Tensor

NO_GRADIENT_IN_REWARD = (
    "its gradient through the reward is near 0, so it would not regularize; use k1"
)
NO_GRADIENT_IN_LOSS = (
    "its expected gradient in the loss is 0, so it would not regularize; use k3, or k2"
)
REFUSED_KL = {
    ("reward", "k2"): NO_GRADIENT_IN_REWARD,
    ("reward", "k3"): NO_GRADIENT_IN_REWARD,
    ("loss", "k1"): NO_GRADIENT_IN_LOSS,
}
"""(kl_in, kl_estimator) that do not regularize, and why."""


class ImportanceSampling(Settings):
    """Importance weights that correct for the difference between the probabilities that sampled a
    token and the learner's before its update: numerical mismatch between engine and learner, and
    staleness of the weights.
    """

    level: Literal["token", "sequence", "geometric"] = "token"
    """"token": one weight per token. "sequence": one per trajectory, the product of its tokens'
    ratios (0 or the cap for long ones). "geometric": one per trajectory, their geometric mean.
    """
    cap: PositiveFloat = 2.0
    """Maximum weight."""
    mask: bool = False
    """Mask tokens whose weight exceeds the cap instead of clipping the weight."""
    mask_below: PositiveFloat | None = None
    """Mask tokens whose weight is below this. Default: none."""

    @model_validator(mode="after")
    def _leaves_something(self) -> ImportanceSampling:
        if self.mask_below is not None and self.mask_below >= self.cap:
            raise ValueError(
                f"mask_below = {self.mask_below:.10g}: must be below cap ({self.cap:.10g})"
            )
        return self

    def explain(self) -> list[str]:
        log_ratio = "logp_old_c - logp_sampled_c"
        total = {
            "token": log_ratio,
            "sequence": f"sum_tokens({log_ratio})",
            "geometric": f"mean_tokens({log_ratio})",
        }
        x = "x_c" if self.level == "token" else "x_i"
        if self.mask:
            bounded = f"where({x} > {self.cap:.10g}, 0, {x})"
        else:
            bounded = f"min({x}, {self.cap:.10g})"
        if self.mask_below is not None:
            bounded = f"where({x} < {self.mask_below:.10g}, 0, {bounded})"
        limit = f"{MOST_LOG_RATIO:.10g}"
        return [
            f"correction_c = {bounded}",
            f"{x} = exp(clip({total[self.level]}, -{limit}, {limit}))",
        ]


class PolicyGradient(Algorithm):
    """A surrogate loss whose parts are settings; subclasses compute the advantages."""

    objective: Literal["clip", "cispo"] = "clip"
    """Loss: "clip" (PPO's clipped surrogate) or "cispo" (clipped importance weights)."""
    ratio: Literal["token", "sequence"] = "token"
    """Importance ratios per token, or one per trajectory (GSPO)."""
    clip_low: NonNegativeFloat = 0.2
    """Lower clip range: ratios are clipped at 1 - clip_low."""
    clip_high: NonNegativeFloat = 0.2
    """Upper clip range: ratios are clipped at 1 + clip_high. Larger than `clip_low`, it leaves
    unlikely tokens more room to grow (clip-higher).
    """
    dual_clip: float | None = Field(default=None, gt=1)
    """Dual clip: bounds the loss of a token with a negative advantage at this multiple of it."""
    entropy: NonNegativeFloat = 0.0
    """Weight of the entropy bonus."""
    entropy_target: PositiveFloat | None = None
    """Entropy, in nats per token, at which the bonus reaches 0; it is full at entropy 0 and falls
    linearly between.
    """
    overlong: Literal["train", "mask"] = "train"
    """Trajectories that ran out of a token budget: train on them, or mask them, which leaves them
    out of the gradient and of the group's statistics.
    """
    overlong_penalty: NonNegativeFloat = 0.0
    """Subtracted from the reward of trajectories that ran out of a token budget."""
    invalid_penalty: NonNegativeFloat = 0.0
    """Subtracted from the reward for each turn with an invalid action.

    Metrics report the environment's own reward.
    """
    turn_discount: float = Field(default=1.0, gt=0, le=1)
    """Factor on a reward for each turn before it; below 1, quicker successes earn more."""
    negative_reward_scale: NonNegativeFloat = 1.0
    """Factor on negative rewards; below 1, early failures discourage exploration less."""
    normalize: Normalize = "token"
    """How token losses are averaged: over all tokens, per trajectory first, or by `constant`."""
    constant: PositiveInt | None = None
    """Divisor of `normalize = "constant"`: usually the token budget of an episode."""
    kl: NonNegativeFloat = 0.0
    """Weight of the KL divergence from the reference model, a copy from before the first step."""
    kl_estimator: KL = "k3"
    """Estimator of the KL divergence. Default: "k3" in the loss ("k2" works too), "k1" in the
    reward, where it is the only one that regularizes.
    """
    kl_in: Literal["loss", "reward"] = "loss"
    """Add the KL divergence to each token's loss, or subtract it from its reward. In the reward, a
    token's advantage is reduced by the KL of itself and of all later tokens of its trajectory.
    """
    recompute_logprobs: bool = False
    """Compute ratios against the learner's own log-probs instead of the engine's."""
    correction: ImportanceSampling | None = None
    """Importance sampling that corrects for engine mismatch and older weights; needs
    `recompute_logprobs`.
    """

    @model_validator(mode="before")
    @classmethod
    def _default_estimator(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("kl_in") == "reward" and given.get("kl"):
            return {"kl_estimator": "k1"} | given
        return given

    @model_validator(mode="after")
    def _no_idle_settings(self) -> PolicyGradient:
        """A setting that has no effect is an error."""
        if (self.normalize == "constant") != (self.constant is not None):
            raise ValueError(
                "constant goes with normalize = 'constant' and only with it; normalize "
                f"is {self.normalize!r}"
            )
        if self.correction is not None and not self.recompute_logprobs:
            raise ValueError(
                "correction needs recompute_logprobs = true: without it the engine's log-probs "
                "are the old ones"
            )
        if self.kl == 0 and (self.kl_estimator, self.kl_in) != ("k3", "loss"):
            raise ValueError("kl_estimator and kl_in do nothing while kl = 0")
        if reason := REFUSED_KL.get((self.kl_in, self.kl_estimator)):
            raise ValueError(
                f"kl_estimator = {self.kl_estimator!r}: does not go with kl_in = "
                f"{self.kl_in!r}: {reason}"
            )
        if self.objective == "cispo" and (self.dual_clip is not None or self.ratio == "sequence"):
            raise ValueError("dual_clip and ratio = 'sequence' go with objective = 'clip' only")
        if self.entropy_target is not None and self.entropy == 0:
            raise ValueError("entropy_target does nothing while entropy = 0")
        if self.overlong == "mask" and self.overlong_penalty:
            raise ValueError(
                "overlong_penalty does nothing while overlong = 'mask': such trajectories "
                "are left out"
            )
        return self

    @property
    def weighs_rewards(self) -> bool:
        return True

    def learnable(self, group: Group) -> list[Trajectory]:
        kept = super().learnable(group)
        return kept if self.overlong == "train" else [t for t in kept if not t.stop.is_overlong]

    def turn_rewards(self, trajectory: Trajectory) -> list[float]:
        rewards = []
        for before, turn in enumerate(trajectory.turns):
            weight = self.negative_reward_scale if turn.reward < 0 else 1.0
            reward = weight * trajectory.reward_scale * turn.reward * self.turn_discount**before
            rewards.append(reward - self.invalid_penalty * turn.invalid)
        if trajectory.stop.is_overlong and rewards:
            rewards[-1] -= self.overlong_penalty
        return rewards

    @property
    def off_policy_error(self) -> str:
        """Ratios against the sampled log-probs account for older weights, and so does a correction;
        ratios against recomputed log-probs alone do not.
        """
        if self.recompute_logprobs and self.correction is None:
            return (
                "takes ratios against the newest weights (recompute_logprobs), so episodes of "
                "older ones need algo.correction"
            )
        return ""

    @property
    def supports_off_policy(self) -> bool:
        return self.correction is not None

    def explain(self) -> list[str]:
        return [
            "maximize  sum_c(weight_c * objective_c)",
            *self.explain_objective(),
            *self.explain_credit(),
            *self.explain_reward(),
        ]

    def explain_objective(self) -> list[str]:
        """The objective of each action token, given its advantage."""
        low, high = f"{1 - self.clip_low:.10g}", f"{1 + self.clip_high:.10g}"
        if self.objective == "cispo":
            gain = f"stop(clip(ratio_c, {low}, {high})) * A_c * logp_c"
        else:
            gain = f"min(ratio_c * A_c, clip(ratio_c, {low}, {high}) * A_c)"
        if self.dual_clip is not None:
            gain = f"where(A_c < 0, max({gain}, {self.dual_clip:.10g} * A_c), {gain})"
        if self.correction is not None:
            gain = f"correction_c * {gain}"
        if self.entropy:
            gain += " + bonus * entropy_c"
        if self.kl and self.kl_in == "loss":
            gain += f" - {self.kl:.10g} * KL_c"
        weights = {
            "token": "1 / tokens  # all action tokens alike",
            "sequence": "1 / (trajectories * tokens_i)  # all trajectories alike",
            "constant": f"1 / (trajectories * {self.constant})",
        }
        difference = "logp_c - logp_old_c"
        if self.ratio == "sequence":
            difference = f"stop(mean_tokens({difference})) + logp_c - stop(logp_c)"
        limit = f"{MOST_LOG_RATIO:.10g}"
        old = "logp_sampled_c  # as the engine sampled it"
        if self.recompute_logprobs:
            old = "logp_learner_c  # the learner's own, before the first update of the step"
        lines = [
            f"objective_c = {gain}",
            f"weight_c = {weights[self.normalize]}",
            f"ratio_c = exp(clip({difference}, -{limit}, {limit}))",
            f"logp_old_c = {old}",
        ]
        if self.correction is not None:
            lines += self.correction.explain()
        return [*lines, *self._explain_entropy(), *self._explain_kl(limit)]

    def _explain_entropy(self) -> list[str]:
        if not self.entropy:
            return []
        if self.entropy_target is None:
            return [f"bonus = {self.entropy:.10g}"]
        share = f"clip(1 - H / {self.entropy_target:.10g}, 0, 1)"
        return [
            f"bonus = {self.entropy:.10g} * {share}",
            "H = mean_step(-logp_sampled_c)  # the policy's entropy, as sampled",
        ]

    def _explain_kl(self, limit: str) -> list[str]:
        if not self.kl:
            return []
        policy = "logp_c" if self.kl_in == "loss" else "logp_old_c"
        log_ratio = f"logp_ref_c - {policy}"
        formula = {
            "k1": f"{policy} - logp_ref_c  # k1",
            "k2": f"({log_ratio}) ** 2 / 2  # k2: has the gradient of KL(policy, reference)",
            "k3": f"exp(min({log_ratio}, {limit})) - 1 - min({log_ratio}, {limit})  # k3: has "
            "the gradient of KL(reference, policy)",
        }
        return [f"KL_c = {formula[self.kl_estimator]}"]

    @abstractmethod
    def explain_credit(self) -> list[str]:
        """The formulas of A_c, given the rewards of turns (reward_u) and their sum (R_i)."""

    def explain_reward(self) -> list[str]:
        """The formulas of rewards, and which trajectories are left out."""
        reward = "r_u"
        names = ["r_u: the environment's reward for turn u"]
        if self.negative_reward_scale != 1:
            reward = f"where(r_u < 0, {self.negative_reward_scale:.10g} * r_u, r_u)"
        if self.turn_discount < 1:
            reward += f" * {self.turn_discount:.10g} ** turn_u"
            names.append("turn_u: the number of turns before it")
        if self.invalid_penalty:
            reward += f" - {self.invalid_penalty:.10g} * invalid_u"
            names.append("invalid_u: 1 where its action could not be read or done")
        if self.overlong_penalty:
            reward += f" - {self.overlong_penalty:.10g} * overlong_u"
            names.append("overlong_u: 1 where a token budget ended the trajectory in it")
        left_out = "a fault ended"
        if self.overlong == "mask":
            left_out = "a fault or a token budget ended"
        return [
            "R_i = sum_turns(reward_u)",
            f"reward_u = {reward}",
            f"# c: an action token, u: its turn, i: its trajectory; {'; '.join(names)}",
            f"# trajectories that {left_out} have no part, neither here nor in a mean or "
            "a deviation",
        ]

    @property
    def needs(self) -> frozenset[Need]:
        wanted: dict[Need, bool] = {"old": self.recompute_logprobs, "reference": self.kl > 0}
        return frozenset(need for need, is_wanted in wanted.items() if is_wanted)

    @property
    def learns_only_from_advantages(self) -> bool:
        return self.kl == 0

    @property
    def unit(self) -> Unit:
        if self.ratio == "sequence":
            return "trajectory"
        if self.correction is not None and self.correction.level != "token":
            return "trajectory"
        return "segment"

    @abstractmethod
    def advantages(self, batch: Batch) -> Tensor:
        """The advantage of each action token."""

    def add_advantages(self, batch: Batch) -> Batch:
        batch = batch.with_(advantage_C=self.advantages(batch))
        if self.entropy == 0:
            return batch
        weight_C = entropy_weight(batch.sampled_logp_C, self.entropy, self.entropy_target)
        if not weight_C.any():
            return batch
        return batch.with_(entropy_weight_C=weight_C)

    def weights(self, batch: Batch) -> Tensor:
        trajectories = len(set(batch.trajectory_S.tolist()))
        return token_weights(
            batch.trajectory_C, trajectories, normalize=self.normalize, constant=self.constant or 1
        )

    def loss(self, policy: PolicyOutput, batch: Batch) -> tuple[Tensor, Stats]:
        assert batch.advantage_C is not None
        log_ratio_C = policy.logp_C - batch.old_logp_C
        clip = {"clip_low": self.clip_low, "clip_high": self.clip_high}
        if self.objective == "cispo":
            loss_C, stats = cispo_loss(log_ratio_C, policy.logp_C, batch.advantage_C, **clip)
        else:
            if self.ratio == "sequence":
                log_ratio_C = sequence_log_ratio(log_ratio_C, batch.trajectory_C, policy.logp_C)
            loss_C, stats = clipped_policy_loss(
                log_ratio_C, batch.advantage_C, **clip, dual_clip=self.dual_clip
            )
        if self.correction is not None:
            weight_C = importance_correction(
                batch.old_logp_C, batch.sampled_logp_C, batch.trajectory_C, **dict(self.correction)
            )
            loss_C = loss_C * weight_C
            stats["policy/correction"] = weight_C
        if batch.entropy_weight_C is not None:
            loss_C = loss_C - batch.entropy_weight_C * policy.entropy_C
        if self.kl > 0:
            assert batch.reference_logp_C is not None
            if self.kl_in == "loss":
                loss_C = loss_C + self.kl * kl_divergence(
                    policy.logp_C, batch.reference_logp_C, self.kl_estimator
                )
            # Always k3, whatever estimator is trained on, so that runs can be compared.
            stats["policy/kl_reference"] = kl_divergence(
                policy.logp_C.detach(), batch.reference_logp_C, "k3"
            )
        # KL(old policy, new policy): the tokens are samples of the old one.
        stats["policy/kl"] = kl_divergence(batch.old_logp_C, policy.logp_C.detach(), "k3")
        return loss_C, stats

    def kl_in_reward(self, batch: Batch) -> Tensor:
        """The KL penalty on the reward of each token; 0 if the KL term is in the loss."""
        if self.kl == 0 or self.kl_in == "loss":
            return torch.zeros_like(batch.old_logp_C)
        assert batch.reference_logp_C is not None
        return self.kl * kl_divergence(batch.old_logp_C, batch.reference_logp_C, self.kl_estimator)


class CriticFree(PolicyGradient):
    """Advantages computed from rewards alone, without a critic."""

    @abstractmethod
    def turn_credit(self, batch: Batch) -> Tensor:
        """The advantage of each turn, from rewards, turns and groups; it reads no tokens."""

    @property
    @abstractmethod
    def credit_formulas(self) -> list[str]:
        """The formulas of A_u or A_i, which the first line defines."""

    def advantages(self, batch: Batch) -> Tensor:
        return self.turn_credit(batch)[batch.turn_C] - self.kl_to_go(batch)

    def kl_to_go(self, batch: Batch) -> Tensor:
        """The KL penalty summed over each token and all later ones of its trajectory."""
        if self.kl == 0 or self.kl_in == "loss":
            return torch.zeros_like(batch.old_logp_C)
        to_go_C = returns_to_go(self.kl_in_reward(batch), batch.trajectory_C, gamma=1.0)
        return to_go_C.to(batch.old_logp_C.dtype)

    def explain_credit(self) -> list[str]:
        # "A_u" or "A_i"
        advantage = self.credit_formulas[0].split(" = ")[0]
        if self.kl and self.kl_in == "reward":
            advantage += f" - to_go_tokens({self.kl:.10g} * KL_c)"
        return [f"A_c = {advantage}", *self.credit_formulas]

    @property
    def compares_within_groups(self) -> bool:
        return True

    @property
    def may_lack_signal(self) -> bool:
        return True

    def has_signal(self, group: Group) -> bool:
        """Whether any turn has a nonzero advantage, the KL penalty not counted."""
        members = self.learnable(group)
        if not members:
            return False
        if not self.may_lack_signal:
            return True
        return bool((self.turn_credit(self.rewards_of(group)) != 0).any())

    def rewards_of(self, group: Group) -> Batch:
        """The rewards of one group, as `turn_credit` reads them."""
        return rewards_only([self.learnable(group)], self.turn_rewards)
