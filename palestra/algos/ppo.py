"""PPO (arXiv:1707.06347): a critic says what was to be expected, token by token or turn by turn."""

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
    name: Literal["ppo"] = "ppo"
    level: Literal["turn", "token"] = "turn"
    """What the trace of the advantages passes over: turns, or chosen tokens.

    Observations are not decisions in either.
    """
    gamma: float = Field(default=0.95, gt=0, le=1)
    """Discount a turn or a token. Default: 0.95 by turns, 1 by tokens, where 0.95 would leave 2e-6
    of a reward. At 1, with `bootstrap`, putting the end off for ever would cost nothing."""
    lam: float = Field(default=0.95, ge=0, le=1)
    """1: what really followed against what was expected; 0: the next estimate against this one.

    Default: 0.95 by turns, 1 by tokens.
    """
    bootstrap: bool = True
    """Count what the critic still expects where only a time limit ended an episode.

    Default: true where gamma is below 1.
    """
    whiten: bool = True
    """Bring the advantages of a step to mean 0 and deviation 1."""
    value_weight: PositiveFloat = 0.5
    """What the critic's loss counts for beside the policy's."""
    value_clip: PositiveFloat | None = 0.2
    """How far an estimate may move in one step before moving on stops paying."""
    critic: CriticSettings = CriticSettings()

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_the_level(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("level") == "token":
            given = {"gamma": 1.0, "lam": 1.0} | given
            return given if given["gamma"] != 1 else {"bootstrap": False} | given
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
        own = {"head": "one more output of the policy", "model": "a network of its own"}[
            self.critic.kind
        ]
        warmup = (
            [f"# in the first {self.critic.warmup} steps only V learns"]
            if self.critic.warmup
            else []
        )
        return [
            f"maximize  sum_c(weight_c * (objective_c - {self.value_weight:.10g} * value_loss_c))",
            *formulas,
            f"value_loss_c = {bounded} / 2  # V: the critic, {own}; V_old: before the "
            "first update of the step",
            *warmup,
        ]

    def explain_credit(self) -> list[str]:
        x = "u" if self.level == "turn" else "c"
        value = "V_first_u" if self.level == "turn" else "V_old_c"
        kl = f"{self.kl:.10g} * KL_c" if self.kl and self.kl_in == "reward" else ""
        reward = "reward_u" if self.level == "turn" else "at_last_token(reward_u)"
        if kl:
            reward += f" - sum_of_turn({kl})" if self.level == "turn" else f" - {kl}"
        end = "V_end_i" if self.bootstrap else "0"
        lines = [
            f"A_c = {'whiten_step(gain_c)' if self.whiten else 'gain_c'}",
            f"G_c = gain_c + {value}  # what the critic should have expected",
            f"gain_c = gain_{x}"
            if self.level == "turn"
            else f"gain_c = gae({reward}, {value}, {end}, {self.gamma:.10g}, {self.lam:.10g})",
        ]
        if self.level == "turn":
            lines += [
                f"gain_u = gae({reward}, {value}, {end}, {self.gamma:.10g}, {self.lam:.10g})",
                "V_first_u = at_first_token(V_old_c)",
            ]
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
        expected_C = batch.value_C if self.level == "token" else _turn_values(batch)[batch.turn_C]
        advantage_C = whiten(batch.advantage_C) if self.whiten else batch.advantage_C
        return batch.with_(return_C=batch.advantage_C + expected_C, advantage_C=advantage_C)

    def advantages(self, batch: Batch) -> Tensor:
        assert batch.value_C is not None
        after_N = self._value_after(batch)
        kl_C = self.kl_in_reward(batch)
        if self.level == "turn":
            reward_U = batch.reward_U.to(kl_C.dtype).index_add(0, batch.turn_C, -kl_C)
            trace = gae(
                reward_U,
                _turn_values(batch),
                batch.trajectory_U,
                after_N,
                gamma=self.gamma,
                lam=self.lam,
            )
            return trace[batch.turn_C]
        last_C = _is_first(batch.turn_C.flip(0)).flip(0)
        reward_C = torch.where(last_C, batch.reward_U[batch.turn_C], 0.0) - kl_C
        return gae(
            reward_C, batch.value_C, batch.trajectory_C, after_N, gamma=self.gamma, lam=self.lam
        )

    def _value_after(self, batch: Batch) -> Tensor:
        """What was still to come where a time limit ended a trajectory."""
        assert batch.value_after_N is not None
        if not self.bootstrap:
            return torch.zeros_like(batch.value_after_N)
        after_N = batch.value_after_N
        # the critic learns where a reply begins: without the last observation, it is asked where
        # the last reply began
        was_shown_N = batch.ends_with_observation_N
        last_turn_U = _is_first(batch.trajectory_U.flip(0)).flip(0)
        before_last_N = after_N.index_put(
            (batch.trajectory_U[last_turn_U],), _turn_values(batch)[last_turn_U]
        )
        return torch.where(batch.truncated_N, torch.where(was_shown_N, after_N, before_last_N), 0.0)

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
    """What the critic expected of each turn: its estimate before the turn's first token."""
    assert batch.value_C is not None
    first_C = _is_first(batch.turn_C)
    return torch.zeros_like(batch.reward_U, dtype=batch.value_C.dtype).index_put_(
        (batch.turn_C[first_C],), batch.value_C[first_C]
    )


def _is_first(turn_C: Tensor) -> Tensor:
    """Whether a token is the first of its turn."""
    return torch.cat([torch.ones_like(turn_C[:1], dtype=torch.bool), turn_C[1:] != turn_C[:-1]])
