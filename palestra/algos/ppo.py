"""The algorithm `ppo`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, PositiveFloat, model_validator

from palestra.algos.advantages import gae, whiten
from palestra.algos.base import CriticSettings, Need, PolicyOutput
from palestra.algos.batch import Batch
from palestra.algos.losses import Stats, clipped_value_loss
from palestra.algos.policy import PolicyGradient
from palestra.core.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor


class PPO(PolicyGradient):
    """PPO (arXiv:1707.06347): advantages from a critic, by GAE over tokens or turns."""

    name: Literal["ppo"] = "ppo"
    level: Literal["turn", "token"] = "turn"
    """The steps of GAE: turns, or action tokens. Observation tokens are skipped in both."""
    gamma: float = Field(default=0.95, gt=0, le=1)
    """Discount factor per turn or token. Default: 0.95 for turns; 1 for tokens, where 0.95 would
    leave 2e-6 of a reward. With `bootstrap` it must be below 1, or never finishing costs nothing.
    """
    lam: float = Field(default=0.95, ge=0, le=1)
    """GAE lambda: 1 uses full returns, 0 one-step temporal differences.

    Default: 0.95 for turns, 1 for tokens.
    """
    bootstrap: bool = True
    """Bootstrap from the critic's estimate if a time limit truncated the episode.

    Default: true if gamma is below 1.
    """
    whiten: bool = True
    """Normalize the advantages of a step to mean 0 and standard deviation 1."""
    value_weight: PositiveFloat = 0.5
    """Weight of the value loss."""
    value_clip: PositiveFloat | None = 0.2
    """Clip range of the value loss around the old estimates."""
    critic: CriticSettings = CriticSettings()

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_the_level(cls, given: Any) -> Any:
        if not isinstance(given, dict) or given.get("level") != "token":
            return given
        given = {"gamma": 1.0, "lam": 1.0} | given
        if given["gamma"] == 1:
            given = {"bootstrap": False} | given
        return given

    @model_validator(mode="after")
    def _time_must_cost(self) -> PPO:
        if self.bootstrap and self.gamma == 1:
            raise ValueError(
                "gamma = 1 with bootstrap = true never teaches to finish: set gamma below "
                "1, or bootstrap = false"
            )
        return self

    @property
    def critic_settings(self) -> CriticSettings:
        return self.critic

    @property
    def needs(self) -> frozenset[Need]:
        return super().needs | {"value"}

    @property
    def learns_only_from_advantages(self) -> bool:
        return False

    def explain(self) -> list[str]:
        _, *formulas = super().explain()
        bounded = "(V_c - G_c) ** 2"
        if self.value_clip is not None:
            clip = f"{self.value_clip:.10g}"
            bounded = f"max({bounded}, (clip(V_c, V_old_c - {clip}, V_old_c + {clip}) - G_c) ** 2)"
        networks = {"head": "one more output of the policy", "model": "a network of its own"}
        critic = networks[self.critic.kind]
        lines = [
            f"maximize  sum_c(weight_c * (objective_c - {self.value_weight:.10g} * value_loss_c))",
            *formulas,
            f"value_loss_c = {bounded} / 2  # V: the critic, {critic}; V_old: before the "
            "first update of the step",
        ]
        if self.critic.warmup:
            lines.append(f"# in the first {self.critic.warmup} steps only V learns")
        return lines

    def explain_credit(self) -> list[str]:
        kl = f"{self.kl:.10g} * KL_c" if self.kl and self.kl_in == "reward" else ""
        if self.level == "turn":
            value = "V_first_u"
            reward = f"reward_u - sum_of_turn({kl})" if kl else "reward_u"
        else:
            value = "V_old_c"
            reward = f"at_last_token(reward_u) - {kl}" if kl else "at_last_token(reward_u)"
        end = "V_end_i" if self.bootstrap else "0"
        trace = f"gae({reward}, {value}, {end}, {self.gamma:.10g}, {self.lam:.10g})"
        lines = [
            f"A_c = {'whiten_step(gain_c)' if self.whiten else 'gain_c'}",
            f"G_c = gain_c + {value}  # what the critic should have expected",
        ]
        if self.level == "turn":
            lines += [
                "gain_c = gain_u",
                f"gain_u = {trace}",
                "V_first_u = at_first_token(V_old_c)",
            ]
        else:
            lines.append(f"gain_c = {trace}")
        if self.bootstrap:
            lines += [
                "# V_end_i: V after the last observation where a time limit ended the "
                "trajectory (V before the last turn where that",
                "# observation did not fit into the context), else 0",
            ]
        return lines

    def add_advantages(self, batch: Batch) -> Batch:
        batch = super().add_advantages(batch)
        assert batch.advantage_C is not None
        assert batch.value_C is not None
        value_C = batch.value_C
        if self.level == "turn":
            value_C = _turn_values(batch)[batch.turn_C]
        # The critic's target is taken from the advantages before they are whitened.
        return_C = batch.advantage_C + value_C
        advantage_C = whiten(batch.advantage_C) if self.whiten else batch.advantage_C
        return batch.with_(return_C=return_C, advantage_C=advantage_C)

    def advantages(self, batch: Batch) -> Tensor:
        assert batch.value_C is not None
        after_N = self._value_after(batch)
        kl_C = self.kl_in_reward(batch)
        if self.level == "turn":
            reward_U = batch.reward_U.to(kl_C.dtype).index_add(0, batch.turn_C, -kl_C)
            value_U = _turn_values(batch)
            advantage_U = gae(
                reward_U, value_U, batch.trajectory_U, after_N, gamma=self.gamma, lam=self.lam
            )
            return advantage_U[batch.turn_C]
        # The reward of a turn is the reward of its last token.
        is_last_C = _is_first(batch.turn_C.flip(0)).flip(0)
        reward_C = torch.where(is_last_C, batch.reward_U[batch.turn_C], 0.0) - kl_C
        return gae(
            reward_C, batch.value_C, batch.trajectory_C, after_N, gamma=self.gamma, lam=self.lam
        )

    def _value_after(self, batch: Batch) -> Tensor:
        """The bootstrap value of truncated trajectories; 0 for all others."""
        assert batch.value_after_N is not None
        if not self.bootstrap:
            return torch.zeros_like(batch.value_after_N)
        after_N = batch.value_after_N
        # The critic is trained where replies begin. If the last observation did not fit into the
        # context, the best estimate is therefore the one from where the last reply began.
        is_last_U = _is_first(batch.trajectory_U.flip(0)).flip(0)
        before_last_N = after_N.index_put(
            (batch.trajectory_U[is_last_U],), _turn_values(batch)[is_last_U]
        )
        value_N = torch.where(batch.ends_with_observation_N, after_N, before_last_N)
        return torch.where(batch.truncated_N, value_N, 0.0)

    def loss(self, policy: PolicyOutput, batch: Batch) -> tuple[Tensor, Stats]:
        assert policy.value_C is not None
        assert batch.value_C is not None
        assert batch.return_C is not None
        policy_C, stats = super().loss(policy, batch)
        value_C, value_stats = clipped_value_loss(
            policy.value_C, batch.value_C, batch.return_C, clip=self.value_clip
        )
        return policy_C + self.value_weight * value_C, stats | value_stats


def _turn_values(batch: Batch) -> Tensor:
    """The value of each turn: the critic's estimate before the turn's first token."""
    assert batch.value_C is not None
    is_first_C = _is_first(batch.turn_C)
    value_U = torch.zeros_like(batch.reward_U, dtype=batch.value_C.dtype)
    return value_U.index_put_((batch.turn_C[is_first_C],), batch.value_C[is_first_C])


def _is_first(turn_C: Tensor) -> Tensor:
    """Whether a token is the first of its turn."""
    return torch.cat([torch.ones_like(turn_C[:1], dtype=torch.bool), turn_C[1:] != turn_C[:-1]])
